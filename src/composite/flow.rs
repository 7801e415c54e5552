//! Labels of tools, and the proof that labeled data does not reach certain calls.
//!
//! The analysis computes the labels of each step of a composite: `taint` (the labels of a value),
//! `approval` (the values that a person approves), `steps` and `calls` (the labels of steps), and
//! `summary` (the flows through a composite, for the composites that call it). `composites` checks
//! a whole layer, and `listed` does so with the annotations of the listed tools.

mod approval;
mod calls;
mod composites;
mod listed;
mod policy;
mod rule;
mod steps;
mod summary;
mod taint;
mod violation;

pub(crate) use self::violation::FlowReport;
pub(super) use self::{composites::check, listed::ListedFlows};
pub use self::{
    policy::{FlowLabel, FlowPolicy},
    violation::FlowViolation,
};
