//! Tests of the crate as its users see it.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

mod advertise;
mod alias;
#[cfg(all(feature = "config", feature = "stdio"))]
mod backends;
mod changes;
#[cfg(feature = "config")]
mod config;
mod contract;
mod defects;
mod end_to_end;
mod fan_out;
mod filter;
mod from_fn;
#[cfg(all(feature = "config", feature = "stdio"))]
mod gateway;
mod handler;
#[cfg(all(feature = "config", feature = "http", feature = "stdio"))]
mod hide_the_parts;
mod http;
mod include;
mod limit;
mod listing;
mod malformed;
#[cfg(all(feature = "config", feature = "http", feature = "stdio"))]
mod matrix;
mod pattern;
mod preview;
mod programs;
mod reload;
#[cfg(feature = "stdio")]
mod remote;
mod router;
mod scripted;
mod serve;
mod stack;
mod steps;
mod support;
mod testing;
mod validate;
#[cfg(all(unix, feature = "config", feature = "http", feature = "stdio"))]
mod watching;
mod ways;
#[cfg(feature = "config")]
mod workflows;
