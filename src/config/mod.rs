//! Composite tools from a TOML file.
//!
//! ```toml
//! [[composite_tools]]
//! name = "search_all"                          # required
//! description = "Search everywhere"            # required
//! title = "Search"
//! input_schema = { type = "object" }           # or `parameters`; else derived from the targets
//! output_schema = { type = "object" }          # else it describes the report
//! annotations = { readOnlyHint = true }        # as in MCP; what is left open is derived
//! timeout = "30s"                              # of the whole run
//! strategy = "parallel"                        # "sequential", "race", "fallback"
//! success = "all"                              # "any", { quorum = 2 }
//! order = "declared"                           # "completion"
//! report = true
//! max_parallel = 4
//! tools = ["github_search", "docs_search"]     # each is called with the input
//! ```
//!
//! Instead of `tools`, each target can have settings of its own:
//!
//! ```toml
//! [[composite_tools]]
//! name = "search_all"
//! description = "Search everywhere"
//!
//! [[composite_tools.targets]]
//! tool = "github_search"                       # required
//! id = "code"                                  # else the tool's name
//! arguments = { q = "$input.query", limit = 5 }
//! timeout = "5s"
//! optional = true
//! ```
//!
//! What the keys mean is told by the setters of the same names of
//! [`CompositeTool`](crate::composite::CompositeTool) and
//! [`Target`](crate::composite::Target), and what `arguments` can refer to by
//! [`expr`](crate::expr).
//!
//! A file is accepted as a whole or not at all. What is wrong with it is told
//! all at once, each mistake with its line and column. A key that does not
//! exist is a mistake. An empty file has no composites.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::config::Config;
//!
//! let config = Config::from_toml_str(
//!     r#"
//! [[composite_tools]]
//! name = "search_all"
//! description = "Search everywhere"
//! tools = ["github_search", "docs_search"]
//! "#,
//! )?;
//! assert_eq!(config.composite_tools().len(), 1);
//! let layer = config.composite_layer();
//! # drop(layer);
//!
//! let error = Config::from_toml_str(
//!     r#"
//! [[composite_tools]]
//! name = "search all"
//! description = "Search everywhere"
//! tols = ["github_search", "docs_search"]
//! tools = ["github_search"]
//! "#,
//! )
//! .unwrap_err();
//! let [name, key] = error.mistakes() else { panic!("{error}") };
//! assert_eq!((name.path(), name.line(), name.column()), ("composite_tools[0].name", 3, 8));
//! assert_eq!((key.path(), key.line(), key.column()), ("composite_tools[0].tols", 5, 1));
//! assert!(key.message().starts_with("unknown key `tols`: did you mean `tools`?"));
//! # Ok::<(), mcp_composite::config::ConfigError>(())
//! ```

mod composite_tools;
mod duration;
mod error;
mod failure;
mod file;
mod near;
mod read;
mod source;
mod value;

pub use self::{
    error::{ConfigError, Mistake},
    file::Config,
};
