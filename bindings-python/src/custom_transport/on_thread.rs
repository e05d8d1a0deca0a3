//! Exchanges that a thread makes with the client's own transport while it waits for its call.
//!
//! Only that thread polls the call, so nothing is handed to another thread and back. While the
//! thread is in its transport, the call is not polled: no attempt begins and no slot is acquired.
//! Meanwhile, the call is not cancelled if its replica goes down; the client's read timeout ends
//! that attempt.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::Request;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::transport::foreign::{self, Host};
use tidegate::{Error, RequestBody};
use tidegate_bindings::{ExchangeOffer, OriginalHead, RuntimeBound, used_after_fork};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Exchange;
use crate::bridge::{LostBodies, Outcome, runtime};
use crate::errors;
use crate::response::Answer;

/// Offers the exchanges of one call to the thread that waits for the call.
pub(crate) struct ThreadHost {
    offers: UnboundedSender<ExchangeOffer>,
    original: OriginalHead,
}

impl Host for ThreadHost {
    fn begin(&self, request: Request<RequestBody>, exchange: foreign::Exchange) {
        // If the receiver is gone, the exchange is dropped.
        let _ = self.offers.send(ExchangeOffer::new(request, exchange, &self.original));
    }

    /// Has no effect: the transport cannot be interrupted, and the thread checks for cancellation
    /// when its transport returns.
    fn cancel(&self, _: u64) {}
}

type Running = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

enum State {
    Running(Running, UnboundedReceiver<ExchangeOffer>),
    Answered(Result<Answer, Error>),
}

/// What the waiting thread has to do next: return the answer, make an exchange, or deliver the next
/// chunk of a response body.
enum Event {
    Answer(Result<Answer, Error>),
    Offer(ExchangeOffer),
    ChunkWanted,
}

/// A call in flight whose exchanges are made by the thread that waits for the call.
#[pyclass(frozen, module = "tidegate._native")]
pub(crate) struct CustomCall {
    state: Mutex<Option<RuntimeBound<State>>>,
    lost_bodies: LostBodies,
}

impl CustomCall {
    /// Creates a call from the future that `call` returns. The future uses the [`ThreadHost`] to
    /// offer its exchanges to the waiting thread.
    pub(crate) fn new<F>(
        original: OriginalHead,
        lost_bodies: LostBodies,
        call: impl FnOnce(ThreadHost) -> F,
    ) -> PyResult<Self>
    where
        F: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        let (sender, offers) = unbounded_channel();
        let call = Box::pin(call(ThreadHost { offers: sender, original }));
        let call = RuntimeBound::new(State::Running(call, offers), runtime::handle()?);
        Ok(Self { state: Mutex::new(Some(call)), lost_bodies })
    }

    /// Takes the state of the call out of this object and returns it.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the call is over.
    fn take(&self) -> PyResult<RuntimeBound<State>> {
        self.state.lock().take().ok_or_else(|| PyRuntimeError::new_err("this call is over"))
    }

    /// Polls the call once, and stores its answer if the call has ended. This is necessary because
    /// a deadline may have passed while the thread was in its transport.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the call is over.
    fn poll_once(&self) -> PyResult<()> {
        let mut held = self.take()?;
        let runtime = held.runtime().clone();
        let _context = runtime.enter();
        if let Some(State::Running(call, _)) = held.get_mut()
            && let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            held = RuntimeBound::new(State::Answered(answer), runtime.clone());
        }
        *self.state.lock() = Some(held);
        Ok(())
    }
}

#[pymethods]
impl CustomCall {
    /// Runs the call until the thread has something to do. Returns the next exchange to make, the
    /// reply, or the error as an exception object. `exchange` is the exchange that the thread is
    /// making; None if it is making none. Returns None if the thread must continue `exchange`,
    /// because the caller waits for its next chunk or the exchange was cancelled.
    fn wait(&self, py: Python<'_>, exchange: Option<&Bound<'_, Exchange>>) -> PyResult<Py<PyAny>> {
        let held = self.take()?;
        let runtime = held.runtime().clone();
        let (mut call, mut offers) = match held.into_inner() {
            Some(State::Running(call, offers)) => (call, offers),
            Some(State::Answered(answer)) => return Box::new(answer).into_python(py),
            None => return errors::to_exception(py, &used_after_fork()),
        };
        let wanted = exchange.and_then(|exchange| exchange.get().wanted());
        let wanted = async move {
            match wanted {
                Some(wanted) => wanted.await,
                None => std::future::pending().await,
            }
        };
        let (event, call, offers) = self.lost_bodies.block_on(py, async move {
            let event = tokio::select! {
                biased;
                answer = &mut call => Event::Answer(answer),
                Some(offer) = offers.recv() => Event::Offer(offer),
                _ = wanted => Event::ChunkWanted,
            };
            (event, call, offers)
        })?;
        let outcome = match event {
            Event::Answer(answer) => return Box::new(answer).into_python(py),
            Event::Offer(offer) => Py::new(py, Exchange::new(offer, None))?.into_any(),
            Event::ChunkWanted => py.None(),
        };
        *self.state.lock() = Some(RuntimeBound::new(State::Running(call, offers), runtime));
        Ok(outcome)
    }

    /// Ends the exchange with an error, as `Exchange.fail` does. If the gate has ended the call
    /// meanwhile, has no effect on the exchange.
    fn fail(&self, exchange: &Bound<'_, Exchange>, kind: &str, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.poll_once()?;
        exchange.get().fail(kind, exception)
    }

    /// Drops the call at once, which ends its exchanges and releases its slot.
    fn cancel(&self) {
        let call = self.state.lock().take();
        drop(call);
    }
}
