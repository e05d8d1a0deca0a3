//! A one-shot channel that never loses its value: the value is either received, or returned to the
//! sender.
//!
//! A slot may be granted at the moment at which its caller is cancelled. Whichever happens second
//! detects the other: [`Sender::send`] returns the value, or [`Receiver::close`] does. Loom checks
//! this under every interleaving (`tests/loom`).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

#[cfg(loom)]
use loom::sync::{Arc, Mutex};
#[cfg(not(loom))]
use std::sync::Arc;

#[cfg(not(loom))]
use parking_lot::Mutex;

/// The state of a channel.
enum State<T> {
    /// No value was sent yet. Contains the waker of the receiver once the receiver was polled.
    Waiting(Option<Waker>),
    /// A value was sent and not yet received.
    Given(T),
    /// The value was received, or the receiver was closed.
    Gone,
}

/// The state that both ends of a channel share.
struct Cell<T>(Mutex<State<T>>);

impl<T> Cell<T> {
    #[cfg(not(loom))]
    fn with<R>(&self, act: impl FnOnce(&mut State<T>) -> R) -> R {
        act(&mut self.0.lock())
    }

    #[cfg(loom)]
    #[allow(clippy::unwrap_used)]
    fn with<R>(&self, act: impl FnOnce(&mut State<T>) -> R) -> R {
        act(&mut self.0.lock().unwrap())
    }
}

/// The sending end of a [`handoff`] channel.
pub struct Sender<T>(Arc<Cell<T>>);

/// The receiving end of a [`handoff`] channel: a future that resolves with the value. After
/// [`Receiver::close`], the future never resolves.
///
/// # Cancel safety
/// Call [`Receiver::close`] before dropping the receiver. Otherwise a value that was sent is
/// dropped with the channel.
pub struct Receiver<T>(Arc<Cell<T>>);

/// Creates a channel for one value.
///
/// ```
/// use tidegate::internals::handoff;
///
/// let (sender, mut receiver) = handoff();
/// assert!(sender.send(1).is_ok());
/// assert_eq!(receiver.close(), Some(1), "the value is not lost");
/// ```
pub fn handoff<T>() -> (Sender<T>, Receiver<T>) {
    let cell = Arc::new(Cell(Mutex::new(State::Waiting(None))));
    (Sender(cell.clone()), Receiver(cell))
}

impl<T> Sender<T> {
    /// Sends the value and wakes the receiver.
    ///
    /// # Errors
    /// Gives the value back as `Err` if the receiver is closed.
    pub fn send(self, value: T) -> Result<(), T> {
        let waker = self.0.with(|state| match state {
            State::Waiting(waker) => {
                let waker = waker.take();
                *state = State::Given(value);
                Ok(waker)
            }
            State::Given(_) | State::Gone => Err(value),
        })?;
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Closes the channel. Returns the value if it was sent and not received, otherwise `None`.
    pub fn close(&mut self) -> Option<T> {
        self.0.with(|state| match std::mem::replace(state, State::Gone) {
            State::Given(value) => Some(value),
            State::Waiting(_) | State::Gone => None,
        })
    }
}

impl<T> Future for Receiver<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.with(|state| match std::mem::replace(state, State::Gone) {
            State::Given(value) => Poll::Ready(value),
            State::Waiting(_) => {
                *state = State::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
            State::Gone => Poll::Pending,
        })
    }
}
