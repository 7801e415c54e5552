//! Building blocks for layers: rules, catalogs of tools, patterns, change notifications and
//! reloading.

pub mod catalog;

pub mod changes;

pub mod intercept;

pub(crate) mod pattern_watch;

pub mod pattern;

pub mod reload;
