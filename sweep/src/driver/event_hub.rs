//! Counts the open exchanges, and sends the events of all calls to the driver in order of time.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate::protocol::Dialect;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::observation::AttemptObservation;
use crate::spend::SpendTracker;

/// An event that the driver receives. It concerns a call, or an exchange, which is one request with
/// its response.
#[derive(Debug)]
pub(crate) enum DriverEvent {
    /// A request was sent.
    Sent,
    /// An exchange has ended, and not because the sweep cancelled its call.
    Attempt(AttemptObservation),
    /// An exchange has ended because the sweep cancelled its call.
    Cancelled,
    /// The call with this identifier has ended.
    Done(u64),
    /// The server rejects every further call with the sweep's API key. Contains the status and the
    /// error code.
    Refused(String),
}

/// Sender of driver events and counter of open exchanges, shared by the metering transport and the
/// driver.
#[derive(Debug)]
pub(crate) struct EventHub {
    pub(crate) clock: Clock,
    pub(crate) tracker: Arc<SpendTracker>,
    pub(crate) dialect: Dialect,
    /// Number of open exchanges. Events of exchanges are sent under this lock, so that they arrive
    /// in order of time.
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
        let (events, receiver) = mpsc::unbounded_channel();
        (Arc::new(Self { clock, tracker, dialect, open: Mutex::new(0), events }), receiver)
    }

    /// Records that a request is sent. Returns the current time in seconds since the sweep began,
    /// and the number of open exchanges, including this one.
    pub(crate) fn open(&self) -> (f64, usize) {
        let mut open = self.open.lock();
        *open += 1;
        self.send(DriverEvent::Sent);
        (self.clock.now(), *open)
    }

    /// Records that an exchange has ended. Calls `event` with the current time in seconds since the
    /// sweep began, and sends the returned event to the driver.
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
