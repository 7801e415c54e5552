use std::{sync::Arc, time::Duration};

use crate::expr::Expression;

/// What a run does: its steps, and how they are gone through.
///
/// A plan that exists can run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// How many steps run at the same time.
    pub(crate) concurrency: usize,
    /// When a run ends before all steps have run.
    pub(crate) stop: Stop,
}

/// One node of a plan: a call of a tool.
#[derive(Debug)]
pub(crate) struct Step {
    /// Its name, unique in the plan.
    pub(crate) id: Arc<str>,
    /// The tool it calls.
    pub(crate) tool: Arc<str>,
    /// What it calls the tool with.
    pub(crate) arguments: Arguments,
    /// How long the call may take.
    pub(crate) timeout: Duration,
}

/// What a step calls its tool with.
#[derive(Clone, Debug)]
pub(crate) enum Arguments {
    /// The input of the run.
    Input,
    /// An object made of it.
    Mapped(Expression),
}

/// When a run ends before all of its steps have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Never.
    Never,
    /// As soon as a step has succeeded.
    FirstSuccess,
}
