//! Ends silent streams from replicas that are down.
//!
//! An engine that hangs keeps its connections open, so its streams become silent but never end
//! (vLLM does so on SIGTERM). A stream that still delivers continues, even if its replica is
//! considered down.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::duration;
use crate::error::{Error, ErrorKind};
use crate::placement::{Placed, ReplicaId};
use crate::target::Target;

/// Time between two checks of the replica of a silent stream.
const INTERVAL: Duration = Duration::from_secs(1);

/// Watches the silence of one stream from a replica.
pub(super) struct SilenceWatch {
    target: Arc<Target>,
    replica: ReplicaId,
    after: Duration,
    /// When to check next, during a silence.
    pub(super) next_check: Option<Instant>,
}

impl SilenceWatch {
    /// Creates the watch of a call's stream. `None` if the call is at no replica.
    pub(super) fn new(call: &Call, placed: Option<Placed>) -> Option<Self> {
        let after = call.target().config().pool.as_ref()?.cut_after;
        Some(Self { target: call.target().clone(), replica: placed?.id, after, next_check: None })
    }

    /// Starts to watch a silence.
    pub(super) fn start(&mut self, now: Instant) {
        self.next_check = Some(duration::after(now, self.after));
    }

    /// Checks the replica if it is time.
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
