//! What a caller states about a call in addition to the request: tenant, lane, deadline and more.
//!
//! A [`Context`] is passed in the extensions of the request.

mod call_group;
mod task_id;
mod tool_chain;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use call_group::GroupWait;
pub use call_group::{CallGroup, Waits};
pub use task_id::TaskId;
use tokio::time::Instant;
pub use tool_chain::Chain;

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
    /// Name of the tenant on whose behalf the call is made. Slots are shared fairly between
    /// tenants. `None` or an empty name means the tenant `default`. Longer names than 200 bytes are
    /// truncated.
    pub tenant: Option<Arc<str>>,
    /// Priority class of the call. Default: [`Lane::Standard`].
    pub lane: Lane,
    /// Time by which the whole call must have ended, including retries and the response body. The
    /// `deadline` setting of the target, counted from the start of the call, also applies. `None`
    /// (default): only that setting applies. The default of that setting does not apply to requests
    /// that run no model, such as uploads.
    pub deadline: Option<Instant>,
    /// The tool slots that the task already holds
    /// ([`ToolPermit::chain`](crate::ToolPermit::chain)). With them, the gate rejects a wait for a
    /// tool that could never end. `None` (default): no slots.
    pub holds: Option<Chain>,
    /// The task that makes the call. With it, the gate detects that a task waits for a tool while
    /// it holds a model slot. `None` (default): the current tokio task, if there is one.
    pub task: Option<TaskId>,
    /// A label for the call, by which [`Gate::explain`](crate::Gate::explain) finds it, and which
    /// the log of calls contains. Longer labels than 200 bytes are truncated. `None` (default): no
    /// label.
    pub call: Option<Arc<str>>,
    /// The group that counts the call while it waits. `None` (default): no group.
    pub group: Option<CallGroup>,
    /// Maximum number of attempts of the call at each target, including the first, in place of the
    /// target's setting `retry.attempts`. 0 counts as 1. `None` (default): that setting applies.
    pub max_attempts: Option<u32>,
}

/// Maximum length in bytes of the tenant names and call labels that callers choose.
const MAX_NAME_BYTES: usize = 200;

/// Returns the name, truncated to at most [`MAX_NAME_BYTES`] bytes at a character boundary.
pub(crate) fn truncate_name(name: &Arc<str>) -> Arc<str> {
    if name.len() <= MAX_NAME_BYTES {
        return name.clone();
    }
    let end = (0..=MAX_NAME_BYTES).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.get(..end).unwrap_or_default().into()
}

/// The timeouts that a wrapped HTTP client has set for a request, named as in httpx. Insert them
/// into the extensions of the request.
///
/// A timeout that is `None` (default) is not set by the client. Only the settings of the target
/// apply then. Timeouts above [`duration::MAX`] are reduced to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timeouts {
    /// Maximum time without data from the upstream: from sending the request to the response head,
    /// and between two chunks of the body.
    pub read: Option<Duration>,
    /// Maximum time that the call may wait for a slot, over all its attempts. The `wait` setting of
    /// the target also applies. Times in which a provider asked callers to wait do not count,
    /// unless the target has a `fallback`. In contrast to `wait`, times in which the target is down
    /// or no replica of a pool accepts calls always count.
    pub pool: Option<Duration>,
}

impl Timeouts {
    /// Returns the timeouts, each reduced to [`duration::MAX`] if it is longer.
    pub(crate) fn limited(self) -> Self {
        let limited = |timeout: Option<Duration>| timeout.map(|timeout| timeout.min(duration::MAX));
        Self { read: limited(self.read), pool: limited(self.pool) }
    }
}
