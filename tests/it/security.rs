//! Security guarantees, each with a test that attacks it, as listed in `docs/security.md`.

mod bounded;
mod hidden;
mod promises;
mod secret;
