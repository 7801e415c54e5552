//! What is promised of security, each by a test that attacks it, as `docs/security.md`
//! lists it.

mod bounded;
mod hidden;
mod promises;
mod secret;
