//! Labels of tools, and the proof that labeled data does not reach certain calls.
//!
//! The analysis computes the labels of each step of a composite: `taint` (the labels of a value),
//! `approval` (the values that a person approves), `steps` and `calls` (the labels of steps), and
//! `summary` (the flows through a composite, for the composites that call it). `composites` checks
//! a whole layer, and `listed` does so with the annotations of the listed tools. `call_flow`
//! contains what is known about the calls of a tool or composite at run time.

mod approval;
mod call_flow;
mod calls;
mod composites;
mod listed;
mod policy;
mod rule;
mod steps;
mod summary;
mod taint;
mod violation;

pub(crate) use self::{
    call_flow::{CallFlow, DataLabels},
    violation::FlowReport,
};
pub(super) use self::{
    composites::{call_flows, check},
    listed::ListedFlows,
};
pub use self::{
    policy::{FlowLabel, FlowPolicy},
    violation::FlowViolation,
};
