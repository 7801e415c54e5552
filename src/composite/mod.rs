//! Tools made of other tools.

mod answer;
mod compile;
mod definition;
mod error;
mod input;
mod layer;
mod listing;
mod resolve;
mod run;
mod schema;
mod service;

#[cfg(feature = "config")]
pub(crate) use self::error::DisplayPath;
pub use self::{
    answer::{BRANCH, TOOL, TRACE},
    definition::{CompositeTool, Order, Strategy, Success, Target},
    error::{DefinitionError, DefinitionErrorKind, DefinitionErrors, Segment},
    layer::CompositeLayer,
    service::{Composite, ResponseFuture},
};
pub use crate::engine::limits::Limits;
