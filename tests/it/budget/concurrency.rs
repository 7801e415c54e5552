//! Many concurrent calls, on several threads.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::task::{JoinSet, yield_now};

use super::*;

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A result that reports this cost.
    Answer(u64),
    Error,
    Refusal,
    Unavailable,
    NotSent,
    Panic,
    /// The run is dropped by its caller.
    Drop,
    /// It exceeds its timeout.
    Timeout,
}

const ENDS: [End; 9] = [
    End::Answer(3),
    End::Answer(0),
    End::Answer(9),
    End::Error,
    End::Refusal,
    End::Unavailable,
    End::NotSent,
    End::Panic,
    End::Drop,
];
/// The amount reserved for each call.
const ESTIMATE: u64 = 4;

/// The charge of a call, which is counted when it ends in any way.
struct Charge(Arc<AtomicU64>, u64);

impl Drop for Charge {
    fn drop(&mut self) {
        self.0.fetch_add(self.1, Ordering::Relaxed);
    }
}

/// Ends as the name of the tool says, after yielding to others.
async fn server(request: Request, charged: Arc<AtomicU64>) -> Result<Reply, tower::BoxError> {
    // Abandoned, unless it ends otherwise.
    let mut charge = Charge(charged, ESTIMATE);
    let name = request.tool_call().map(|call| call.name.to_string()).unwrap_or_default();
    let run: usize = name.parse()?;
    for _ in 0..run % 5 {
        yield_now().await;
    }
    match end(run) {
        End::Answer(cost) => {
            charge.1 = cost;
            Ok(costing(cost).into())
        }
        End::Error => Ok(rmcp::ErrorData::internal_error("broken", None).into()),
        End::Refusal => {
            charge.1 = 0;
            Ok(Reply::unknown_tool(name))
        }
        End::Unavailable => Err("gone".into()),
        End::NotSent => {
            charge.1 = 0;
            Err(BackendError::new("far", BackendErrorKind::NotConnected).into())
        }
        End::Panic => panic!("as it should"),
        End::Drop | End::Timeout => std::future::pending().await,
    }
}

/// Returns the outcome of a run; deterministic, so that a failure can be reproduced.
fn end(run: usize) -> End {
    match run % 11 {
        10 => End::Timeout,
        _ => ENDS[run.wrapping_mul(2_654_435_761) / 7 % ENDS.len()],
    }
}

/// Calls a run.
async fn make<S>(service: S, run: usize)
where
    S: Service<Request, Response = Reply>,
{
    let mut call = Box::pin(service.oneshot(call(&run.to_string(), json!(null))));
    match end(run) {
        End::Timeout => drop(tokio::time::timeout(Duration::ZERO, &mut call).await),
        End::Drop => {
            // A denial comes at once.
            for _ in 0..=run % 3 {
                if futures::poll!(&mut call).is_ready() {
                    break;
                }
                yield_now().await;
            }
        }
        _ => drop(call.await),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn budget_is_exact_after_many_runs_with_different_endings() {
    // Enough for some, so that others are denied during calls and after them.
    for limit in [200, 10_000, 1_000_000] {
        let budget = Budget::new("cost", Unit::Cost, limit);
        let (layer, budgets) = charging(&budget);
        let layer = layer.cost(Cost::new(Selection::default(), ESTIMATE).actual_at("/_meta/cost"));
        let charged = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&charged);
        let service = layer.layer(service_fn(move |request| server(request, Arc::clone(&counted))));
        let mut runs = JoinSet::new();
        let mut aborted = Vec::new();
        for run in 0..10_000 {
            let handle = runs.spawn(make(service.clone(), run));
            if run % 13 == 0 {
                aborted.push(handle);
            }
            if run % 100 == 0 {
                aborted.drain(..).for_each(|handle| handle.abort());
                yield_now().await;
            }
        }
        while runs.join_next().await.is_some() {}
        let charged = charged.load(Ordering::Relaxed);
        assert_eq!(budgets.remaining(&budget, None), limit.saturating_sub(charged));
        assert!(charged > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_calls_never_exceed_the_budget() {
    for limit in [1, 2] {
        let running = Arc::new(AtomicU64::new(0));
        let most = Arc::new(AtomicU64::new(0));
        let server = {
            let (running, most) = (running.clone(), most.clone());
            service_fn(move |_: Request| {
                let (running, most) = (running.clone(), most.clone());
                async move {
                    most.fetch_max(1 + running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                    yield_now().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    // Not charged, so that the budget stays the same.
                    Ok::<_, Infallible>(Reply::unknown_tool("t"))
                }
            })
        };
        let service = charging(&calls(limit)).0.layer(server);
        let mut runs = JoinSet::new();
        for _ in 0..2_000 {
            runs.spawn(service.clone().oneshot(call("t", json!(null))));
        }
        let replies = runs.join_all().await;
        assert_eq!(replies.len(), 2_000);
        assert!((1..=limit).contains(&most.load(Ordering::SeqCst)));
    }
}
