//! Tower middleware over [`rmcp`] that composes MCP tools into new MCP tools.
//!
//! MCP servers offer individual tools. A model that needs five of them therefore makes five round
//! trips. A *composite* is a tool that calls other tools. The client sees a single tool, calls it
//! once, and receives one result, in which each part names the tool that returned it.
//!
//! ```
//! use mcp_composite::{adapter::ServeService, composite::{CompositeLayer, CompositeTool}};
//! use rmcp::{ServerHandler, ServiceExt, model::CallToolRequestParams, tool, tool_handler, tool_router};
//!
//! struct Shop; // a server that you have
//!
//! #[tool_router]
//! impl Shop {
//!     #[tool(description = "The price")]
//!     fn price(&self) -> String { "5 €".into() }
//!
//!     #[tool(description = "How many there are")]
//!     fn stock(&self) -> String { "12".into() }
//! }
//!
//! #[tool_handler]
//! impl ServerHandler for Shop {}
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let offer = CompositeTool::fan_out("offer", "Price and stock at once", ["price", "stock"]);
//! let server = ServeService::wrap(Shop, CompositeLayer::new([offer])?);
//! # let (near, far) = tokio::io::duplex(4096);
//! # let (server, client) = tokio::join!(server.serve(near), ().serve(far));
//! # let (_server, client) = (server?, client?);
//! // … served over any transport, and called by any client:
//! let offer = client.call_tool(CallToolRequestParams::new("offer")).await?;
//! let texts: Vec<_> = offer.content.iter().filter_map(|block| block.as_text()).collect();
//! assert_eq!((&*texts[0].text, &*texts[1].text), ("price:", "5 €"));
//! assert_eq!(offer.structured_content.unwrap()["branches"]["stock"]["output"], "12");
//! # Ok(())
//! # }
//! ```
//!
//! The [`guide`] describes how to use the crate. Start with its [table of tasks](guide).
//!
//! # The ideas
//!
//! - **One service type.** A [`Request`] is an MCP message with its context. A [`Reply`] is a
//!   result, a JSON-RPC error or a typed refusal. Everything in this crate is a Tower service that
//!   answers requests with replies, so you can combine it with Tower's own layers, and call it
//!   without an MCP client.
//! - **Rules.** Most layers apply a rule. A rule can change or refuse each request on its way to
//!   the server, and can change the reply on its way back. The module [`intercept`] lets you write
//!   your own rules. A [`catalog`] caches the tool definitions that a rule needs.
//! - **Composites.** A [`CompositeLayer`] adds composites to `tools/list` and runs them on
//!   `tools/call`. A composite makes the same call to many tools, or runs steps. A step can use the
//!   outputs of other steps through [expressions](expr), and can ask the client's user a question.
//!   If the call is dropped, all of its steps stop.
//! - **One order.** A [`stack`] contains all layers, in an order that prevents requests from
//!   bypassing a rule. The calls that a composite makes pass through the layers below it, just like
//!   direct calls of clients.
//! - **Servers anywhere.** The [`adapter`]s convert a local or [remote](adapter::remote) rmcp
//!   server to a Tower service, combine [several servers](adapter::router) in one service, and
//!   convert a Tower service back to an rmcp server.
//! - **One file.** [`config`] reads all settings from a TOML file, and reports all errors in it
//!   with their lines. If the file changes, it is reloaded while clients stay connected.
//!
//! | | modules |
//! |---|---|
//! | what clients see | [`advertise`], [`alias`], [`filter`], [`lock`] |
//! | what clients may send and use | [`limit`], [`validate`], [`budget`] |
//! | what clients receive | [`truncate`], [`redact`], [`cache`], [`flow`] |
//! | long calls | [`tasks`], [`poll_tasks`] |
//! | tools without a server | [`functions`], [`rig_compose`] |
//! | observing and suspending runs | [`observe`], [`mermaid`], [`trace`], [`metrics`], [`store`], [`redis`] |
//! | changes at run time | [`changes`], [`reload`] |
//! | hosts that call a model | [`normalize`] |
//! | tests | [`testing`] |
//!
//! # Features
//!
//! - `config`, enabled by default: configures layers, composites and backends with a TOML file.
//!   It enables `sealed`.
//! - `sealed`: encrypts the states of suspended runs that clients keep.
//! - `remote`: connects to servers over any transport that you set up.
//! - `stdio`: starts servers as child processes.
//! - `http`: connects to servers over streamable HTTP.
//! - `tls`: connects to servers over `https`, in addition to `http`.
//! - `normalize`: parses tool calls in the output of models, for hosts that run a model.
//! - `cache`: caches the results of read-only tools.
//! - `redis`: stores budgets, suspended runs and large results in Redis, where several replicas
//!   share them.
//! - `restate`: lets [Restate](restate) execute the runs of tasks. Needs Rust 1.90.
//! - `rig-compose`: converts tools of the crate [`rig-compose`](rig_compose) to targets of
//!   composites, and tools of this crate to tools of `rig-compose`.
//! - `metrics`: records counters and histograms through the `metrics` facade.
//! - `opentelemetry`: connects the spans of the client, this process and the servers to one
//!   OpenTelemetry trace.
//! - `toolhive`: reads configurations of ToolHive's vMCP.
//! - `testing`: provides scripted servers and injects faults, for your tests.
//!
//! # Runtime
//!
//! Calls of composites and of remote servers require a Tokio runtime whose time driver is enabled.
//! All other requests also work outside a Tokio runtime. If they are sent inside a runtime, its
//! time driver must be enabled, too.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::too_many_lines, reason = "tests have long tables of cases"))]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(
        feature = "config",
        feature = "stdio",
        feature = "http",
        feature = "cache",
        feature = "normalize",
        feature = "redis",
        feature = "restate",
        feature = "rig-compose",
        feature = "metrics",
        feature = "opentelemetry",
        feature = "toolhive",
        feature = "testing"
    )),
    allow(rustdoc::broken_intra_doc_links, reason = "the docs speak of all features")
)]

