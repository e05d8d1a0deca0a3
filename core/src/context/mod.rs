//! What the caller says about a call beside the request itself. Travels in the request's extensions.

mod chain;
mod crowd;
mod task;

use std::sync::Arc;
use std::time::Duration;

pub use chain::Chain;
pub(crate) use crowd::Asking;
pub use crowd::{Crowd, Waits};
pub use task::TaskId;
use tokio::time::Instant;

pub use crate::config::Lane;
use crate::duration;

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
    /// The task that asks, so that a tool which is waited for while the same task holds a model slot is noticed. Default: the tokio task that
    /// makes the call, if one does.
    pub task: Option<TaskId>,
    /// A name of the caller's own for its calls, for [`crate::Gate::explain`] and the log. At most 200 bytes; a longer one is cut. Default: none.
    pub call: Option<Arc<str>>,
    /// The calls that this one belongs with, so that who makes them knows how many wait. Default: none.
    pub crowd: Option<Crowd>,
}

/// Longer names from outside are cut.
const LONGEST_NAME: usize = 200;

/// The name, or as much of it as is kept.
pub(crate) fn cut(name: &Arc<str>) -> Arc<str> {
    if name.len() <= LONGEST_NAME {
        return name.clone();
    }
    let end = (0..=LONGEST_NAME).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.get(..end).unwrap_or_default().into()
}

/// Limits that the wrapped client sets for this request, as httpx names them.
///
/// Larger limits are reduced to [`duration::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timeouts {
    /// The longest silence of the upstream: to the response head, and between chunks.
    pub read: Option<Duration>,
    /// The longest wait for a slot: the client's own wait budget.
    pub pool: Option<Duration>,
}

impl Timeouts {
    /// Returns these limits, each at most [`duration::MAX`].
    pub(crate) fn limited(self) -> Self {
        let limited = |timeout: Option<Duration>| timeout.map(|timeout| timeout.min(duration::MAX));
        Self { read: limited(self.read), pool: limited(self.pool) }
    }
}
