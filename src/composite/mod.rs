//! Tools made of other tools.

mod definition;
mod error;

pub(crate) use self::error::DisplayPath;
pub use self::{
    definition::{CompositeTool, Order, Strategy, Success, Target},
    error::{DefinitionError, DefinitionErrorKind, DefinitionErrors, Segment},
};