pub mod guide;

#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "config")]
pub mod config;

pub mod stack;

mod hosts;

mod durable;

mod layers;

pub mod composite;

mod engine;

pub mod adapter;

mod telemetry;

mod middleware;

mod schema;

pub mod store;

pub mod expr;

pub mod message;

mod support;

#[cfg(feature = "redis")]
pub use self::durable::redis;
#[cfg(feature = "restate")]
pub use self::durable::restate;
#[cfg(feature = "normalize")]
pub use self::hosts::normalize;
#[cfg(feature = "rig-compose")]
pub use self::hosts::rig_compose;
#[cfg(feature = "cache")]
pub use self::layers::cache;
#[cfg(feature = "metrics")]
pub use self::telemetry::metrics;
pub use self::{
    hosts::functions,
    layers::{
        advertise, alias, budget, filter, flow, limit, lock, poll_tasks, redact, tasks, trace,
        truncate, validate,
    },
    middleware::{catalog, changes, intercept, pattern, reload},
    telemetry::{mermaid, observe},
};

// The types that most programs need are also available at the root of the crate.
#[cfg(feature = "remote")]
#[doc(no_inline)]
pub use self::adapter::RemoteService;
#[cfg(feature = "config")]
#[doc(no_inline)]
pub use self::config::Config;
#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
#[doc(no_inline)]
pub use self::config::Gateway;
#[doc(no_inline)]
pub use self::{
    adapter::{Router, ServeService},
    composite::{CompositeLayer, CompositeTool, Step},
    message::{Reply, Request},
    stack::{Stack, StackLayer},
};

#[cfg(any(feature = "config", feature = "http"))]
use self::support::url;
#[cfg(not(feature = "metrics"))]
use self::telemetry::metrics;
use self::{
    middleware::{pattern_watch, response_future},
    support::{
        error_chain, fingerprint, json_pointer, json_size, log_pause, mutex, named, names,
        pagination, random, readiness, suggest, text_position, uri, warnings,
    },
    telemetry::spans,
};
