//! Calls that go by the client's own transport: the exchange comes back into Python, to the loop or the thread that made the call.
//!
//! Workers hand an exchange over and are done with it: what serves it is Python code on Python's side ([`on_loop`], [`on_thread`]), and
//! what it brings goes back through [`Exchange`].

mod exchange;
mod on_loop;
mod on_thread;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use http_body::{Body, Frame};
use pyo3::prelude::*;
use tidegate::call::Call;
use tidegate::transport::foreign;
use tidegate::{Error, ErrorKind, RequestBody};
use tokio::runtime::Handle;

pub(crate) use self::exchange::Exchange;
pub(crate) use self::on_loop::OnLoop;
pub(crate) use self::on_thread::KeptCall;
use crate::bridge::Held;

/// The extensions of the response that the client's own transport gave, on their way up.
#[derive(Clone)]
pub(crate) struct Extensions(pub(crate) Arc<Py<PyAny>>);

/// The request as the client made it: Python has that one.
pub(crate) struct Original {
    uri: Uri,
    headers: HeaderMap,
}

impl Original {
    pub(crate) fn of(request: &Request<RequestBody>) -> Self {
        Self { uri: request.uri().clone(), headers: request.headers().clone() }
    }
}

/// An exchange on its way to Python, and what Python must know of its request: the rest it has.
struct Letter {
    open: Held<Open>,
    /// Headers that the core changed.
    changes: Vec<(HeaderName, HeaderValue)>,
    /// Where it goes, where the core changed that: to a replica.
    url: Option<String>,
    patience: Option<Duration>,
}

/// What is dropped on one side of a fork only.
struct Open {
    exchange: foreign::Exchange,
    /// Until it was sent.
    body: Option<RequestBody>,
}

impl Letter {
    fn new(request: Request<RequestBody>, exchange: foreign::Exchange, original: &Original) -> Self {
        let (head, body) = request.into_parts();
        let before = &original.headers;
        let differs = |name: &&HeaderName| !head.headers.get_all(*name).iter().eq(before.get_all(*name));
        let changes = head.headers.keys().filter(differs);
        let changes =
            changes.filter_map(|name| Some((name.clone(), head.headers.get(name)?.clone()))).collect();
        let url = (head.uri != original.uri).then(|| head.uri.to_string());
        let patience = head.extensions.get::<Call>().map(Call::patience);
        let open = Held::new(Open { exchange, body: Some(body) }, Handle::current());
        Self { open, changes, url, patience }
    }
}

/// A body that the client's own transport takes from the client's request itself.
struct Unread;

/// The request body of an upload that is not read here.
pub(crate) fn upload() -> RequestBody {
    RequestBody::stream(Unread)
}

impl Body for Unread {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let error = Error::new(ErrorKind::Request, "this body is read by the client's own transport");
        Poll::Ready(Some(Err(error)))
    }
}
