//! Small helpers that know nothing of composites.

pub(crate) mod complaints;

pub(crate) mod fingerprint;

pub(crate) mod names;

pub(crate) mod near;

pub(crate) mod pages;

pub(crate) mod random;

pub(crate) mod room;

pub(crate) mod uri;

#[cfg(any(feature = "config", feature = "http"))]
pub(crate) mod url;
