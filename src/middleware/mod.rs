//! Building blocks for layers: rules for requests and replies, catalogs of tools, name patterns,
//! change notifications, and services that can be replaced at run time.

pub mod catalog;

pub mod changes;

pub mod intercept;

pub(crate) mod pattern_watch;

pub mod pattern;

pub mod reload;

pub(crate) mod response_future;
