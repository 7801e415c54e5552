//! The check that composites use labeled data only where it is allowed, and the labels of results
//! at run time.

#[cfg(feature = "config")]
mod corpus;
mod policy;
#[cfg(feature = "cli")]
mod program;
mod properties;
mod session;
