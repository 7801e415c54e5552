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
//! | test a file | [testing] |
//! | write a rule, a hook or a layer | [layers] |
//! | know what a message means | [troubleshooting] |
//! | know a default, or a limit | [limits] |
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

#[doc = include_str!("../docs/composites.md")]
pub mod composites {}

#[doc = include_str!("../docs/expressions.md")]
pub mod expressions {}

#[doc = include_str!("../docs/backends.md")]
pub mod backends {}

#[doc = include_str!("../docs/person.md")]
pub mod person {}

#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

#[doc = include_str!("../docs/layers.md")]
pub mod layers {}

#[doc = include_str!("../docs/troubleshooting.md")]
pub mod troubleshooting {}

#[doc = include_str!("../docs/limits.md")]
pub mod limits {}

#[doc = include_str!("../docs/from_mcp_proxy.md")]
pub mod from_mcp_proxy {}

#[doc = include_str!("../docs/from_toolhive.md")]
pub mod from_toolhive {}

#[doc = include_str!("../docs/from_agentos_and_rig.md")]
pub mod from_agentos_and_rig {}

#[cfg(test)]
mod tests;
