//! Runs plans.
//!
//! A [`Plan`](plan::Plan) is a checked set of steps with a policy; running it
//! turns a [`RunState`](state::RunState) in which some steps are finished
//! into one in which all are. The engine knows nothing of Tower, services or
//! files: its world is a [`Caller`](caller::Caller) that calls one tool.
//!
//! In the order to read them: `plan` (with `step_set`), `outcome` (how steps ended),
//! `record` (what is kept of their results), `preserved` (outputs for the answer of a
//! failed run), `state` (all that a run knows), `suspension` (what of
//! it is kept for a question), `data` (what
//! expressions see of it), `ask` (what a person is asked, and answers), `attempts` (one
//! call, however often it is tried), `meter` and `scope` (what runs use, and may use),
//! `telling` (of progress), `watching` (for whoever watches), `for_each` and `run`.
//! `output` makes the value that a plan gives; `preview` tells what it would do.
//!
//! A run owns everything it starts. Dropping it aborts its branches; there is
//! no other way in which it is cancelled.

mod attempts;
mod branches;
pub(crate) mod caller;
mod expression_data;
mod for_each;
pub(crate) mod limits;
pub(crate) mod meter;
pub(crate) mod observation;
pub(crate) mod outcome;
pub(crate) mod output;
pub(crate) mod plan;
pub(crate) mod preserved_outputs;
pub(crate) mod preview;
mod progress;
pub(crate) mod questions;
pub(crate) mod run;
pub(crate) mod scope;
pub(crate) mod state;
pub(crate) mod step_output;
mod step_set;
mod suspension;
#[cfg(test)]
mod tests;
