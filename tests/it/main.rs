//! Tests of the crate as its users see it.

mod contract;
mod defects;
mod fan_out;
mod listing;
mod scripted;
