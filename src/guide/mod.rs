//! Guides for tasks from the first composite to a gateway with several replicas.
//!
//! The guides describe tasks that involve several modules of this crate. For a task that involves a
//! single module, see the docs of the module. The modules below contain only text.
//!
//! | task | guide |
//! |---|---|
//! | write a configuration file step by step | [tutorial] |
//! | choose among fan-outs, pipelines and workflows | [composites] |
//! | find a workflow for a task | [cookbook] |
//! | look up references, filters and tests | [expressions] |
//! | understand the layers and their order | [the order of the layers](crate::stack#the-order-of-the-layers) |
//! | connect existing servers | [backends] |
//! | install the gateway and connect clients | [deployment] |
//! | rename tools and fix arguments | [aliases] |
//! | ask the user for approval or input | [elicitation] |
//! | run long composites in the background | [`tasks`](crate::tasks) |
//! | limit the usage of calls and the size of results | [choosing a limit](crate::budget#choosing-a-limit) |
//! | limit calls per time and caller | [rate_limits] |
//! | cache the results of read-only tools | [caching] |
//! | run several gateways behind a load balancer | [several replicas](crate::store#several-replicas) |
//! | observe runs with spans and metrics | [`trace`](crate::trace) |
//! | draw a composite or a run as a flowchart | [`mermaid`](crate::mermaid) |
//! | test a configuration file | [testing] |
//! | write a rule, a hook or a layer | [writing_a_layer] |
//! | look up an error message | [troubleshooting] |
//! | look up a key of a configuration file | [configuration] |
//! | look up a default or a limit | [limits] |
//! | understand the cost of calls | [performance] |
//! | review the security model | [security] |
//! | prove that private data stays private | [flow] |
//! | read or change the crate | [architecture] |
//! | migrate from mcp-proxy | [from_mcp_proxy] |
//! | migrate from ToolHive | [from_toolhive] |
//! | migrate from AgentOS or `rig-compose` | [from_agentos_and_rig] |
//!
//! For examples of all settings in configuration files, see [`config`](crate::config).
//!
//! # Examples
//!
//! Add a composite tool to an existing server:
//!
//! ```
//! use mcp_composite::{adapter::ServeService, composite::{CompositeLayer, CompositeTool}};
//! use rmcp::{ServerHandler, ServiceExt, tool, tool_handler, tool_router};
//!
//! struct Shop;
//!
//! #[tool_router]
//! impl Shop {
//!     #[tool(description = "The price")]
//!     fn price(&self) -> String { "5 €".into() }
//!     #[tool(description = "How many there are")]
//!     fn stock(&self) -> String { "12".into() }
//! }
//!
//! #[tool_handler]
//! impl ServerHandler for Shop {}
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let offer = CompositeTool::fan_out("offer", "Price and stock", ["price", "stock"]);
//! let server = ServeService::wrap(Shop, CompositeLayer::new([offer])?);
//!
//! let (near, far) = tokio::io::duplex(4096);
//! let (server, client) = tokio::join!(server.serve(near), ().serve(far));
//! let (_server, client) = (server?, client?);
//! let names: Vec<_> = client.list_all_tools().await?.into_iter().map(|tool| tool.name).collect();
//! assert_eq!(names, ["price", "stock", "offer"]);
//! # Ok(())
//! # }
//! ```

/// Writing a configuration file step by step, from two backends to a gateway with approval and
/// limits.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("tutorial.md")]
pub mod tutorial {}

/// The kinds of composites: fan-outs, pipelines and workflows.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("composites.md")]
pub mod composites {}

/// Tested workflows for common tasks, by problem.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("cookbook.md")]
pub mod cookbook {}

/// The references, templates, filters and tests that expressions can contain.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("expressions.md")]
pub mod expressions {}

/// Connecting one or several backends: in the same process, as child processes, or over HTTP.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("backends.md")]
pub mod backends {}

/// Running the gateway: as a process that a client starts, under systemd, or behind a reverse
/// proxy.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("deployment.md")]
pub mod deployment {}

/// Renaming tools and fixing their arguments.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("aliases.md")]
pub mod aliases {}

/// Limiting the number of calls per time: for each caller, for a tool, or for all callers together.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("rate_limits.md")]
pub mod rate_limits {}

/// Caching the results of read-only tools.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("caching.md")]
pub mod caching {}

/// All sections and keys of a configuration file.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("configuration.md")]
pub mod configuration {}

/// Completion and error messages for configuration files in editors, based on a JSON Schema.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("editor_support.md")]
pub mod editor_support {}

/// Asking the user in a step of a composite, and continuing with the answer.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("elicitation.md")]
pub mod elicitation {}

/// Testing with scripted servers and paused time.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("testing.md")]
pub mod testing {}

/// Writing your own rules, hooks and services, and adding them to the stack.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("writing_a_layer.md")]
pub mod writing_a_layer {}

/// Error messages, with their causes and solutions.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("troubleshooting.md")]
pub mod troubleshooting {}

/// The overhead of a fan-out, and the conditions under which its branches run as separate tasks.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("performance.md")]
pub mod performance {}

/// All defaults and limits, and the behavior when a limit is exceeded.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("limits.md")]
pub mod limits {}

/// The security model: the guarantees, the assumed attackers, and the test of each guarantee.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("security.md")]
pub mod security {}

/// Flow labels, which mark the sources of private and untrusted data, and the check that composites
/// send this data only to allowed places.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("flow.md")]
pub mod flow {}

/// The modules of the crate, and the dependencies that are allowed between them.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("architecture.md")]
pub mod architecture {}

/// Migrating from mcp-proxy: the mapping of configuration keys, and the intentional differences.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("from_mcp_proxy.md")]
pub mod from_mcp_proxy {}

/// Migrating from the composite tools of ToolHive's vMCP.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("from_toolhive.md")]
pub mod from_toolhive {}

/// Migrating from the composable tools of AgentOS and from `rig-compose`.
///
#[doc = include_str!("links.md")]
#[doc = include_str!("from_agentos_and_rig.md")]
pub mod from_agentos_and_rig {}

#[cfg(test)]
mod tests;
