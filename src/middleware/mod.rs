//! The building blocks of layers.

pub mod catalog;

pub mod changes;

pub mod intercept;

pub(crate) mod pattern_watch;

pub mod pattern;

pub mod reload;
