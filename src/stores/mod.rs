//! Stores of suspended runs and of results.

pub mod results;

pub(crate) mod shelf;

pub mod state;
