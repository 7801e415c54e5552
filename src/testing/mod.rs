//! Tools for testing configurations, stacks and layers without real servers.
//!
//! A [`Server`] is a Tower service with scripted tools. The test defines the [`Answer`] of each
//! tool, which arrives immediately, after a delay, or never. The server records each tool call as a
//! [`RecordedCall`]. The functions [`call`], [`refused`] and [`listed`] call a service like a
//! client. A [`Person`] is a client with a user who answers questions. None of these types opens a
//! connection. In tests that pause Tokio's time, delays take no real time.
//!
//! To test how your code behaves after failures, wrap a service in [`Faults`]. This layer injects
//! faults into tool calls. The faults depend only on a seed, so a failed test can be reproduced.
//!
//! # Examples
//!
//! This example tests a configuration with a composite of two tools:
//!
//! ```
//! # #[cfg(feature = "config")]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use mcp_composite::{config::Config, testing::{self, Server}};
//! use serde_json::json;
//! use tower::Layer;
//!
//! let config = Config::from_toml_str(r#"
//!     [[composite_tools]]
//!     name = "research"
//!     description = "Search everywhere"
//!     tools = ["web_search", "notes"]
//! "#).unwrap();
//! let tools = Server::new().gives("web_search", json!({ "hits": 3 })).fails("notes", "disk full");
//! let service = config.stack_layer().layer(tools.clone());
//!
//! let result = testing::call(&service, "research", json!({ "q": "x" })).await;
//!
//! let branches = &result.structured_content.unwrap()["branches"];
//! assert_eq!(branches["web_search"]["output"], json!({ "hits": 3 }));
//! assert_eq!(branches["notes"]["error"]["message"], "disk full");
//! assert_eq!(tools.calls()[0], ("web_search", json!({ "q": "x" })));
//! # }
//! # #[cfg(not(feature = "config"))]
//! # fn main() {}
//! ```
//!
//! To test your own configuration file, read it with `Config::load("gateway.toml")`. Run the test
//! with `#[tokio::test(start_paused = true)]`, which pauses time: whenever all tasks are waiting,
//! time advances to the next delay or timeout. Paused time requires a feature of Tokio, and the
//! module `testing` requires a feature of this crate:
//!
//! ```toml
//! [dev-dependencies]
//! mcp-composite = { version = "0.1", features = ["testing"] }
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! # Example: a file with backends
//!
//! [`stack`] builds all layers that a configuration file describes, including names, filters and
//! timeouts. Each backend of the file is replaced with a scripted server:
//!
//! ```
//! # #[cfg(feature = "config")]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use std::time::Duration;
//!
//! use mcp_composite::{config::Config, testing::{self, Server}};
//! use serde_json::json;
//!
//! let config = Config::from_toml_str(r#"
//!     [[backends]]
//!     name = "github"
//!     command = "github-mcp"
//!     timeout = "5s"
//!     hide_tools = ["delete_*"]
//!
//!     [[composite_tools]]
//!     name = "look_up"
//!     description = "Search the code, or else the issues"
//!     strategy = "fallback"
//!     tools = ["github/search_code", "github/search_issues"]
//! "#).unwrap();
//! let github = Server::new()
//!     .hangs("search_code")
//!     .says("search_issues", "an issue")
//!     .says("delete_repository", "done");
//! let service = testing::stack(&config, [("github", github.clone())]);
//!
//! let names: Vec<_> = testing::listed(&service).await.into_iter().map(|tool| tool.name).collect();
//! assert_eq!(names, ["github_search_code", "github_search_issues", "look_up"]);
//!
//! let result = testing::call(&service, "look_up", json!({})).await;
//! assert_eq!(result.content[0].as_text().unwrap().text, "an issue");
//! assert_eq!(github.dropped(), ["search_code"]);
//! assert_eq!(github.starts("search_issues"), [Duration::from_secs(5)]);
//!
//! let error = testing::refused(&service, "github_delete_repository", json!({})).await;
//! assert_eq!(error.message, "unknown tool `github_delete_repository`");
//! # }
//! # #[cfg(not(feature = "config"))]
//! # fn main() {}
//! ```
//!
//! # Example: a tool that fails twice
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use std::time::Duration;
//!
//! use mcp_composite::testing::{self, Answer, Server};
//! use serde_json::json;
//!
//! let second = Duration::from_secs(1);
//! let server = Server::new()
//!     .tool("flaky", Answer::failure("no route").times(2).then(Answer::text("there")))
//!     .tool("slow", Answer::structured(json!({ "rows": [] })).after(second))
//!     .tool("double", Answer::from_fn(|call| async move {
//!         match call.arguments()["n"].as_i64() {
//!             Some(n) => Answer::structured(json!({ "n": 2 * n })),
//!             None => Answer::error(-32602, "`n` is not a number"),
//!         }
//!     }));
//!
//! for is_error in [true, true, false, false] {
//!     let result = testing::call(&server, "flaky", json!({})).await;
//!     assert_eq!(result.is_error, Some(is_error));
//! }
//! testing::call(&server, "slow", json!({})).await;
//! let result = testing::call(&server, "double", json!({ "n": 21 })).await;
//! assert_eq!(result.structured_content, Some(json!({ "n": 42 })));
//! assert_eq!(server.starts("double"), [second]);
//! # }
//! ```

mod answer;
mod call;
mod client;
mod fault;
mod faults;
mod person;
mod replay;
mod server;

#[cfg(feature = "config")]
pub use self::client::stack;
pub use self::{
    answer::Answer,
    call::{RecordedCall, Status},
    client::{call, listed, refused, request},
    fault::Fault,
    faults::{Faults, Faulty},
    person::Person,
    server::Server,
};
