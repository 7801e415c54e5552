//! Integrations for programs that call models: tools in code, and tool calls in model output.

pub mod functions;

#[cfg(feature = "normalize")]
pub mod normalize;

#[cfg(feature = "rig-compose")]
pub mod rig_compose;
