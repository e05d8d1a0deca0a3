//! Where everything that happens is told: one order, one clock.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate::wire::Dialect;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::observation::AttemptObservation;
use crate::spend::SpendTracker;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum DriverEvent {
    /// An exchange was opened.
    Sent,
    /// One ended.
    Attempt(AttemptObservation),
    /// One was given up by the sweep itself.
    GivenUp,
    /// A call is over, whatever came of it.
    Done(u64),
    /// The server takes no more calls of this key.
    Refused(String),
}

/// Shared by the meter and the driver.
#[derive(Debug)]
pub(crate) struct EventHub {
    pub(crate) clock: Clock,
    pub(crate) tracker: Arc<SpendTracker>,
    pub(crate) dialect: Dialect,
    /// Exchanges open now. Events are sent under its lock, so that they come in the order of their times.
    open: Mutex<usize>,
    events: mpsc::UnboundedSender<DriverEvent>,
}

impl EventHub {
    pub(crate) fn new(
        clock: Clock,
        tracker: Arc<SpendTracker>,
        dialect: Dialect,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<DriverEvent>) {
        // Bounded by the calls under way: each tells a few things of itself.
        let (events, told) = mpsc::unbounded_channel();
        (Arc::new(Self { clock, tracker, dialect, open: Mutex::new(0), events }), told)
    }

    /// Opens an exchange: when, and how many there are then.
    pub(crate) fn open(&self) -> (f64, usize) {
        let mut open = self.open.lock();
        *open += 1;
        self.send(DriverEvent::Sent);
        (self.clock.now(), *open)
    }

    /// Closes one, and tells what is made of the moment.
    pub(crate) fn close(&self, event: impl FnOnce(f64) -> DriverEvent) {
        let mut open = self.open.lock();
        *open = open.saturating_sub(1);
        self.send(event(self.clock.now()));
    }

    pub(crate) fn send(&self, event: DriverEvent) {
        // Nobody listens once the sweep is over.
        let _ = self.events.send(event);
    }

    pub(crate) fn in_flight(&self) -> usize {
        *self.open.lock()
    }
}
