//! Runs plans.
//!
//! A [`Plan`](plan::Plan) is a checked set of steps with a policy; running it
//! turns a [`RunState`](outcome::RunState) in which some steps are finished
//! into one in which all are. The engine knows nothing of Tower, services or
//! files: its world is a [`Caller`](caller::Caller) that calls one tool.
//!
//! A run owns everything it starts. Dropping it aborts its branches; there is
//! no other way in which it is cancelled.

mod branches;
pub(crate) mod caller;
pub(crate) mod limits;
pub(crate) mod outcome;
pub(crate) mod plan;
pub(crate) mod run;

#[cfg(test)]
mod tests;
