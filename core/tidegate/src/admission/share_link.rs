//! The connection of a scheduler to the processes that share its limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tidegate_share::Report;
use tidegate_share::rates::Draw;

/// What a scheduler tells the other processes.
#[derive(Debug)]
pub(crate) enum ShareEvent {
    /// The first call is made.
    Joined,
    /// The use of the slots has changed.
    Reported(Report),
    /// Other processes must be told what happened to calls. See
    /// [`Admission::take_limit_events`](super::Admission::take_limit_events).
    Observed,
    /// A waiting call lacks requests or tokens, or earlier charges have changed.
    Drawn(Draw),
    /// The provider asked callers to wait until this time.
    CoolingUntil(Instant),
    /// The scheduler is dropped, which returns all slots.
    Left,
}

/// The connection of one target or tool to the broker of a shared limit.
pub(crate) struct ShareLink {
    send: Box<dyn Fn(ShareEvent) + Send + Sync>,
    has_joined: AtomicBool,
}

impl ShareLink {
    /// Creates a connection that passes events to `send`, in order and under the scheduler's lock.
    pub(crate) fn new(send: impl Fn(ShareEvent) + Send + Sync + 'static) -> Self {
        Self { send: Box::new(send), has_joined: AtomicBool::new(false) }
    }

    /// Sends that the first call is made, the first time. Costs one atomic load otherwise.
    pub(crate) fn join(&self) {
        if !self.has_joined.load(Ordering::Relaxed) && !self.has_joined.swap(true, Ordering::Relaxed) {
            (self.send)(ShareEvent::Joined);
        }
    }

    pub(super) fn send(&self, event: ShareEvent) {
        (self.send)(event);
    }
}

impl Drop for ShareLink {
    fn drop(&mut self) {
        if *self.has_joined.get_mut() {
            (self.send)(ShareEvent::Left);
        }
    }
}
