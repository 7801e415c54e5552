//! Integration tests of the crate's public API.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]
#![expect(clippy::too_many_lines, reason = "tests have long tables of cases")]

mod advertise;
mod alias;
mod approvals;
#[cfg(feature = "cli")]
mod authentication;
#[cfg(feature = "http")]
mod authorization;
#[cfg(feature = "http")]
mod backend_auth;
#[cfg(all(feature = "config", feature = "stdio"))]
mod backends;
mod budget;
mod bypass;
#[cfg(feature = "cache")]
mod cache;
mod cancelled_calls;
mod cancelled_runs;
mod changes;
#[cfg(feature = "config")]
mod config;
#[cfg(feature = "http")]
mod connections;
mod contract;
mod costs;
mod defects;
mod end_to_end;
mod fan_out;
mod faults;
mod filter;
mod floors;
mod flow;
mod forms;
mod from_fn;
mod functions;
#[cfg(all(feature = "config", feature = "normalize"))]
mod fuzz;
#[cfg(all(feature = "config", feature = "stdio"))]
mod gateway;
mod handler;
#[cfg(feature = "cli")]
mod hide_the_parts;
#[cfg(unix)]
mod hostile;
mod http;
#[cfg(feature = "cli")]
mod human_approval;
#[cfg(feature = "config")]
mod include;
#[path = "../../examples/soak/invariants.rs"]
mod invariants;
#[cfg(all(target_os = "linux", feature = "cli"))]
mod latency;
#[cfg(feature = "stdio")]
mod leaks;
mod limit;
mod listing;
#[cfg(feature = "cli")]
mod lock;
#[cfg(feature = "remote")]
mod logs;
mod malformed;
#[cfg(feature = "cli")]
mod matrix;
mod mermaid;
#[cfg(all(feature = "normalize", feature = "rig-compose"))]
mod meters;
#[cfg(feature = "metrics")]
mod metrics;
mod missing_tools;
#[cfg(feature = "normalize")]
mod normalize;
mod observers;
#[cfg(all(unix, feature = "cli"))]
mod operations;
#[cfg(feature = "cli")]
mod page;
mod pattern;
mod poll_tasks;
mod preview;
#[cfg(feature = "cli")]
mod program;
mod programs;
#[cfg(all(feature = "config", feature = "remote"))]
mod progress;
mod redact;
#[cfg(feature = "http")]
mod relay;
#[cfg(feature = "cli")]
#[path = "../../examples/replicas/releases.rs"]
mod releases;
mod reload;
#[cfg(feature = "stdio")]
mod remote;
#[cfg(feature = "cli")]
mod replicas;
#[cfg(feature = "config")]
mod resumption;
#[cfg(feature = "rig-compose")]
mod rig_compose;
mod router;
mod run_limits;
mod runtimes;
mod scripted;
mod security;
mod serve;
#[cfg(feature = "remote")]
mod skills;
mod soak;
mod stack;
mod states;
mod steps;
mod support;
mod tasks;
#[cfg(all(unix, feature = "cli"))]
mod telemetry;
mod testing;
#[cfg(feature = "toolhive")]
mod toolhive;
mod traces;
mod truncate;
mod validate;
mod variables;
#[cfg(feature = "cli")]
mod view_endpoints;
#[cfg(all(feature = "config", feature = "stdio"))]
mod views;
#[cfg(all(unix, feature = "cli"))]
mod watch;
#[path = "../../examples/soak/wire.rs"]
mod wire;
#[cfg(feature = "config")]
mod workflows;
