//! Streams of replicas that are down.
//!
//! An engine that hangs keeps its connections open: what it was streaming falls silent, and nothing ever ends it (vLLM on SIGTERM does so). A stream that
//! still delivers is left alone, whatever is thought of its replica.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::duration;
use crate::error::{Error, ErrorKind};
use crate::placement::{Placed, ReplicaId};
use crate::target::Target;

/// From one look at a silent stream's replica to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Whether a stream that is silent is to be ended.
pub(super) struct Cut {
    target: Arc<Target>,
    replica: ReplicaId,
    after: Duration,
    /// When to look next, in a silence.
    at: Option<Instant>,
}

impl Cut {
    /// For a call in flight at a replica; `None`: it is at none.
    pub(super) fn of(call: &Call, placed: Option<Placed>) -> Option<Self> {
        let after = call.target().config().pool.as_ref()?.cut_after;
        Some(Self { target: call.target().clone(), replica: placed?.id, after, at: None })
    }

    /// A silence begins.
    pub(super) fn silent(&mut self, now: Instant) {
        self.at = Some(duration::after(now, self.after));
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Looks, if it is time to. The error: the stream is over.
    pub(super) fn look(&mut self, now: Instant) -> Result<(), Error> {
        if self.at.is_none_or(|at| now < at) {
            return Ok(());
        }
        if !self.target.admission().is_down(self.replica) {
            self.at = Some(now + EVERY);
            return Ok(());
        }
        let text = "its replica is down, and the stream was silent for longer than the pool's `cut_after`: what came is incomplete";
        Err(Error::new(ErrorKind::Truncated, text))
    }
}
