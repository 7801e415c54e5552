//! Renders composites and their runs as Mermaid flowcharts.
//!
//! A [`Flowchart`] describes a composite in [Mermaid][mermaid] text, which Git forges, wikis and
//! notebooks render as a diagram. The diagram shows the steps, their dependencies and the tools
//! that they call. It also shows conditions, loops, questions, steps that may fail, and the answer.
//! A flowchart is created from a [`CompositeLayer`](crate::composite::CompositeLayer::flowchart) or
//! a [`Plan`](crate::composite::Plan::flowchart). To create it from a configuration file, run
//! `mcp-composite draw FILE NAME`.
//!
//! - A solid arrow from one step to another means that the second step may start after the first
//!   has finished. Arrows that follow from others are omitted: if `a` comes before `b`, and `b`
//!   before `c`, no arrow leads from `a` to `c`.
//! - A dotted arrow leads from a step to a composite that it calls, or to a case of a switch. Each
//!   composite is drawn only once, even if several steps call it.
//! - A dashed border marks a step that has a condition, or whose failure does not fail the run.
//!
//! A [`Recorder`] is an [`Observer`](crate::observe::Observer) that records the outcomes of runs.
//! If a recorded [`Run`] is added to a flowchart, each step shows its status by a color and a line
//! of text: for example, that the step has failed, is running or waits for a person. The flowchart
//! then also shows the duration of each step, and the outcomes of loop elements. Arguments and
//! results are not recorded.
//!
//! [`Flowchart::violations`] marks the forbidden flows of data that
//! [`check_flow`](crate::composite::CompositeLayer::check_flow) finds. A thick red arrow leads from
//! each step on the path of the data to the next one. The steps have a red border, and the last one
//! shows the violated rule.
//!
//! A [`Flowchart`] truncates names, conditions and questions to 80 characters, and escapes them, so
//! that they are never interpreted as markup. The text of a flowchart depends only on the composite
//! and the run.
//!
//! By default, Mermaid refuses to draw charts with more than 500 arrows or 50 000 characters. Pages
//! that embed a larger chart can raise these limits with [`maxEdges` and `maxTextSize`][limits].
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
mod forbidden;
mod recorder;
mod tally;
mod text;

pub use self::{
    flowchart::Flowchart,
    recorder::{Recorder, Run},
};
pub(crate) use self::{
    flowchart::{Call, Callee, Edge, Graph, Node, Shape},
    forbidden::{ForbiddenFlow, StepNode},
};
