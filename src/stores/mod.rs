//! Stores of suspended runs and of results.

pub mod results;

pub(crate) mod expiring_store;

pub mod state;
