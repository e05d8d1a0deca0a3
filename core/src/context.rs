//! What the caller says about a call beside the request itself. Travels in the request's extensions.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The priority class of a call. Lower lanes go first only as they age (`aging`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Somebody is looking at a screen.
    Interactive,
    /// The default.
    #[default]
    Standard,
    /// Nobody waits for it.
    Batch,
}

impl Lane {
    /// Every lane, highest first.
    pub const ALL: [Lane; 3] = [Lane::Interactive, Lane::Standard, Lane::Batch];

    /// The name in configuration, metrics and errors.
    pub fn as_str(self) -> &'static str {
        match self {
            Lane::Interactive => "interactive",
            Lane::Standard => "standard",
            Lane::Batch => "batch",
        }
    }

    /// The lane of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.as_str() == name)
    }
}

/// Who calls, how urgently, and until when. Insert it into the request's extensions; whatever is left out has a default.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The fairness key. Default: `default`. At most 200 bytes; a longer one is cut.
    pub tenant: Option<Arc<str>>,
    /// Default: standard.
    pub lane: Lane,
    /// The moment by which the whole call, stream included, must have ended. Default: the target's `deadline` from now.
    pub deadline: Option<Instant>,
    /// The tool slots that the same task already holds, so that a cycle of tools is refused rather than waited for.
    pub holds: Option<crate::tool::Chain>,
}

/// Limits that the wrapped client sets for this request, as httpx names them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timeouts {
    /// The longest silence of the upstream: to the response head, and between chunks.
    pub read: Option<Duration>,
    /// The longest wait for a slot: the client's own wait budget.
    pub pool: Option<Duration>,
}
