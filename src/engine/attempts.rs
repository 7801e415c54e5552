//! One call of a tool with its retries.

use std::{mem, time::Duration};

use rmcp::model::{CallToolResult, ErrorCode, JsonObject};
use tokio::time::Instant;

use super::{
    branches::BranchId,
    limits::after,
    milliseconds::milliseconds,
    outcome::{ErrorKind, Outcome, Status, StepError},
    plan::{CallSite, Retry},
    questions::Answered,
    step_output,
};
use crate::message::ToolResult;

/// The error codes that a retry would return again: the tool is unknown, or its arguments are
/// invalid.
const LASTING_CODES: [i32; 2] = [ErrorCode::METHOD_NOT_FOUND.0, ErrorCode::INVALID_PARAMS.0];

/// A pending call of a step, or of an element of its loop.
pub(super) struct Attempts<'p> {
    pub(super) id: BranchId,
    pub(super) site: &'p CallSite,
    /// The number of calls of the tool.
    pub(super) count: u32,
    /// The start of this attempt, or the end of the last one.
    since: Instant,
    /// The deadline of this attempt, or the start of the next one.
    pub(super) due: Instant,
    phase: Phase,
    pub(super) begun: Instant,
    /// The timeout of an attempt.
    timeout: Duration,
    arguments: JsonObject,
    /// The answers to the tool's questions, if it has asked.
    answered: Option<Box<Answered>>,
    /// Boxed because most calls are made once.
    retry: Option<Box<Retries>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Calling,
    /// Waiting for the next attempt.
    Waiting,
}

struct Retries {
    policy: Retry,
    /// The error of the last attempt.
    error: Option<StepError>,
}

/// The start times of the run and of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) run: Instant,
    pub(super) step: Instant,
}

// === impl Attempts ===

impl<'p> Attempts<'p> {
    /// Creates a call that begins now.
    pub(super) fn new(
        id: BranchId,
        site: &'p CallSite,
        arguments: JsonObject,
        timeout: Duration,
        retry: Option<Retry>,
        now: Instant,
    ) -> Self {
        let retry = retry.filter(|retry| retry.count > 0);
        Self {
            id,
            site,
            count: 0,
            since: now,
            due: after(now, timeout),
            phase: Phase::Calling,
            begun: now,
            timeout,
            arguments,
            answered: None,
            retry: retry.map(|policy| Box::new(Retries { policy, error: None })),
        }
    }

    /// Resumes an attempt of this call with answers.
    pub(super) fn resumed(self, begun: Instant, attempts: u32, answered: Box<Answered>) -> Self {
        // The attempt was counted when it began.
        Self { begun, count: attempts.saturating_sub(1), answered: Some(answered), ..self }
    }

    /// Begins the next attempt; returns its arguments.
    pub(super) fn begin(&mut self, now: Instant) -> (JsonObject, Option<Box<Answered>>) {
        self.count += 1;
        self.since = now;
        self.due = after(now, self.timeout);
        self.phase = Phase::Calling;
        if self.may_be_tried_again() {
            (self.arguments.clone(), self.answered.clone())
        } else {
            (mem::take(&mut self.arguments), self.answered.take())
        }
    }

    /// Waits for the next attempt after a failed one; returns `false` if there is none.
    pub(super) fn wait(&mut self, failed: &mut Outcome, now: Instant) -> bool {
        let lasting = |error: &StepError| {
            // The next attempt would end the same way.
            matches!(error.kind, ErrorKind::Definition | ErrorKind::Limit)
                || error.code.is_some_and(|code| LASTING_CODES.contains(&code))
        };
        if failed.error.as_deref().is_none_or(lasting) || !self.may_be_tried_again() {
            return false;
        }
        let Some(retry) = &mut self.retry else { return false };
        retry.error = failed.error.take().map(|error| *error);
        self.phase = Phase::Waiting;
        self.since = now;
        self.due = after(now, retry.policy.wait(self.count));
        true
    }

