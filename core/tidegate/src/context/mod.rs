//! What a caller states about a call in addition to the request: tenant, lane, deadline and more.
//!
//! A [`Context`] is passed in the extensions of the request.

mod call_group;
mod chain;
mod task;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use call_group::GroupWait;
pub use call_group::{CallGroup, Waits};
pub use chain::Chain;
pub use task::TaskId;
use tokio::time::Instant;

pub use crate::config::Lane;
use crate::duration;

/// The tenant, lane, deadline and other properties of a call. Each has a default.
///
/// Insert it into the extensions of the request:
///
/// ```
/// use tidegate::{Context, Lane, RequestBody};
///
/// let mut request = http::Request::new(RequestBody::from("{}"));
/// let context = Context { tenant: Some("acme".into()), lane: Lane::Batch, ..Context::default() };
/// request.extensions_mut().insert(context);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Name of the tenant, between which slots are shared fairly. Default: `default`. Names are cut
    /// to 200 bytes.
    pub tenant: Option<Arc<str>>,
    /// Priority class of the call. Default: standard.
    pub lane: Lane,
    /// Time by which the whole call must have ended, its stream included. Default: the target's
    /// `deadline` from now. The target's `deadline` also limits this value.
    pub deadline: Option<Instant>,
    /// The tool slots that the task already holds. A wait that would close a cycle of tools is
    /// rejected. Default: none.
    pub holds: Option<Chain>,
    /// The task that makes the call. It lets the gate detect that a task waits for a tool while it
    /// holds a model slot. Default: the current tokio task, if any.
    pub task: Option<TaskId>,
    /// A label for the call, for [`crate::Gate::explain`] and the log of calls. Labels are cut to
    /// 200 bytes. Default: none.
    pub call: Option<Arc<str>>,
    /// The group that the call belongs to, which counts its waiting calls. Default: none.
    pub group: Option<CallGroup>,
}

/// Maximum length of names from outside, in bytes. Longer names are cut.
const MAX_NAME_BYTES: usize = 200;

/// Returns the name, cut to [`MAX_NAME_BYTES`] bytes at a character boundary.
pub(crate) fn truncate_name(name: &Arc<str>) -> Arc<str> {
    if name.len() <= MAX_NAME_BYTES {
        return name.clone();
    }
    let end = (0..=MAX_NAME_BYTES).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.get(..end).unwrap_or_default().into()
}

/// The timeouts that the wrapped HTTP client sets for a request, named as in httpx.
///
/// Timeouts above [`duration::MAX`] are reduced to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timeouts {
    /// Maximum time without data from the upstream: until the response head, and between chunks.
    pub read: Option<Duration>,
    /// Maximum time in the queue. The target's `wait` setting also applies.
    pub pool: Option<Duration>,
}

impl Timeouts {
    /// Returns these limits, each at most [`duration::MAX`].
    pub(crate) fn limited(self) -> Self {
        let limited = |timeout: Option<Duration>| timeout.map(|timeout| timeout.min(duration::MAX));
        Self { read: limited(self.read), pool: limited(self.pool) }
    }
}
