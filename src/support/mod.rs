//! Utilities that several modules use, for example for URIs, names and warnings.

pub(crate) mod warnings;

pub(crate) mod error_chain;

pub(crate) mod log_pause;
pub(crate) mod mutex;

pub(crate) mod fingerprint;

pub(crate) mod named;

pub(crate) mod names;

pub(crate) mod suggest;

pub(crate) mod pagination;

pub(crate) mod random;

pub(crate) mod readiness;

pub(crate) mod json_pointer;

pub(crate) mod json_size;

pub(crate) mod text_position;

pub(crate) mod uri;

#[cfg(any(feature = "config", feature = "http"))]
pub(crate) mod url;
