//! Stub.
pub mod composite;
pub mod expr;
pub mod message;
