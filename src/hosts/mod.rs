//! Integrations for hosts, which are programs that prompt models: tools that are implemented in
//! code, and tool calls in the output of models.

pub mod functions;

#[cfg(feature = "normalize")]
pub mod normalize;

#[cfg(feature = "rig-compose")]
pub mod rig_compose;
