//! Composites as pictures, and what became of their runs.
//!
//! A [`Flowchart`] is a composite in the text of [Mermaid][mermaid], which Git forges, wikis
//! and notebooks show as a picture: its steps and what each waits for, the tools they
//! call, conditions, loops, questions, what may fail, and the answer. Get one of a
//! [`CompositeLayer`](crate::composite::CompositeLayer::flowchart) or a
//! [`Plan`](crate::composite::Plan::flowchart), or of a file with `gateway FILE --mermaid NAME`.
//!
//! - Solid arrows lead from what finishes to what may start then. What follows from
//!   others is left out: with `a` before `b` and `b` before `c`, none leads from `a` to `c`.
//! - Dotted arrows lead to what a step calls, if that is a composite or one of the cases
//!   of a switch. Each composite is there once, however often it is called.
//! - What a condition decides on, or may be given up, has a dashed border.
//!
//! A [`Recorder`] is an [`Observer`](crate::observe::Observer) that notes what becomes of
//! runs. With a [`Run`] of it a flowchart has a colour and a line of text for how each
//! step ended, or that it runs or waits for a person, how long it took, and of loops how
//! many elements ended how. Neither notes arguments or results.
//!
//! Names, conditions and questions stand in a chart as text, whatever they hold: they
//! are shown as they are, up to 80 characters, and are never read as markup. The same
//! composite and run give the same text.
//!
//! Mermaid draws no chart of more than 500 arrows or 50 000 characters, unless whoever
//! shows it sets its [`maxEdges` and `maxTextSize`][limits].
//!
//! [mermaid]: https://mermaid.js.org/syntax/flowchart.html
//! [limits]: https://mermaid.js.org/config/schema-docs/config.html
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool, Step},
//!     mermaid::Recorder,
//!     testing::{self, Server},
//! };
//! use serde_json::json;
//! use tower::Layer;
//!
//! let steps = [Step::new("find", "search"), Step::new("tell", "mail").condition("input.mail")];
//! let recorder = Arc::new(Recorder::new());
//! let layer = CompositeLayer::new([CompositeTool::pipeline("report", "Reports", steps)])?
//!     .observer(recorder.clone());
//! let chart = layer.flowchart("report")?;
//! assert_eq!(
//!     chart.to_string(),
//!     r#"flowchart TB
//!     subgraph c0["report, pipeline"]
//!         c0n0(["input"])
//!         c0n1["find<br/>search"]
//!         c0n2["tell<br/>mail<br/>if input#46;mail"]
//!         c0n3(["answer<br/>of the last step that completes"])
//!         c0n0 --> c0n1
//!         c0n1 --> c0n2
//!         c0n2 --> c0n3
//!     end
//!     classDef conditional stroke-dasharray:4
//!     class c0n2 conditional
//! "#
//! );
//!
//! let service = layer.layer(Server::new().says("search", "a ship").says("mail", "sent"));
//! testing::call(&service, "report", json!({ "mail": false })).await;
//!
//! let [run] = &*recorder.runs() else { panic!() };
//! let chart = chart.run(run).to_string();
//! assert!(chart.contains("tell<br/>mail<br/>if input#46;mail<br/>skipped #40;condition#41;"));
//! assert!(chart.contains("class c0n1,c0n3 completed\n"));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```

mod flowchart;
mod recorder;
mod tally;
mod text;

pub(crate) use self::flowchart::{Call, Callee, Edge, Graph, Node, Shape};
pub use self::{
    flowchart::Flowchart,
    recorder::{Recorder, Run},
};
