//! Security guarantees, each with a test that attacks it, as listed in `src/guide/security.md`.

mod bounded;
mod hidden;
mod promises;
mod secret;
