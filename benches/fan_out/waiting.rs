//! Fan-outs over targets that wait or compute, on two threads, compared with a `JoinSet` by hand.
//!
//! The slowest target is the lower bound of a run, so each run is compared with one call of a
//! target. If one target computes, the time at which the others end is measured.

#![expect(clippy::print_stdout, reason = "the table is the output")]
#![expect(clippy::disallowed_types, reason = "what is measured is real time")]

use std::{
    convert::Infallible,
    hint,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, FanOut},
    message::{Reply, Request},
};
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::{Builder, Runtime},
    sync::Mutex as AsyncMutex,
    task::JoinSet,
};
use tower::{Layer, Service, ServiceExt};

use crate::leaf::{FAN_OUT, Leaf, SHORT_TEXT, call, small_arguments};

const WIDTH: usize = 8;
/// The time that a target waits.
const WAIT: Duration = Duration::from_millis(1);
/// The time that a target computes.
const COMPUTING: Duration = Duration::from_millis(20);
/// The target that computes.
const COMPUTES: &str = "tool_3";

/// A service whose tools take some time.
#[derive(Clone)]
struct Slow {
    leaf: Leaf,
    work: Work,
    /// The times at which the tools that do not compute ended.
    ended: Arc<Mutex<Vec<Instant>>>,
}

#[derive(Clone)]
enum Work {
    Sleep,
    /// A round trip to a server that waits before it answers.
    Socket(Arc<[AsyncMutex<tokio::net::TcpStream>]>),
    /// No waiting; one tool computes.
    Compute,
}

/// Measures the cases in turn, and prints a row for each.
pub(crate) fn run(is_selected: impl Fn(&str) -> bool) {
    let names = ["waits/sleep", "waits/socket", "computes"];
    if !names.iter().any(|name| is_selected(name)) {
        return;
    }
    println!("\n| case | one target | `JoinSet` | ratio | ours | ratio |");
    println!("|---|---:|---:|---|---:|---|");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    for name in names.into_iter().filter(|name| is_selected(name)) {
        let work = match name {
            "waits/sleep" => Work::Sleep,
            "waits/socket" => Work::Socket(connections(&runtime)),
            _ => Work::Compute,
        };
        let leaf = Leaf::new(WIDTH, SHORT_TEXT);
        let slow = Slow { leaf, work, ended: Arc::default() };
        if matches!(slow.work, Work::Compute) {
            computes(name, &slow, &runtime);
        } else {
            waits(name, &slow, &runtime);
        }
    }
}

/// Prints the times of runs compared with one call.
fn waits(name: &str, slow: &Slow, runtime: &Runtime) {
    let (composite, targets) = (composite(slow), slow.leaf.names());
    let mut times = [(); 3].map(|()| Vec::new());
    for _ in 0..400 {
        let mut note = |case: usize, work: BoxFuture<'static, ()>| {
            times[case].push(in_task(runtime, work));
        };
        note(0, Box::pin(target(slow.clone(), targets[0].clone())));
        note(1, Box::pin(join_set(slow.clone(), targets.clone())));
        note(2, Box::pin(run_composite(composite.clone())));
    }
    let [one, by_hand, composite] = times.map(median);
    let ratio = |time: f64| format!("{:.3} × one", time / one);
    let (by_hand_ratio, composite_ratio) = (ratio(by_hand), ratio(composite));
    println!(
        "| `{name}` | {one:.0} µs | {by_hand:.0} µs | {by_hand_ratio} | {composite:.0} µs | \
         {composite_ratio} |"
    );
}

/// Prints when the other targets end while one computes.
fn computes(name: &str, slow: &Slow, runtime: &Runtime) {
    let (composite, targets) = (composite(slow), slow.leaf.names());
    let mut times = [(); 2].map(|()| Vec::new());
    // The first call finds out which target computes.
    in_task(runtime, Box::pin(run_composite(composite.clone())));
    for _ in 0..60 {
        let mut note = |case: usize, work: BoxFuture<'static, ()>| {
            slow.ended.lock().expect("nothing panics").clear();
            let took = in_task(runtime, work);
            let end = Instant::now();
            let ended = slow.ended.lock().expect("nothing panics");
            assert_eq!(ended.len(), WIDTH - 1, "all others have ended");
            let last = *ended.iter().max().expect("there are some");
            times[case].push(took.saturating_sub(end - last));
        };
        note(0, Box::pin(join_set(slow.clone(), targets.clone())));
        note(1, Box::pin(run_composite(composite.clone())));
    }
    let [by_hand, composite] = times.map(median);
    let ratio = composite / by_hand;
    println!(
        "| `{name}`, the others | | {by_hand:.0} µs | | {composite:.0} µs | \
         {ratio:.2} × `JoinSet` |"
    );
}

