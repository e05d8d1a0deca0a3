//! Exchanges that an event loop makes, each in a task.

use std::sync::Arc;

use http::Request;
use pyo3::intern;
use pyo3::prelude::*;
use tidegate::RequestBody;
use tidegate::transport::foreign::{self, Host};
use tidegate_bindings::{ExchangeOffer, OriginalHead};

use super::Exchange;
use crate::bridge::{Mailbox, Port, Post};

/// The host of one call: the event loop of the call.
pub(crate) struct OnLoop {
    mailbox: Mailbox,
    /// Returns the task that makes an exchange. Called on the thread of the loop only.
    serve: Arc<Py<PyAny>>,
    original: OriginalHead,
}

impl OnLoop {
    pub(crate) fn new(mailbox: Mailbox, serve: Py<PyAny>, original: OriginalHead) -> Self {
        Self { mailbox, serve: Arc::new(serve), original }
    }
}

impl Host for OnLoop {
    fn begin(&self, request: Request<RequestBody>, exchange: foreign::Exchange) {
        let offer = ExchangeOffer::new(request, exchange, &self.original);
        self.mailbox.post(Begin { serve: self.serve.clone(), offer });
    }

    fn cancel(&self, id: u64) {
        self.mailbox.post(Cancel(id));
    }
}

/// Starts the task of an exchange on the thread of the loop.
struct Begin {
    serve: Arc<Py<PyAny>>,
    offer: ExchangeOffer,
}

impl Post for Begin {
    fn deliver(self: Box<Self>, py: Python<'_>, port: &Py<Port>) -> PyResult<()> {
        let exchange = Bound::new(py, Exchange::new(self.offer, Some(port.clone_ref(py))))?;
        if exchange.get().cancelled() {
            return Ok(());
        }
        let task = self.serve.call1(py, (&exchange,))?;
        // Closed however the task ends, also if it never begins.
        let close = exchange.getattr(intern!(py, "close"))?;
        task.call_method1(py, intern!(py, "add_done_callback"), (close,))?;
        port.get().add_exchange_task(exchange.get().id(), task);
        Ok(())
    }
}

/// Cancels the task of the exchange with this number, on the thread of the loop.
struct Cancel(u64);

impl Post for Cancel {
    fn deliver(self: Box<Self>, py: Python<'_>, port: &Py<Port>) -> PyResult<()> {
        match port.get().exchange_task(py, self.0) {
            Some(task) => task.call_method0(py, intern!(py, "cancel")).map(drop),
            None => Ok(()),
        }
    }
}
