//! Checks of the JSON Schema and of the guide that are generated from the tables of this module.

mod reference;
pub(super) mod schema;
