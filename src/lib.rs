//! Stub.
pub mod adapter;
pub mod composite;
pub mod expr;
pub mod message;
