//! The time to truncate a result, compared with writing it as JSON once.
//!
//! ```sh
//! cargo bench -p benches --bench truncate            # everything, a minute
//! cargo bench -p benches --bench truncate -- 20_MB   # what has this in its name
//! ```
//!
//! Truncating should take less than twice as long as writing, whatever the size, if little is kept;
//! a result that fits should take no longer than writing it. The kept part is copied: if it is half
//! of very many small members, that takes longer than writing them.

use std::{
    convert::Infallible,
    future::ready,
    hint::black_box,
    sync::{Arc, Mutex},
};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use mcp_composite::{
    message::{Reply, Request},
    truncate::TruncateLayer,
};
use rmcp::model::{CallToolResult, ContentBlock, ListToolsResult};
use serde_json::{Map, Value, json};
use tokio::runtime::Builder;
use tower::{Layer, Service, service_fn};

criterion_group!(benches, shorten);
criterion_main!(benches);

/// The size limit of the layer.
const LIMIT: usize = 64 * 1024;

fn shorten(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let rows =
        |rows: usize| json!({ "rows": (0..rows).map(row).collect::<Vec<_>>(), "total": rows });
    let results = [
        ("1_MB_of_rows", structured(rows(7_000))),
        ("20_MB_of_rows", structured(rows(140_000))),
        ("20_MB_of_rows_and_as_text", CallToolResult::structured(rows(70_000))),
        ("20_MB_of_numbers", structured(json!({ "n": vec![12_345_678; 2_200_000] }))),
        ("20_MB_of_text", text(20_000_000)),
        ("60_KB_that_fit", text(60_000)),
    ];
    let results = results.map(|(name, result)| (name, result, LIMIT));
    let members: Map<_, _> = (0..1_000_000).map(|key| (format!("k{key:07}"), key.into())).collect();
    let half = ("half_of_20_MB_of_members", structured(members.into()), 10_000_000);
    for (name, result, limit) in results.into_iter().chain([half]) {
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10);
        group.bench_function("write", |bencher| {
            bencher.iter(|| serde_json::to_vec(black_box(&result)).expect("JSON").len());
        });
        group.bench_function("shorten", |bencher| {
            bencher.iter_batched(
                || {
                    let reply = Arc::new(Mutex::new(Some(Reply::from(result.clone()))));
                    service_fn(move |request: Request| {
                        // The truncated result may have a schema, so the layer looks up its tool.
                        if request.lists_tools() {
                            let none = ListToolsResult::with_all_items(Vec::new());
                            return ready(Ok::<Reply, Infallible>(none.into()));
                        }
                        let reply = reply.lock().expect("nobody panics").take();
                        ready(Ok(reply.expect("there is one call")))
                    })
                },
                |server| {
                    let mut truncate = TruncateLayer::new().max_result_bytes(limit).layer(server);
                    runtime.block_on(truncate.call(Request::call_tool("rows")))
                },
                BatchSize::PerIteration,
            );
        });
        group.finish();
    }
}

fn row(row: usize) -> Value {
    let text = "What a tool has found, in words: \"this\" and that.\n".repeat(2);
    json!({ "id": row, "text": text, "ok": row.is_multiple_of(2) })
}

fn structured(value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(Vec::new());
    result.structured_content = Some(value);
    result
}

fn text(bytes: usize) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text("A line of a log.\n".repeat(bytes / 17))])
}
