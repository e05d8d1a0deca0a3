//! Exchanges that the thread of a call makes while it waits for the call.
//!
//! Only that thread drives the call, so nothing is handed to another thread and back. While the
//! thread is in its transport, the call is not polled: no attempt begins and no slot is acquired.
//! Meanwhile, the call is not cancelled when its replica goes down; the client's read timeout ends
//! that attempt.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::Request;
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tidegate::transport::foreign::{self, Host};
use tidegate::{Error, RequestBody};
use tidegate_bindings::{ExchangeOffer, OriginalHead, RuntimeBound, forked};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Exchange;
use crate::bridge::{Outcome, block_on, runtime};
use crate::errors;
use crate::reply::Answer;

/// The host of one call: the thread of the call.
pub(crate) struct OnThread {
    offers: UnboundedSender<ExchangeOffer>,
    original: OriginalHead,
}

impl Host for OnThread {
    fn begin(&self, request: Request<RequestBody>, exchange: foreign::Exchange) {
        // If the receiver is gone, the exchange is dropped.
        let _ = self.offers.send(ExchangeOffer::new(request, exchange, &self.original));
    }

    /// Does nothing: the thread notices when its transport returns, which cannot be interrupted.
    fn cancel(&self, _: u64) {}
}

type Running = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

/// The state of a call: in flight, or answered but not read.
enum State {
    Running(Running, UnboundedReceiver<ExchangeOffer>),
    Answered(Result<Answer, Error>),
}

/// The reason that the thread has to act.
enum Event {
    Answer(Result<Answer, Error>),
    Offer(ExchangeOffer),
    Wanted,
}

/// A call in flight whose exchanges its own thread makes.
#[pyclass(frozen, module = "tidegate._native", name = "KeptCall")]
pub(crate) struct CustomCall(Mutex<Option<RuntimeBound<State>>>);

impl CustomCall {
    /// Prepares the call that `call` returns for its host.
    pub(crate) fn new<F>(original: OriginalHead, call: impl FnOnce(OnThread) -> F) -> PyResult<Self>
    where
        F: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        let (sender, offers) = unbounded_channel();
        let call = Box::pin(call(OnThread { offers: sender, original }));
        let call = RuntimeBound::new(State::Running(call, offers), runtime::handle()?);
        Ok(Self(Mutex::new(Some(call))))
    }

    /// Takes the state of the call, or returns `RuntimeError` if the call is over.
    fn take(&self) -> PyResult<RuntimeBound<State>> {
        self.0.lock().take().ok_or_else(|| PyRuntimeError::new_err("this call is over"))
    }

    /// Polls the call: a deadline may have passed while the thread was in its transport.
    fn poll_once(&self) -> PyResult<()> {
        let mut held = self.take()?;
        let runtime = held.runtime().clone();
        let _context = runtime.enter();
        if let Some(State::Running(call, _)) = held.get_mut()
            && let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            held = RuntimeBound::new(State::Answered(answer), runtime.clone());
        }
        *self.0.lock() = Some(held);
        Ok(())
    }
}

#[pymethods]
impl CustomCall {
    /// Runs the call until the thread has to act. Returns the next exchange to make, the reply, or
    /// the error. None means that `exchange` should continue, because its next chunk is wanted or
    /// it was cancelled.
    fn wait(&self, py: Python<'_>, exchange: Option<&Bound<'_, Exchange>>) -> PyResult<Py<PyAny>> {
        let held = self.take()?;
        let runtime = held.runtime().clone();
        let (mut call, mut offers) = match held.into_inner() {
            Some(State::Running(call, offers)) => (call, offers),
            Some(State::Answered(answer)) => return Box::new(answer).into_python(py),
            None => return errors::instance(py, &forked()),
        };
        let wanted = exchange.and_then(|exchange| exchange.get().wanted());
        let wanted = async move {
            match wanted {
                Some(wanted) => wanted.await,
                None => std::future::pending().await,
            }
        };
        let (event, call, offers) = block_on(py, async move {
            let event = tokio::select! {
                biased;
                answer = &mut call => Event::Answer(answer),
                Some(offer) = offers.recv() => Event::Offer(offer),
                _ = wanted => Event::Wanted,
            };
            (event, call, offers)
        })?;
        let outcome = match event {
            Event::Answer(answer) => return Box::new(answer).into_python(py),
            Event::Offer(offer) => Py::new(py, Exchange::new(offer, None))?.into_any(),
            Event::Wanted => py.None(),
        };
        *self.0.lock() = Some(RuntimeBound::new(State::Running(call, offers), runtime));
        Ok(outcome)
    }

    /// Ends the exchange with an error, as `Exchange.fail`, unless the gate has ended the call
    /// meanwhile.
    fn fail(&self, exchange: &Bound<'_, Exchange>, kind: &str, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.poll_once()?;
        exchange.get().fail(kind, exception)
    }

    /// Drops the call at once.
    fn cancel(&self) {
        let call = self.0.lock().take();
        drop(call);
    }
}
