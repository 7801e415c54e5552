//! The parts that layers are made of.

pub mod catalog;

pub mod changes;

pub mod intercept;

pub(crate) mod pattern_watch;

pub mod pattern;

pub mod reload;
