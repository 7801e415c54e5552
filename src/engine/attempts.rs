//! A tool call with its retries.

use std::{mem, time::Duration};

use fastrand::Rng;
use rmcp::model::{CallToolResult, ErrorCode, JsonObject};

use super::{
    branches::BranchId,
    milliseconds::milliseconds,
    outcome::{ErrorKind, Outcome, Status, StepError},
    plan::{CallSite, Retry, Step},
    questions::Answered,
    step_output,
};
use crate::message::ToolResult;

/// The JSON-RPC error codes of errors that every retry would repeat: an unknown tool, or invalid
/// arguments. Calls that fail with one of them are not retried.
const LASTING_CODES: [i32; 2] = [ErrorCode::METHOD_NOT_FOUND.0, ErrorCode::INVALID_PARAMS.0];

/// A pending tool call of a step or of a loop element. It makes one attempt, and further attempts
/// if the step has a retry policy.
///
/// All times in this type are durations since the start of the run.
pub(super) struct Attempts<'p> {
    pub(super) id: BranchId,
    pub(super) site: &'p CallSite,
    pub(super) count: u32,
    /// The start of the current attempt. While the call waits for a retry, the end of the last
    /// attempt.
    since: Duration,
    /// The deadline of the current attempt. While the call waits for a retry, the start of the next
    /// attempt.
    pub(super) due: Duration,
    phase: Phase,
    /// The start of the first attempt.
    pub(super) begun: Duration,
    /// The maximum duration of each attempt.
    timeout: Duration,
    arguments: JsonObject,
    /// The user's answers to the tool's questions, which the next attempt sends to the tool. `None`
    /// if the tool has not asked questions.
    answered: Option<Box<Answered>>,
    /// `None` if the call is not retried. Boxed because most calls are not retried.
    retry: Option<Box<Retries>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Calling,
    /// The last attempt failed. The next attempt starts after a delay.
    Waiting,
    /// The delay has passed. The next attempt can start.
    Due,
}

struct Retries {
    policy: Retry,
    error: Option<StepError>,
}

/// The input of an attempt: the arguments of the tool call, and the user's answers to the tool's
/// questions. The answers are `None` if the tool has not asked questions.
pub(super) type AttemptInput = (JsonObject, Option<Box<Answered>>);

// === impl Attempts ===

impl<'p> Attempts<'p> {
    #[inline]
    pub(super) fn new(
        id: BranchId,
        site: &'p CallSite,
        arguments: JsonObject,
        step: &Step,
        now: Duration,
    ) -> Self {
        let retry = step.retry.filter(|retry| retry.count > 0);
        Self {
            id,
            site,
            count: 0,
            since: now,
            due: now.saturating_add(step.timeout),
            phase: Phase::Calling,
            begun: now,
            timeout: step.timeout,
            arguments,
            answered: None,
            retry: retry.map(|policy| Box::new(Retries { policy, error: None })),
        }
    }

    /// Configures the call to resume after the tool has asked the user questions. The next attempt
    /// repeats the interrupted attempt with the user's answers. `begun` is the start of the first
    /// attempt. `attempts` is the number of started attempts, including the interrupted one.
    pub(super) fn resumed(self, begun: Duration, attempts: u32, answered: Box<Answered>) -> Self {
        // The repeated attempt counts only once, and was already counted when it began.
        Self { begun, count: attempts.saturating_sub(1), answered: Some(answered), ..self }
    }

    /// Starts the next attempt at the time `now`, and returns its input.
    #[inline]
    pub(super) fn begin(&mut self, now: Duration) -> AttemptInput {
        self.count += 1;
        self.since = now;
        self.due = now.saturating_add(self.timeout);
        self.phase = Phase::Calling;
        if self.may_be_tried_again() {
            (self.arguments.clone(), self.answered.clone())
        } else {
            (mem::take(&mut self.arguments), self.answered.take())
        }
    }

    /// Schedules a retry after a failed attempt, and takes the error out of `failed`. Returns
    /// `false` if the call is not retried: it has no retries left, or every retry would fail with
    /// the same error.
    pub(super) fn wait(&mut self, failed: &mut Outcome, now: Duration, random: &mut Rng) -> bool {
        let lasting = |error: &StepError| {
            // A retry would end with the same error, or may repeat a call that must not be
            // repeated.
            matches!(error.kind, ErrorKind::Definition | ErrorKind::Limit | ErrorKind::Lost)
                || error.code.is_some_and(|code| LASTING_CODES.contains(&code))
        };
        if failed.error.as_deref().is_none_or(lasting) || !self.may_be_tried_again() {
            return false;
        }
        let Some(retry) = &mut self.retry else { return false };
        retry.error = failed.error.take().map(|error| *error);
        self.phase = Phase::Waiting;
        self.since = now;
        self.due = now.saturating_add(retry.policy.wait(self.count, random));
        true
    }

