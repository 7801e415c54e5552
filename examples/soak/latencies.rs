//! A histogram of latencies.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Buckets per doubling, so latencies are accurate to about six percent.
const STEPS: f64 = 12.0;
/// From a microsecond to an hour.
const BUCKETS: usize = 12 * 32;

/// The number of measurements per bucket.
#[derive(Debug)]
pub(crate) struct Latencies {
    counts: Vec<AtomicU64>,
    longest: AtomicU64,
}

// === impl Latencies ===

impl Latencies {
    pub(crate) fn new() -> Self {
        Self {
            counts: (0..BUCKETS).map(|_| AtomicU64::default()).collect(),
            longest: AtomicU64::default(),
        }
    }

    pub(crate) fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.longest.fetch_max(micros, Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is small")]
        let bucket = ((micros.max(1) as f64).log2() * STEPS) as usize;
        self.counts[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the upper bound of the bucket below which this share of the latencies is.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let counts: Vec<_> =
            self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let wanted = counts.iter().sum::<u64>() as f64 * share;
        let mut seen = 0;
        let bucket = counts.iter().position(|count| {
            seen += count;
            seen as f64 >= wanted
        });
        let micros = 2_f64.powf((bucket.unwrap_or_default() as f64 + 1.0) / STEPS);
        Duration::from_secs_f64(micros / 1e6)
    }

    #[allow(dead_code, reason = "the soak counts calls elsewhere")]
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns the ratio of the latencies of a bucket to those of the previous one.
    #[allow(dead_code, reason = "the soak compares no latencies")]
    pub(crate) fn resolution() -> f64 {
        2_f64.powf(1.0 / STEPS)
    }

    pub(crate) fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Ordering::Relaxed))
    }
}
