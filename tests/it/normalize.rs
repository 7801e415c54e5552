//! Tool calls of model providers.

mod dispatching;
mod encoding;
mod naming;
mod reading;
