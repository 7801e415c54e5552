//! The time to suspend a run and to resume it: `put` and `take` of its state.
//!
//! ```sh
//! cargo bench -p benches --bench store             # everything, half a minute
//! cargo bench -p benches --bench store -- sealed   # the benchmarks whose names contain this
//! ```
//!
//! States are of 1 KiB for each step whose output is kept. The time per byte should not grow.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::FutureExt;
use mcp_composite::store::{MemoryStore, SealedStore, SignedStore, Store};
use serde_json::{Value, json};

criterion_group!(benches, put_and_take);
criterion_main!(benches);

fn put_and_take(criterion: &mut Criterion) {
    let signed = SignedStore::ephemeral().max_item_bytes(usize::MAX);
    let sealed = SealedStore::ephemeral().max_item_bytes(usize::MAX);
    let memory = MemoryStore::for_runs();
    let stores: &[(&str, &dyn Store)] =
        &[("sealed", &sealed), ("signed", &signed), ("memory", &memory)];
    for (name, store) in stores {
        let mut group = criterion.benchmark_group(*name);
        for steps in [1, 10, 100, 1_000] {
            let state = state(steps);
            group.throughput(Throughput::Bytes(state.len() as u64));
            group.bench_with_input(BenchmarkId::from_parameter(steps), &state, |bencher, state| {
                bencher.iter_batched(
                    || state.clone(),
                    |state| {
                        let text = now(store.put(state, black_box(&[7; 32]), None));
                        now(store.take(&text, black_box(&[7; 32]), None))
                    },
                    BatchSize::SmallInput,
                );
            });
        }
        group.finish();
    }
}

/// Returns the result of a future that is ready at once.
fn now<T, E: std::fmt::Debug>(result: impl Future<Output = Result<T, E>>) -> T {
    result.now_or_never().expect("there is nothing to wait for").expect("the state is kept")
}

/// Returns the outputs of steps, as JSON.
fn state(steps: usize) -> Vec<u8> {
    let step = |step: usize| {
        let text = "What a tool has found, in words. ".repeat(30);
        json!({ "id": format!("step_{step}"), "status": "completed", "output": { "text": text } })
    };
    let steps: Vec<Value> = (0..steps).map(step).collect();
    json!({ "steps": steps }).to_string().into_bytes()
}
