//! Asks the questions of a run that a durable engine executes.

use std::{future::poll_fn, sync::Arc, time::Duration};

use crate::{
    engine::{
        plan::Plan,
        question::{Question, Response, Responses, requests},
        state::RunState,
    },
    message::journal::{Journal, JournalEvent},
};

/// The pause after which a wait without a deadline is renewed.
const NO_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// Asks the open questions of `run` through the journal, and adds the answers to it. Returns `None`
/// if the call was cancelled.
pub(super) async fn answer_in_journal(
    journal: &Arc<dyn Journal>,
    plan: &Plan,
    mut run: Box<RunState>,
) -> Option<Box<RunState>> {
    // A tool that asks nothing only wants to be called again.
    if run.question_count() > 0 {
        let responses = ask(journal, plan, &run).await?;
        run.answer(plan, responses);
    }
    Some(run)
}

/// Asks all open questions of `run`. Waits until each of them is answered or
/// its deadline has passed. Returns `None` if the call was cancelled.
async fn ask(journal: &Arc<dyn Journal>, plan: &Plan, run: &RunState) -> Option<Responses> {
    let mut open = run.questions(plan);
    journal.ask(requests(open.clone()));
    let mut responses = Responses::new();
    while !open.is_empty() {
        let now = journal.unix_ms();
        let left = |question: &Question| question.left_at(now);
        let next = open.values().filter_map(left).min().unwrap_or(NO_DEADLINE);
        let due = journal.now() + next;
        match poll_fn(|cx| journal.poll_next(due, cx)).await {
            JournalEvent::Cancelled => return None,
            JournalEvent::Answered { key, answer } => {
                if open.remove(&key).is_some() {
                    responses.insert(key, Response::Answer(answer));
                }
            }
            // The output of a call that was aborted before the questions.
            JournalEvent::Ended { .. } => (),
            JournalEvent::Due => {
                let now = journal.unix_ms();
                open.retain(|key, question| {
                    let is_late = question.left_at(now) == Some(Duration::ZERO);
                    if is_late {
                        responses.insert(key.clone(), Response::Late);
                    }
                    !is_late
                });
            }
        }
    }
    journal.withdraw();
    Some(responses)
}
