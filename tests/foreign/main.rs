//! The gateway between third-party servers and clients, as separate processes, over real pipes and
//! sockets.
//!
//! `cargo test --all-features --test foreign` installs them and runs the tests. Requires Node, npm,
//! Python and nginx; see `README.md` here.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

mod backends;
mod cancellation;
mod changes;
mod check;
mod clients;
mod connection_loss;
mod elicitation;
mod gateway;
mod http_backend;
mod lock;
mod mermaid;
#[path = "../restate/ports.rs"]
mod ports;
mod processes;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../it/programs.rs"]
mod programs;
mod progress;
mod protocol_versions;
#[path = "../../examples/replicas/releases.rs"]
mod releases;
mod replicas;
mod servers;
mod support;
mod tasks;
