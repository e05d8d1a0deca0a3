//! Collects all events of a sweep in one order and on one clock.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate::protocol::Dialect;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::observation::AttemptObservation;
use crate::spend::SpendTracker;

/// An event of the driver.
#[derive(Debug)]
pub(crate) enum DriverEvent {
    /// An exchange was opened.
    Sent,
    /// An exchange ended.
    Attempt(AttemptObservation),
    /// An exchange ended because the sweep cancelled its call.
    GivenUp,
    /// A call ended, with its identifier.
    Done(u64),
    /// The server rejects all further calls with this key.
    Refused(String),
}

/// The event hub, shared by the metering transport and the driver.
#[derive(Debug)]
pub(crate) struct EventHub {
    pub(crate) clock: Clock,
    pub(crate) tracker: Arc<SpendTracker>,
    pub(crate) dialect: Dialect,
    /// Number of open exchanges. Events are sent under this lock, so that they arrive in order of
    /// time.
    open: Mutex<usize>,
    events: mpsc::UnboundedSender<DriverEvent>,
}

impl EventHub {
    pub(crate) fn new(
        clock: Clock,
        tracker: Arc<SpendTracker>,
        dialect: Dialect,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<DriverEvent>) {
        // The queue is bounded by the number of calls in flight, because each call sends a few
        // events.
        let (events, told) = mpsc::unbounded_channel();
        (Arc::new(Self { clock, tracker, dialect, open: Mutex::new(0), events }), told)
    }

    /// Opens an exchange. Returns the time and the number of open exchanges.
    pub(crate) fn open(&self) -> (f64, usize) {
        let mut open = self.open.lock();
        *open += 1;
        self.send(DriverEvent::Sent);
        (self.clock.now(), *open)
    }

    /// Closes an exchange, and sends the event that `event` makes from the time.
    pub(crate) fn close(&self, event: impl FnOnce(f64) -> DriverEvent) {
        let mut open = self.open.lock();
        *open = open.saturating_sub(1);
        self.send(event(self.clock.now()));
    }

    pub(crate) fn send(&self, event: DriverEvent) {
        // The receiver is gone once the sweep has ended.
        let _ = self.events.send(event);
    }

    pub(crate) fn in_flight(&self) -> usize {
        *self.open.lock()
    }
}
