//! Guides: how to do what, from the first composite to a fleet of gateways.
//!
//! They tell what belongs together across modules; the module docs say what each part
//! does. Nothing here is code.
//!
//! | you want to | read |
//! |---|---|
//! | choose among fan-outs, pipelines and workflows | [composites] |
//! | know every form of a reference, filter and test | [expressions] |
//! | know which layer does what, and why in this order | [the order of the layers](crate::stack#the-order-of-the-layers) |
//! | connect the servers that you have | [backends] |
//! | ask somebody before something happens | [person] |
//! | bound what calls may use and results may hold | [which limit is for what](crate::budget#which-limit-is-for-what) |
//! | run several gateways behind a load balancer | [several replicas](crate::state#several-replicas) |
//! | see what runs do: spans, metrics | [`trace`](crate::trace) |
//! | see a composite, or what became of a run | [`mermaid`](crate::mermaid) |
//! | test a file | [testing] |
//! | write a rule, a hook or a layer | [layers] |
//! | know what a message means | [troubleshooting] |
//! | know a default, or a limit | [limits] |
//! | know what takes time | [performance] |
//! | know what is promised to hold against whom | [security] |
//! | read or change the crate | [architecture] |
//! | move from mcp-proxy | [from_mcp_proxy] |
//! | move from ToolHive | [from_toolhive] |
//! | move from AgentOS or `rig-compose` | [from_agentos_and_rig] |
//!
//! What a file can say is told in one place, [`config`](crate::config).
//!
//! # Examples
//!
//! A server that exists, with a tool more:
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

/// Which kind of composite is for what, from a fan-out to a workflow.
///
#[doc = include_str!("composites.md")]
pub mod composites {}

/// Every form of a reference and a template, every filter and test.
///
#[doc = include_str!("expressions.md")]
pub mod expressions {}

/// Servers to stand on: in process, child processes, over HTTP, several at once.
///
#[doc = include_str!("backends.md")]
pub mod backends {}

/// A step that asks somebody, and goes on with the answer.
///
#[doc = include_str!("person.md")]
pub mod person {}

/// Scripted servers in the place of real ones, in paused time.
///
#[doc = include_str!("testing.md")]
pub mod testing {}

/// A rule, a hook or a service of your own, and where to put it.
///
#[doc = include_str!("layers.md")]
pub mod layers {}

/// What a message means, why it came, and what to do.
///
#[doc = include_str!("troubleshooting.md")]
pub mod troubleshooting {}

/// Where the time of a call goes, and when branches become tasks.
///
#[doc = include_str!("performance.md")]
pub mod performance {}

/// Every default and every limit, with what happens beyond it.
///
#[doc = include_str!("limits.md")]
pub mod limits {}

/// What is promised of security, against whom, and which test shows it.
///
#[doc = include_str!("security.md")]
pub mod security {}

/// The modules of the crate, and which may use which.
///
#[doc = include_str!("architecture.md")]
pub mod architecture {}

/// What of a file of mcp-proxy is what here, and what is different on purpose.
///
#[doc = include_str!("from_mcp_proxy.md")]
pub mod from_mcp_proxy {}

/// How the composite tools of vMCP move, key by key.
///
#[doc = include_str!("from_toolhive.md")]
pub mod from_toolhive {}

/// How composable tools of AgentOS move, and what `rig-compose` has here.
///
#[doc = include_str!("from_agentos_and_rig.md")]
pub mod from_agentos_and_rig {}

#[cfg(test)]
mod tests;
