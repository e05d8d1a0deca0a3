//! Exchanges that an event loop makes with the client's own transport, each in an asyncio task.

use std::sync::Arc;

use http::Request;
use pyo3::intern;
use pyo3::prelude::*;
use tidegate::RequestBody;
use tidegate::transport::foreign::{self, Host};
use tidegate_bindings::{ExchangeOffer, OriginalHead};

use super::Exchange;
use crate::bridge::{LoopAction, Mailbox, Port};

/// Offers the exchanges of one call to the event loop that made the call.
pub(crate) struct LoopHost {
    mailbox: Mailbox,
    /// The Python function that starts the asyncio task for an exchange and returns the task.
    /// Called only on the thread of the loop.
    serve: Arc<Py<PyAny>>,
    original: OriginalHead,
}

impl LoopHost {
    pub(crate) fn new(mailbox: Mailbox, serve: Py<PyAny>, original: OriginalHead) -> Self {
        Self { mailbox, serve: Arc::new(serve), original }
    }
}

impl Host for LoopHost {
    fn begin(&self, request: Request<RequestBody>, exchange: foreign::Exchange) {
        let offer = ExchangeOffer::new(request, exchange, &self.original);
        self.mailbox.post(StartExchange { serve: self.serve.clone(), offer });
    }

    fn cancel(&self, id: u64) {
        self.mailbox.post(CancelExchange(id));
    }
}

/// An action that starts the asyncio task of an exchange.
struct StartExchange {
    serve: Arc<Py<PyAny>>,
    offer: ExchangeOffer,
}

impl LoopAction for StartExchange {
    fn run(self: Box<Self>, py: Python<'_>, port: &Py<Port>) -> PyResult<()> {
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

/// An action that cancels the asyncio task of the exchange with this id.
struct CancelExchange(u64);

impl LoopAction for CancelExchange {
    fn run(self: Box<Self>, py: Python<'_>, port: &Py<Port>) -> PyResult<()> {
        match port.get().exchange_task(py, self.0) {
            Some(task) => task.call_method0(py, intern!(py, "cancel")).map(drop),
            None => Ok(()),
        }
    }
}
