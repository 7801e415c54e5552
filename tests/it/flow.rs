//! The check that composites use labeled data only where it is allowed.

mod policy;
mod properties;
