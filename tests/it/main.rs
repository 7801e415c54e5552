//! Tests of the crate as its users see it.

#[cfg(feature = "config")]
mod config;
mod contract;
mod defects;
mod fan_out;
mod handler;
mod listing;
mod scripted;
mod serve;
mod support;
