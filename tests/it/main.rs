//! Tests of the crate as its users see it.

#[cfg(feature = "config")]
mod config;
mod contract;
mod defects;
mod fan_out;
mod listing;
mod scripted;
