//! The engine, which runs plans.
//!
//! A [`Plan`](plan::Plan) is the validated definition of a composite: its steps and their
//! dependencies. A run executes a plan: it starts from a [`RunState`](state::RunState), and ends
//! when all steps have finished. A run that waits for the user's answers is suspended. When it
//! resumes, it starts from a state in which some steps have already finished. The engine does not
//! depend on Tower, services or files: it calls tools only through a [`Caller`](caller::Caller).
//!
//! Suggested reading order:
//!
//! - The definition of a plan: `action` (with `call_site` and `loop_plan`), `finally` and `plan`
//!   (with `step_set`).
//! - The outcomes of steps: `record`, `outcome`, `step_output` (the stored parts of tool results),
//!   `parsed_text` (outputs parsed from texts) and `preserved_outputs` (step outputs for the report
//!   of a failed run).
//! - The resources and events of a run: `meter` and `scope` (resource usage and limits) and
//!   `observation`.
//! - The state of a run: `question` (one question to the user), `form` (computed forms),
//!   `loop_state`, `state`, `settling` (the outcome before the finally steps), `retention` (which
//!   outcomes are stored), `suspension` (the size of a suspended run's state), `takeover` (the
//!   calls of a run whose process has stopped), `expression_data`
//!   (the data for expressions) and `questions` (all questions and answers).
//! - The execution of a run: `attempts` (one call with its retries), `running_loop`, `scheduler` (a
//!   run as a state machine without I/O), `predicted_stop` (whether an answer ends a run),
//!   `caller`, `branches`, `progress`, `saving` (storing the state of a run while it runs) and
//!   `run` (the driver of the scheduler on Tokio).
//! - Before and after a run: `preview` lists the tool calls of a plan without making them, and
//!   `output` builds the answer.
//!
//! A run owns all tasks and tool calls that it starts. Dropping a run aborts its running steps.
//! There is no other way to cancel a run.

mod action;
mod attempts;
mod branches;
mod call_site;
pub(crate) mod caller;
mod detached;
mod expression_data;
mod finally;
pub(crate) mod form;
pub(crate) mod limits;
mod loop_plan;
mod loop_state;
pub(crate) mod meter;
mod milliseconds;
pub(crate) mod observation;
pub(crate) mod outcome;
pub(crate) mod output;
mod parsed_text;
pub(crate) mod plan;
mod predicted_stop;
pub(crate) mod preserved_outputs;
pub(crate) mod preview;
mod progress;
pub(crate) mod question;
pub(crate) mod questions;
mod record;
mod retention;
pub(crate) mod run;
mod running_loop;
pub(crate) mod saving;
mod scheduler;
pub(crate) mod scope;
mod serde_defaults;
mod settling;
pub(crate) mod state;
pub(crate) mod step_output;
mod step_set;
mod suspension;
mod takeover;
#[cfg(test)]
mod tests;
