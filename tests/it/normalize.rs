//! Tool calls of model providers.

mod dispatch;
mod encoding;
mod naming;
mod parsing;
