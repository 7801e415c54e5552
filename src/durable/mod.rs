//! State that outlives a process: stores in Redis, and runs of tasks that Restate executes.

#[cfg(feature = "redis")]
pub mod redis;

#[cfg(feature = "restate")]
pub mod restate;
