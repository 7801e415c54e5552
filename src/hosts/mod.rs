//! For programs that call models: tools in code, and the calls in the output of models.

pub mod functions;

#[cfg(feature = "normalize")]
pub mod normalize;

#[cfg(feature = "rig-compose")]
pub mod rig_compose;
