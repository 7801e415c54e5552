//! Security guarantees, each with a test that attacks it, as listed in `src/guide/security.md`.

mod bounded;
mod guarantees;
mod hidden;
mod secret;
