//! The protocol revisions that benches compare.

use rmcp::{ClientLifecycleMode, model::ProtocolVersion};

/// The protocol revision of all connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25, which begins with `initialize`.
    Older,
    /// 2026-07-28, where every request identifies the client.
    Newer,
}

// === impl Era ===

impl Era {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Older => "2025-11-25",
            Self::Newer => "2026-07-28",
        }
    }

    pub(crate) fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Older => ClientLifecycleMode::Initialize,
            Self::Newer => ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            },
        }
    }
}
