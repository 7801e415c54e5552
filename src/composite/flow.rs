//! Data flow analysis: checks that composites do not use labeled data, such as private data, in
//! ways that a [`FlowPolicy`] forbids.
//!
//! The analysis computes the labels of each step of a composite. Its parts are:
//! - `taint`: the labels of a value
//! - `approval`: the values that the user approves
//! - `steps` and `calls`: the labels of steps and of their tool calls
//! - `summary`: the flows through a composite, for the analysis of its callers
//! - `composites`: the check of all composites of a layer
//! - `listed`: the same check whenever tools are listed, with the annotations of the tools
//! - `call_flow`: the labels of calls, for checks at run time

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
