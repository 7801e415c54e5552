//! Tower middleware over [`rmcp`] that makes MCP tools out of MCP tools.
//!
//! A server offers tools one by one, and a model that needs five of them makes
//! five round trips. A *composite* is a tool made of other tools: the client
//! sees one tool, calls it once, and gets one answer in which each part says
//! whose it is and how it ended.
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
//! assert_eq!(offer.content[0].as_text().unwrap().text, "5 €");
//! assert_eq!(offer.structured_content.unwrap()["branches"]["stock"]["output"], "12");
//! # Ok(())
//! # }
//! ```
//!
//! # The ideas
//!
//! - A [`Request`](message::Request) is an MCP message with the context it came
//!   in; a [`Reply`](message::Reply) is a result, a JSON-RPC error or a typed
//!   refusal. Everything here is a Tower service from one to the other, so
//!   stock Tower layers fit above and below, and nothing needs a client.
//! - A *rule* is a layer's look at a request on its way in and its reply on the
//!   way out. [`intercept`] runs rules; write your own with it.
//! - A [`catalog`] is what a layer knows of the tools behind it: listed when it
//!   is first needed, once for all.
//! - [`CompositeLayer`](composite::CompositeLayer) adds composites to
//!   `tools/list`, and runs them on `tools/call`: the same call to many tools, or
//!   steps that use what others gave, through [`expr`]essions, and may ask the
//!   person behind the client. A run owns its branches: dropping the call stops
//!   them all. One that waits for a person is a [`state`].
//!   Whoever wants to know what runs do can [`observe`] them, or see them in [`mermaid`].
//! - [`AdvertiseLayer`](advertise::AdvertiseLayer) says which tools clients are
//!   shown: some, or two to search and call the others by.
//! - A [`filter`] decides what clients may see and use, an [`alias`] what it is
//!   called, a [`limit`] how large a request may be, and [`validate`] what arguments
//!   must be like. A [`budget`] is what calls may use together, a [`bound`] how large a
//!   result may be that clients get, with the whole kept in [`results`], and what
//!   [`redact`] takes out of results nobody sees. A [`stack`] is all layers in their
//!   fixed order.
//! - [`observe`] tells what becomes of runs and their branches while they go on, and a
//!   [`trace`] has a span for each request, run and call, with OpenTelemetry's names.
//! - The [`adapter`]s make a Tower service of an rmcp server, here or at the other
//!   end of a [connection](adapter::remote), one service of [several](adapter::router),
//!   and an rmcp server of a Tower service.
//! - [`functions`] are tools without a server: closures and Tower services, which may
//!   call the stack that they are a part of.
//! - [`config`] reads all of it from one TOML file, tells every mistake at its line,
//!   and puts a changed file in the place of the old one while clients are served.
//! - [`normalize`] finds calls in what language models write, and makes of the results
//!   what they read: for the programs that ask them.
//! - [`testing`] has scripted servers and faults, to test files, stacks and rules of your
//!   own.
//! - [`security`] says what is promised against clients, backends and files that mean ill,
//!   and which test shows it.
//!
//! # Features
//!
//! - `config`, on by default: all layers, composites and backends from a TOML file.
//! - `remote`: servers at the other end of any transport that you set up.
//! - `stdio`: servers that are child processes.
//! - `http`: servers over streamable HTTP; `tls`: and over `https`.
//! - `normalize`: calls in the output of models, for hosts.
//! - `redis`: budgets, waiting runs and kept results that replicas share.
//! - `rig-compose`: tools of the crate [`rig-compose`](rig_compose) as targets, and ours as
//!   its tools.
//! - `metrics`: counters and histograms, through the facade of that name.
//! - `opentelemetry`: one trace from the client to the servers, with OpenTelemetry's ids.
//! - `testing`: scripted servers and faults, for your tests.
//!
//! # Runtime
//!
//! Calling a composite needs Tokio with its time enabled, and so do remote servers,
//! from the beginning. Everything else that passes a layer needs no runtime, or one
//! with its time enabled.
#![doc = include_str!("docs/architecture.md")]
#![forbid(unsafe_code)]
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

pub mod message;

pub mod changes;

pub mod pattern;

pub mod intercept;

pub mod catalog;

pub mod limit;

pub mod advertise;

pub mod bound;

pub mod observe;

pub mod mermaid;

pub mod composite;

pub mod alias;

pub mod filter;

pub mod validate;

pub mod redact;

pub mod budget;

pub mod functions;

pub mod expr;

pub mod state;

pub mod results;

pub mod stack;

pub mod trace;

#[cfg(feature = "metrics")]
pub mod metrics;

#[cfg(not(feature = "metrics"))]
#[path = "unmeasured.rs"]
mod metrics;

pub mod reload;

pub mod adapter;

#[cfg(feature = "config")]
pub mod config;

#[cfg(feature = "normalize")]
pub mod normalize;

#[cfg(feature = "redis")]
pub mod redis;

#[cfg(feature = "rig-compose")]
pub mod rig_compose;

#[cfg(feature = "testing")]
pub mod testing;

mod complaints;

mod engine;

mod fingerprint;

mod input_schema;

mod lookout;

mod names;

mod near;

mod pages;

mod random;

mod room;

mod shelf;

mod tasks;

#[cfg(any(feature = "config", feature = "http"))]
mod url;

#[doc = include_str!("docs/security.md")]
pub mod security {}

#[cfg(all(doctest, feature = "config"))]
#[doc = include_str!("../README.md")]
struct Readme;