    const fn may_be_tried_again(&self) -> bool {
        match &self.retry {
            Some(retry) => self.count <= retry.policy.count,
            None => false,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.phase != Phase::Calling
    }

    /// Ends the delay before the next attempt. Returns `false` if the delay had already ended.
    pub(super) fn make_due(&mut self) -> bool {
        mem::replace(&mut self.phase, Phase::Due) != Phase::Due
    }

    /// Returns `true` if the retry delay has passed and the next attempt has not started.
    pub(super) fn is_due(&self) -> bool {
        self.phase == Phase::Due
    }

    /// Returns the timeout error of a call that is pending when its run ends, at the time `now`. If
    /// the call waits for a retry, the message contains the error of the last attempt.
    pub(super) fn cut_off(&self, now: Duration) -> StepError {
        match self.retry.as_ref().and_then(|retry| retry.error.as_ref()) {
            Some(error) if self.is_waiting() => StepError::new(
                ErrorKind::Timeout,
                format!("the run ended before it was tried again: {}", error.message),
            ),
            _ => no_answer(now.saturating_sub(self.since)),
        }
    }

    /// Returns the error of a call whose retry is rejected because of a limit. The message consists
    /// of `why`, the error of the limit, and the error of the last attempt.
    pub(super) fn not_again(&self, why: StepError) -> StepError {
        match self.retry.as_ref().and_then(|retry| retry.error.as_ref()) {
            Some(last) => {
                let message = format!("{}; before that: {}", why.message, last.message);
                StepError { message, ..why }
            }
            None => why,
        }
    }

    /// Returns the kind of the last attempt's error, such as `timeout`. Returns `None` if no
    /// attempt has failed.
    pub(super) fn failed_before(&self) -> Option<&'static str> {
        let error = self.retry.as_ref()?.error.as_ref()?;
        Some(error.kind.name())
    }

    /// Returns the outcome of a call whose current attempt timed out at the time `now`.
    pub(super) fn late(&self, now: Duration) -> Outcome {
        Outcome::answered(self.begun, now, Err(no_answer(self.timeout)))
    }
}

// === impl Retry ===

impl Retry {
    /// Returns the delay before the next attempt. `attempts` is the number of failed attempts.
    ///
    /// The delay is a random value between zero and [`longest_wait`](Self::longest_wait), so that
    /// calls that failed at the same time are not retried at the same time.
    fn wait(self, attempts: u32, random: &mut Rng) -> Duration {
        let longest = self.longest_wait(attempts);
        let nanoseconds = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(random.u64(0..=nanoseconds))
    }

    /// Returns the maximum delay before the next attempt: `delay` after the first failed attempt,
    /// twice as long after each further one, and at most `max_delay`.
    pub(super) fn longest_wait(self, attempts: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
        self.delay.saturating_mul(doubled).min(self.max_delay)
    }
}

/// Returns the error of a tool call that timed out after `within`.
pub(super) fn no_answer(within: Duration) -> StepError {
    // Rounded, so that error messages do not show durations such as `4.999812s`: a step may start
    // some time after its run.
    let unit = if within < Duration::from_secs(1) { 1_000 } else { 10_000 };
    let micros = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
    let within = Duration::from_micros(micros.saturating_add(unit / 2) / unit * unit);
    StepError::new(ErrorKind::Timeout, format!("no answer within {within:?}"))
}

// === impl Outcome ===

impl Outcome {
    /// Creates the outcome of a single tool call. `since` and `at` are its start and end, as
    /// durations since the start of the run.
    #[inline]
    pub(super) fn answered(
        since: Duration,
        at: Duration,
        result: Result<ToolResult, StepError>,
    ) -> Self {
        let (status, result, error) = match result {
            Ok(result) if result.is_error == Some(true) => {
                let error = StepError::new(ErrorKind::Tool, failure_text(&result));
                (Status::Failed, Some(result), Some(error))
            }
            Ok(result) => (Status::Completed, Some(result), None),
            Err(error) => (error.status(), None, Some(error)),
        };
        Self { result, ..Self::ended(since, at, status, error) }
    }

    /// Creates the outcome of a step without a tool result, such as a computed value. `since` and
    /// `at` are its start and end, as durations since the start of the run.
    #[inline]
    pub(super) fn ended(
        since: Duration,
        at: Duration,
        status: Status,
        error: Option<StepError>,
    ) -> Self {
        // Within the first millisecond of the run, all times in milliseconds are 0, and need not be
        // computed.
        let is_soon = at < Duration::from_millis(1);
        let of = |duration| if is_soon { 0 } else { milliseconds(duration) };
        Self {
            status,
            result: None,
            record: None,
            error: error.map(Box::new),
            site: None,
            attempts: 1,
            started_ms: of(since),
            duration_ms: of(at.saturating_sub(since)),
        }
    }
}

/// Returns the error message of an error result of a tool. If the result has no text, returns a
/// string from its structured content, such as the member `message`.
fn failure_text(result: &CallToolResult) -> String {
    let texts = step_output::texts(result);
    if !texts.trim().is_empty() {
        return texts;
    }
    let structured = result.structured_content.as_ref();
    let text = |path| structured?.pointer(path)?.as_str().filter(|text| !text.trim().is_empty());
    let message = ["/message", "/error/message", "/error", "/text"].into_iter().find_map(text);
    message.unwrap_or("the tool failed without an error message").to_owned()
}
