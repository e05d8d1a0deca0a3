//! Ends streams that are silent because their replica is down.
//!
//! An engine that hangs keeps its connections open, so its streams become silent but never end
//! (vLLM does so on SIGTERM). A stream that still delivers data continues, even if its replica is
//! considered down.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::duration;
use crate::error::{Error, ErrorKind};
use crate::placement::{Placed, ReplicaId};
use crate::target::Target;

/// Time between two checks of the replica of a silent stream: 1 s.
const INTERVAL: Duration = Duration::from_secs(1);

/// Checks the replica of one stream while the stream is silent.
pub(super) struct SilenceWatch {
    target: Arc<Target>,
    replica: ReplicaId,
    /// Duration of a silence after which the replica is checked first (the pool's `cut_after`).
    after: Duration,
    /// When to check the replica next. `None` before the first silence.
    pub(super) next_check: Option<Instant>,
}

impl SilenceWatch {
    /// Creates the watch for the stream of a call from the replica `placed`. Returns `None` if the
    /// target is not a pool.
    pub(super) fn new(call: &Call, placed: Option<Placed>) -> Option<Self> {
        let after = call.target().config().pool.as_ref()?.cut_after;
        Some(Self { target: call.target().clone(), replica: placed?.id, after, next_check: None })
    }

    /// Records that the stream became silent at `now`. The replica is first checked `cut_after`
    /// later.
    pub(super) fn start(&mut self, now: Instant) {
        self.next_check = Some(duration::after(now, self.after));
    }

    /// Checks whether the replica is down, if `next_check` has passed. If it is up, schedules the
    /// next check in [`INTERVAL`].
    ///
    /// # Errors
    /// `Truncated` if the replica is down, because the stream will not continue.
    pub(super) fn check(&mut self, now: Instant) -> Result<(), Error> {
        if self.next_check.is_none_or(|at| now < at) {
            return Ok(());
        }
        if !self.target.admission().is_down(self.replica) {
            self.next_check = Some(now + INTERVAL);
            return Ok(());
        }
        let text = "its replica is down, and the stream was silent for longer than the pool's \
                    `cut_after`: the response is incomplete";
        Err(Error::new(ErrorKind::Truncated, text))
    }
}