/// Returns the time to run this in a task.
fn in_task(runtime: &Runtime, work: BoxFuture<'static, ()>) -> Duration {
    // All threads are idle before, and timers are at a random part of their tick.
    thread::sleep(WAIT + Duration::from_micros(fastrand::u64(0..1_000)));
    let start = Instant::now();
    runtime.block_on(async { runtime.spawn(work).await }).expect("nothing panics here");
    start.elapsed()
}

fn composite(
    slow: &Slow,
) -> impl Service<Request, Response = Reply, Error = Infallible, Future: Send> + Clone + Send + 'static
{
    let targets = slow.leaf.names().to_vec();
    let composite =
        CompositeTool::new(FAN_OUT, "Calls all tools", FanOut::new(targets).report(false));
    CompositeLayer::new([composite]).expect("the composite is sound").layer(slow.clone())
}

async fn run_composite<S>(composite: S)
where
    S: Service<Request, Response = Reply, Error = Infallible>,
{
    let Ok(reply) = composite.oneshot(call(FAN_OUT, small_arguments())).await;
    let result = reply.tool_result().expect("the call succeeds");
    assert_eq!(result.is_error, Some(false));
}

async fn target(slow: Slow, tool: String) {
    let Ok(reply) = slow.oneshot(CallToolRequestParams::new(tool).into()).await;
    assert!(reply.tool_result().is_some());
}

/// A task for each target.
async fn join_set(slow: Slow, targets: Arc<[String]>) {
    let mut tasks = JoinSet::new();
    for tool in targets.iter() {
        tasks.spawn(target(slow.clone(), tool.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("nothing panics here");
    }
}

/// Connections to a server that answers each byte a moment later.
fn connections(runtime: &Runtime) -> Arc<[AsyncMutex<tokio::net::TcpStream>]> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let connect = |_| {
        let near = TcpStream::connect(address).expect("the server listens");
        let (mut far, _) = listener.accept().expect("there is a client");
        near.set_nonblocking(true).expect("it is a socket");
        for stream in [&near, &far] {
            stream.set_nodelay(true).expect("it is a socket");
        }
        thread::spawn(move || {
            let mut byte = [0];
            while far.read_exact(&mut byte).is_ok() {
                thread::sleep(WAIT);
                if far.write_all(&byte).is_err() {
                    return;
                }
            }
        });
        let _inside = runtime.enter();
        AsyncMutex::new(tokio::net::TcpStream::from_std(near).expect("it does not block"))
    };
    (0..WIDTH).map(connect).collect()
}

/// In microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

// === impl Slow ===

impl Slow {
    async fn work(self, tool: String) {
        match &self.work {
            Work::Sleep => tokio::time::sleep(WAIT).await,
            Work::Socket(connections) => {
                let place: usize = tool["tool_".len()..].parse().expect("it has a number");
                let mut connection = connections[place].lock().await;
                let mut byte = [7];
                connection.write_all(&byte).await.expect("the server is there");
                connection.read_exact(&mut byte).await.expect("the server answers");
            }
            Work::Compute if tool == COMPUTES => {
                let start = Instant::now();
                while start.elapsed() < COMPUTING {
                    hint::spin_loop();
                }
                return;
            }
            Work::Compute => {}
        }
        self.ended.lock().expect("nothing panics").push(Instant::now());
    }
}

impl Service<Request> for Slow {
    type Response = Reply;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Reply, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.leaf.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let Some(call) = request.tool_call() else { return Box::pin(self.leaf.call(request)) };
        let (slow, tool) = (self.clone(), call.name.to_string());
        Box::pin(async move {
            slow.work(tool).await;
            Ok(CallToolResult::success(vec![ContentBlock::text(SHORT_TEXT)]).into())
        })
    }
}
