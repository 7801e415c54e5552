//! Stub.
pub mod adapter;
pub mod catalog;
pub mod composite;
#[cfg(feature = "config")]
pub mod config;
mod engine;
pub mod expr;
pub mod intercept;
pub mod message;
