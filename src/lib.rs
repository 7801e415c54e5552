//! Tower middleware over [`rmcp`] that composes MCP tools into new MCP tools.
//!
//! A server offers tools one by one, and a model that needs five of them makes five round trips. A
//! *composite* is a tool made of other tools: the client sees one tool, calls it once, and gets one
//! answer in which each part names its tool and its outcome.
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
//! The [`guide`] describes how to use the crate; start with [its table](guide).
//!
//! # The ideas
//!
//! - **One service type.** A [`Request`] is an MCP message with its context; a [`Reply`]
//!   is a result, a JSON-RPC error or a typed refusal. Everything here is a Tower service
//!   from one to the other, so stock Tower layers fit above and below, and no client is
//!   needed.
//! - **Rules.** A layer inspects a request on its way in and its reply on the way out;
//!   [`intercept`] runs such rules, including your own. A [`catalog`] holds what a rule
//!   must know of the tools behind it.
//! - **Composites.** A [`CompositeLayer`] adds them to `tools/list`, and runs them on
//!   `tools/call`: the same call to many tools, or steps that use the outputs of others,
//!   through [`expr`]essions, and may ask the user of the client. A run owns its branches:
//!   dropping the call stops them all.
//! - **One order.** A [`stack`] has all layers, each in the position where no rule can be
//!   bypassed. Calls of composites' targets pass the layers below as direct calls do.
//! - **Servers anywhere.** The [`adapter`]s make a Tower service of an rmcp server, local
//!   or [remote](adapter::remote), one service of [several](adapter::router), and an rmcp
//!   server of a Tower service.
//! - **One file.** [`config`] reads all of it from TOML, reports all errors with their
//!   lines, and reloads a changed file while clients are served.
//!
//! | | modules |
//! |---|---|
//! | what clients see | [`advertise`], [`alias`], [`filter`] |
//! | what they may send and use | [`limit`], [`validate`], [`budget`] |
//! | what they get | [`truncate`], [`redact`] |
//! | tools without a server | [`functions`], [`rig_compose`] |
//! | observing and suspending runs | [`observe`], [`mermaid`], [`trace`], [`metrics`], [`store`], [`redis`] |
//! | changes at run time | [`changes`], [`reload`] |
//! | hosts that call a model | [`normalize`] |
//! | tests | [`testing`] |
//!
//! # Features
//!
//! - `config`, on by default: all layers, composites and backends from a TOML file.
//! - `remote`: servers at the other end of any transport that you set up.
//! - `stdio`: servers that are child processes.
//! - `http`: servers over streamable HTTP; `tls`: and over `https`.
//! - `normalize`: calls in the output of models, for hosts.
//! - `redis`: budgets, suspended runs and stored results that replicas share.
//! - `rig-compose`: tools of the crate [`rig-compose`](rig_compose) as targets, and tools
//!   of this crate as its tools.
//! - `metrics`: counters and histograms, through the `metrics` facade.
//! - `opentelemetry`: one trace from the client to the servers, with OpenTelemetry's ids.
//! - `testing`: scripted servers and faults, for your tests.
//!
//! # Runtime
//!
//! Calling a composite needs Tokio with its time enabled, and so do remote servers, from the start.
//! Other requests that pass a layer need either no runtime or one with its time enabled.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::too_many_lines, reason = "tests have long tables of cases"))]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(
        feature = "config",
        feature = "stdio",
        feature = "http",
        feature = "normalize",
        feature = "redis",
        feature = "rig-compose",
        feature = "metrics",
        feature = "opentelemetry",
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

#[cfg(feature = "redis")]
pub mod redis;

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

#[cfg(feature = "normalize")]
pub use self::hosts::normalize;
#[cfg(feature = "rig-compose")]
pub use self::hosts::rig_compose;
#[cfg(feature = "metrics")]
pub use self::telemetry::metrics;
pub use self::{
    hosts::functions,
    layers::{advertise, alias, budget, filter, limit, redact, trace, truncate, validate},
    middleware::{catalog, changes, intercept, pattern, reload},
    telemetry::{mermaid, observe},
};

// The types that most programs need, at the root of the docs.
#[cfg(feature = "remote")]
#[doc(no_inline)]
pub use self::adapter::RemoteService;
#[cfg(feature = "config")]
#[doc(no_inline)]
pub use self::config::{Config, Gateway};
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
    middleware::pattern_watch,
    support::{
        fingerprint, json_pointer, json_size, named, names, pagination, random, suggest, uri,
        warnings,
    },
    telemetry::spans,
};
