//! What the caller says about a call beside the request itself. Travels in the request's extensions.

mod chain;
mod lane;

use std::sync::Arc;
use std::time::Duration;

pub use chain::Chain;
pub use lane::Lane;
use tokio::time::Instant;

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
    pub holds: Option<Chain>,
}

/// Limits that the wrapped client sets for this request, as httpx names them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timeouts {
    /// The longest silence of the upstream: to the response head, and between chunks.
    pub read: Option<Duration>,
    /// The longest wait for a slot: the client's own wait budget.
    pub pool: Option<Duration>,
}
