//! Servers that keep state and continue runs after a process has ended.

#[cfg(feature = "redis")]
pub mod redis;

#[cfg(feature = "restate")]
pub mod restate;
