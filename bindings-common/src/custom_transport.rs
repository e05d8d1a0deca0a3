//! Exchanges that are made by the caller's own transport, in the host language.
//!
//! A worker offers an exchange to the host language and continues with other work. The transport
//! there answers through the [`ExchangeHandle`].

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame};
use parking_lot::Mutex;
use tidegate::internals::Call;
use tidegate::transport::foreign::{Exchange, SendState};
use tidegate::{Error, ErrorKind, RequestBody};

use crate::runtime_bound::RuntimeBound;

/// The URL and the headers of a request as the caller made it. The host language has that request.
pub struct OriginalHead {
    uri: Uri,
    headers: HeaderMap,
}

impl OriginalHead {
    /// Remembers the head of a request.
    pub fn of(request: &Request<RequestBody>) -> Self {
        Self { uri: request.uri().clone(), headers: request.headers().clone() }
    }
}

/// An exchange to be made in the host language, with the changes that the core made to its request.
pub struct ExchangeOffer {
    /// The exchange.
    pub exchange: ExchangeHandle,
    /// The headers that the core changed or added.
    pub changed_headers: Vec<(HeaderName, HeaderValue)>,
    /// The URL, if the core changed it: that of a replica.
    pub changed_url: Option<String>,
    /// How long the call can wait for the exchange. `None` without a limit.
    pub max_wait: Option<Duration>,
}

impl ExchangeOffer {
    /// Returns the offer of an exchange. Panics outside a runtime.
    pub fn new(request: Request<RequestBody>, exchange: Exchange, original: &OriginalHead) -> Self {
        let (head, body) = request.into_parts();
        let values =
            |headers: &HeaderMap, name| headers.get_all(name).into_iter().cloned().collect::<Vec<_>>();
        let mut changed_headers = Vec::new();
        for name in head.headers.keys() {
            let now = values(&head.headers, name);
            if now != values(&original.headers, name) {
                changed_headers.extend(now.into_iter().map(|value| (name.clone(), value)));
            }
        }
        let changed_url = (head.uri != original.uri).then(|| head.uri.to_string());
        let max_wait = head.extensions.get::<Call>().map(Call::patience);
        let exchange = ExchangeHandle::new(exchange, body);
        Self { exchange, changed_headers, changed_url, max_wait }
    }
}

/// The host language's handle to one exchange. Dropping or closing it reports that the transport
/// has finished. A cancelled exchange keeps its slot until then.
pub struct ExchangeHandle {
    open: Mutex<Option<RuntimeBound<Open>>>,
    id: u64,
}

/// An exchange that has not ended.
struct Open {
    exchange: Exchange,
    /// The request body, until it was sent.
    body: Option<RequestBody>,
}

impl ExchangeHandle {
    fn new(exchange: Exchange, body: RequestBody) -> Self {
        let id = exchange.id();
        let open = RuntimeBound::here(Open { exchange, body: Some(body) });
        Self { open: Mutex::new(Some(open)), id }
    }

    /// Returns the number that identifies the exchange in cancellations.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Runs `f` on the exchange, unless it is over or belongs to the parent of a fork.
    pub fn with<T>(&self, f: impl FnOnce(&Exchange) -> T) -> Option<T> {
        self.open.lock().as_ref().and_then(RuntimeBound::get).map(|open| f(&open.exchange))
    }

    /// Ends the handle, and returns the exchange if it is still open.
    fn take(&self) -> Option<Exchange> {
        let open = self.open.lock().take();
        open.and_then(RuntimeBound::into_inner).map(|open| open.exchange)
    }

    /// Returns `true` if the exchange was cancelled or has ended.
    pub fn is_cancelled(&self) -> bool {
        self.with(Exchange::is_cancelled).unwrap_or(true)
    }

    /// Reports that the request body was read to its end. The time limit of the response starts
    /// here.
    pub fn on_body_sent(&self) {
        let body =
            self.open.lock().as_mut().and_then(RuntimeBound::get_mut).and_then(|open| open.body.take());
        drop(body);
    }

    /// Passes on the response head. Returns `false` if the exchange was cancelled or answered
    /// before.
    pub fn answer(&self, head: Response<()>) -> bool {
        self.with(|exchange| exchange.answer(head)).unwrap_or(false)
    }

    /// Passes on a chunk. Returns `Some(true)` if the transport may continue, `Some(false)` if it
    /// must wait for room first, and `None` if the reader is gone.
    pub fn chunk(&self, chunk: &[u8]) -> Option<bool> {
        let chunk = Bytes::copy_from_slice(chunk);
        match self.with(|exchange| exchange.chunk(chunk))? {
            SendState::Open => Some(true),
            SendState::Full => Some(false),
            SendState::Closed => None,
        }
    }

    /// Waits for room for a chunk. Resolves to `false` if the reader is gone.
    pub fn room(&self) -> impl Future<Output = bool> + Send + use<> {
        let room = self.with(Exchange::room);
        async move {
            match room {
                Some(room) => room.await,
                None => false,
            }
        }
    }

    /// Ends the body successfully.
    pub fn end(&self) {
        if let Some(exchange) = self.take() {
            exchange.end();
        }
    }

    /// Ends the exchange with an error.
    pub fn fail(&self, error: Error) {
        if let Some(exchange) = self.take() {
            exchange.fail(error);
        }
    }

    /// Reports that the transport has finished. Idempotent.
    pub fn close(&self) {
        drop(self.take());
    }
}

/// Returns the error of a failed transport in the host language. `kind` is the name of the
/// failure's kind; failures of an unknown kind are not retried.
pub fn transport_error(kind: &str, message: String) -> Error {
    const KINDS: [ErrorKind; 6] = [
        ErrorKind::Connect,
        ErrorKind::ConnectTimeout,
        ErrorKind::FirstTokenTimeout,
        ErrorKind::IdleTimeout,
        ErrorKind::Transport,
        ErrorKind::Truncated,
    ];
    match kind {
        // The client's own pool had no free connection: nothing was sent, and the target is not at
        // fault.
        "pool" => Error::new(ErrorKind::ConnectTimeout, message).with_local_cause(),
        // The host answered that no process listens there.
        "refused" => Error::new(ErrorKind::Connect, message).with_connect_refused(),
        _ => {
            let known = KINDS.into_iter().find(|known| known.as_str() == kind);
            Error::new(known.unwrap_or(ErrorKind::Request), message)
        }
    }
}

/// Returns the request body of an upload that the transport in the host language reads itself.
/// `reader` names that transport in the error of a read.
pub fn unread_body(reader: &'static str) -> RequestBody {
    RequestBody::stream(UnreadBody(reader))
}

/// A body whose reads fail, because the transport reads the upload itself.
struct UnreadBody(&'static str);

impl Body for UnreadBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let error = Error::new(ErrorKind::Request, format!("this body is read by {}", self.0));
        Poll::Ready(Some(Err(error)))
    }
}
