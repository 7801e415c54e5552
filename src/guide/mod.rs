//! Guides, from the first composite to several gateways.
//!
//! The guides describe tasks that involve several modules. For a single part, see the docs of its
//! module. The modules here contain no code.
//!
//! | task | guide |
//! |---|---|
//! | choose among fan-outs, pipelines and workflows | [composites] |
//! | look up references, filters and tests | [expressions] |
//! | understand the layers and their order | [the order of the layers](crate::stack#the-order-of-the-layers) |
//! | connect existing servers | [backends] |
//! | install the gateway and connect clients | [deployment] |
//! | ask the user for approval or input | [elicitation] |
//! | limit the usage of calls and the size of results | [choosing a limit](crate::budget#choosing-a-limit) |
//! | run several gateways behind a load balancer | [several replicas](crate::store#several-replicas) |
//! | observe runs with spans and metrics | [`trace`](crate::trace) |
//! | draw a composite or a run as a flowchart | [`mermaid`](crate::mermaid) |
//! | test a file | [testing] |
//! | write a rule, a hook or a layer | [writing_a_layer] |
//! | look up an error message | [troubleshooting] |
//! | look up a default or a limit | [limits] |
//! | understand the cost of calls | [performance] |
//! | review the security model | [security] |
//! | read or change the crate | [architecture] |
//! | migrate from mcp-proxy | [from_mcp_proxy] |
//! | migrate from ToolHive | [from_toolhive] |
//! | migrate from AgentOS or `rig-compose` | [from_agentos_and_rig] |
//!
//! For a reference of configuration files, see [`config`](crate::config).
//!
//! # Examples
//!
//! Adds a tool to an existing server:
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

/// Kinds of composites, from fan-outs to workflows.
///
#[doc = include_str!("composites.md")]
pub mod composites {}

/// References, templates, filters and tests of expressions.
///
#[doc = include_str!("expressions.md")]
pub mod expressions {}

/// Backends: in process, child processes, over HTTP, several at once.
///
#[doc = include_str!("backends.md")]
pub mod backends {}

/// Clients that start the gateway, systemd, and reverse proxies.
///
#[doc = include_str!("deployment.md")]
pub mod deployment {}

/// Steps that ask the user and continue with the answer.
///
#[doc = include_str!("elicitation.md")]
pub mod elicitation {}

/// Tests with scripted servers in paused time.
///
#[doc = include_str!("testing.md")]
pub mod testing {}

/// Custom rules, hooks and services, and their placement.
///
#[doc = include_str!("writing_a_layer.md")]
pub mod writing_a_layer {}

/// Error messages, their causes and solutions.
///
#[doc = include_str!("troubleshooting.md")]
pub mod troubleshooting {}

/// Cost of a fan-out, and spawning of branches.
///
#[doc = include_str!("performance.md")]
pub mod performance {}

/// Defaults and limits, with the behavior when a limit is exceeded.
///
#[doc = include_str!("limits.md")]
pub mod limits {}

/// Security model: guarantees, attackers, and the test of each guarantee.
///
#[doc = include_str!("security.md")]
pub mod security {}

/// Modules of the crate and their allowed dependencies.
///
#[doc = include_str!("architecture.md")]
pub mod architecture {}

/// Migration from mcp-proxy: configuration keys and intentional differences.
///
#[doc = include_str!("from_mcp_proxy.md")]
pub mod from_mcp_proxy {}

/// Migration from the composite tools of ToolHive's vMCP.
///
#[doc = include_str!("from_toolhive.md")]
pub mod from_toolhive {}

/// Migration from the composable tools of AgentOS and from `rig-compose`.
///
#[doc = include_str!("from_agentos_and_rig.md")]
pub mod from_agentos_and_rig {}

#[cfg(test)]
mod tests;
