//! Exchanges that an event loop serves, each as a task.

use std::sync::Arc;

use http::Request;
use pyo3::intern;
use pyo3::prelude::*;
use tidegate::RequestBody;
use tidegate::transport::foreign::{self, Host};

use super::{Exchange, Letter, Original};
use crate::bridge::{Mailbox, Port, Post};

/// The host of one call: the loop that made it.
pub(crate) struct OnLoop {
    mailbox: Mailbox,
    /// Makes the task that serves an exchange. Never touched but on the loop's thread.
    serve: Arc<Py<PyAny>>,
    original: Original,
}

impl OnLoop {
    pub(crate) fn new(mailbox: Mailbox, serve: Py<PyAny>, original: Original) -> Self {
        Self { mailbox, serve: Arc::new(serve), original }
    }
}

impl Host for OnLoop {
    fn begin(&self, request: Request<RequestBody>, exchange: foreign::Exchange) {
        let letter = Letter::new(request, exchange, &self.original);
        self.mailbox.post(Begin { serve: self.serve.clone(), letter });
    }

    fn cancel(&self, id: u64) {
        self.mailbox.post(Cancel(id));
    }
}

struct Begin {
    serve: Arc<Py<PyAny>>,
    letter: Letter,
}

impl Post for Begin {
    fn deliver(self: Box<Self>, py: Python<'_>, port: &Py<Port>) -> PyResult<()> {
        let exchange = Bound::new(py, Exchange::new(self.letter, Some(port.clone_ref(py))))?;
        if exchange.get().cancelled() {
            return Ok(());
        }
        let task = self.serve.call1(py, (&exchange,))?;
        // However the task ends, and if it never began.
        let ended = exchange.getattr(intern!(py, "close"))?;
        task.call_method1(py, intern!(py, "add_done_callback"), (ended,))?;
        port.get().serving(exchange.get().number(), task);
        Ok(())
    }
}

struct Cancel(u64);

impl Post for Cancel {
    fn deliver(self: Box<Self>, py: Python<'_>, port: &Py<Port>) -> PyResult<()> {
        match port.get().task(py, self.0) {
            Some(task) => task.call_method0(py, intern!(py, "cancel")).map(drop),
            None => Ok(()),
        }
    }
}
