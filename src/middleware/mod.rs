//! Building blocks for layers: rules for requests, catalogs of tools, name patterns, change
//! notifications and reloading.

pub mod catalog;

pub mod changes;

pub mod intercept;

pub(crate) mod pattern_watch;

pub mod pattern;

pub mod reload;
