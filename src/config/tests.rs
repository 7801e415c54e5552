//! Checks of the JSON Schema and of the guide that are generated from the tables of this module,
//! and of sections that need a feature.

mod features;
mod reference;
pub(super) mod schema;