    const fn may_be_tried_again(&self) -> bool {
        match &self.retry {
            Some(retry) => self.count <= retry.policy.count,
            None => false,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting
    }

    pub(super) const fn times(&self, run: Instant) -> Times {
        Times { run, step: self.begun }
    }

    /// Returns the error of a call that has not ended when the run ends.
    pub(super) fn cut_off(&self, now: Instant) -> StepError {
        match self.retry.as_ref().and_then(|retry| retry.error.as_ref()) {
            Some(error) if self.is_waiting() => StepError::new(
                ErrorKind::Timeout,
                format!("the run ended before it was tried again: {}", error.message),
            ),
            _ => no_answer(now - self.since),
        }
    }

    /// Returns the error of a call that is not retried because of a limit.
    pub(super) fn not_again(&self, why: StepError) -> StepError {
        match self.retry.as_ref().and_then(|retry| retry.error.as_ref()) {
            Some(last) => {
                let message = format!("{}; before that: {}", why.message, last.message);
                StepError { message, ..why }
            }
            None => why,
        }
    }

    /// Returns the kind of the last attempt's error.
    pub(super) fn failed_before(&self) -> Option<&'static str> {
        let error = self.retry.as_ref()?.error.as_ref()?;
        Some(error.kind.name())
    }

    /// Returns the outcome of an attempt that is aborted now.
    pub(super) fn late(&self, run: Instant, now: Instant) -> Outcome {
        self.times(run).outcome(Err(no_answer(now - self.since)), now)
    }
}

// === impl Retry ===

impl Retry {
    /// Returns the delay after this many attempts.
    ///
    /// It is random up to the longest delay, so that calls that failed together are not retried
    /// together.
    fn wait(self, attempts: u32) -> Duration {
        let longest = self.longest_wait(attempts);
        let nanoseconds = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(fastrand::u64(0..=nanoseconds))
    }

    /// Returns the upper bound of the delay after this many attempts.
    pub(super) fn longest_wait(self, attempts: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
        self.delay.saturating_mul(doubled).min(self.max_delay)
    }
}

// === impl Times ===

impl Times {
    /// Returns the outcome of a step that ended `at` this time, with one attempt.
    pub(super) fn outcome(self, result: Result<ToolResult, StepError>, at: Instant) -> Outcome {
        let (status, result, error) = match result {
            Ok(result) if result.is_error == Some(true) => {
                let error = StepError::new(ErrorKind::Tool, failure_text(&result));
                (Status::Failed, Some(result), Some(error))
            }
            Ok(result) => (Status::Completed, Some(result), None),
            Err(error) => (error.status(), None, Some(error)),
        };
        Outcome { result, ..self.ended(status, error, at) }
    }

    /// Returns the outcome of a step that ended `at` this time without a result.
    pub(super) fn ended(self, status: Status, error: Option<StepError>, at: Instant) -> Outcome {
        // Within a millisecond after the start of the run, neither time has to be computed.
        let is_soon = at - self.run < Duration::from_millis(1);
        let passed = |from: Instant, to| if is_soon { 0 } else { milliseconds(to - from) };
        Outcome {
            status,
            result: None,
            record: None,
            error: error.map(Box::new),
            site: None,
            attempts: 1,
            started_ms: passed(self.run, self.step),
            duration_ms: passed(self.step, at),
        }
    }
}

pub(super) fn no_answer(within: Duration) -> StepError {
    // Rounded to milliseconds, so that messages do not show `4.999812s`.
    let within = Duration::from_millis(milliseconds(within));
    StepError::new(ErrorKind::Timeout, format!("no answer within {within:?}"))
}

/// Returns the message of a failed tool.
fn failure_text(result: &CallToolResult) -> String {
    let texts = step_output::texts(result);
    if !texts.trim().is_empty() {
        return texts;
    }
    let structured = result.structured_content.as_ref();
    let told = |place| structured?.pointer(place)?.as_str().filter(|text| !text.trim().is_empty());
    let told = ["/message", "/error/message", "/error", "/text"].into_iter().find_map(told);
    told.unwrap_or("the tool failed without saying why").to_owned()
}
