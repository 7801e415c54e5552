//! Stub.
pub mod catalog;
pub mod composite;
mod engine;
pub mod expr;
pub mod intercept;
pub mod message;
