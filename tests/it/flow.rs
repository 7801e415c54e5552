//! The check that composites use labeled data only where it is allowed.

#[cfg(feature = "config")]
mod corpus;
mod policy;
#[cfg(feature = "cli")]
mod program;
mod properties;
