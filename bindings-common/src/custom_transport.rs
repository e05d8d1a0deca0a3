//! Exchanges that the caller's own transport makes in the host language (Python or JavaScript).
//!
//! A worker of the runtime offers an exchange to the host language and continues with other work.
//! The transport there answers through the [`ExchangeHandle`].

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

/// The URL and the headers of a request as the caller made it, before the core changed them.
pub struct OriginalHead {
    uri: Uri,
    headers: HeaderMap,
}

impl OriginalHead {
    /// Copies the URL and the headers of a request.
    pub fn from_request(request: &Request<RequestBody>) -> Self {
        Self { uri: request.uri().clone(), headers: request.headers().clone() }
    }
}

/// An exchange that the host language is to make, with the core's changes to the caller's request.
pub struct ExchangeOffer {
    /// The handle through which the caller's own transport answers.
    pub exchange: ExchangeHandle,
    /// The headers that the core changed or added, with their new values.
    pub changed_headers: Vec<(HeaderName, HeaderValue)>,
    /// The URL at a replica, or `None` if the core did not change the URL.
    pub changed_url: Option<String>,
    /// How long the call can wait for the exchange: until its deadline or, if shorter, its longest
    /// timeout. `None` if the request belongs to no call.
    pub max_wait: Option<Duration>,
}

impl ExchangeOffer {
    /// Returns the offer of an exchange, with the differences between `request` and `original`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
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

/// The handle by which the caller's own transport reports on one exchange. Dropping or closing it
/// reports that the transport has finished. A cancelled exchange keeps its slot until then.
pub struct ExchangeHandle {
    open: Mutex<Option<RuntimeBound<Open>>>,
    id: u64,
}

struct Open {
    exchange: Exchange,
    /// The request body, or `None` after the transport has read it.
    body: Option<RequestBody>,
}

impl ExchangeHandle {
    fn new(exchange: Exchange, body: RequestBody) -> Self {
        let id = exchange.id();
        let open = RuntimeBound::in_current(Open { exchange, body: Some(body) });
        Self { open: Mutex::new(Some(open)), id }
    }

    /// Returns the number of the exchange, which cancellations name.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Runs `f` on the exchange. Returns `None` if the exchange has ended or belongs to the parent
    /// of a forked process.
    pub fn with<T>(&self, f: impl FnOnce(&Exchange) -> T) -> Option<T> {
        self.open.lock().as_ref().and_then(RuntimeBound::get).map(|open| f(&open.exchange))
    }

    /// Removes the exchange from the handle. Returns `None` if it has ended or belongs to the
    /// parent of a forked process.
    fn take(&self) -> Option<Exchange> {
        let open = self.open.lock().take();
        open.and_then(RuntimeBound::into_inner).map(|open| open.exchange)
    }

    /// Returns `true` if the exchange was cancelled or has ended.
    pub fn is_cancelled(&self) -> bool {
        self.with(Exchange::is_cancelled).unwrap_or(true)
    }

    /// Reports that the transport has read the request body to its end. The time limit for the
    /// response starts now.
    pub fn on_body_sent(&self) {
        let body =
            self.open.lock().as_mut().and_then(RuntimeBound::get_mut).and_then(|open| open.body.take());
        drop(body);
    }

    /// Reports the response head. Returns `false` if the exchange was cancelled or has a head
    /// already.
    pub fn answer(&self, head: Response<()>) -> bool {
        self.with(|exchange| exchange.answer(head)).unwrap_or(false)
    }

    /// Passes on a chunk of the response body. Returns `Some(true)` if the transport may continue,
    /// `Some(false)` if it must wait for [`Self::ready`] first, and `None` if the reader of the
    /// response is gone.
    pub fn chunk(&self, chunk: &[u8]) -> Option<bool> {
        let chunk = Bytes::copy_from_slice(chunk);
        match self.with(|exchange| exchange.chunk(chunk))? {
            SendState::Open => Some(true),
            SendState::Full => Some(false),
            SendState::Closed => None,
        }
    }

    /// Waits until another chunk of the response body can be passed on. Resolves to `false` if the
    /// reader of the response is gone.
    pub fn ready(&self) -> impl Future<Output = bool> + Send + use<> {
        let room = self.with(Exchange::room);
        async move {
            match room {
                Some(room) => room.await,
                None => false,
            }
        }
    }

    /// Reports that the response body is complete, which ends the exchange.
    pub fn end(&self) {
        if let Some(exchange) = self.take() {
            exchange.end();
        }
    }

    /// Reports that the exchange failed with this error, which ends the exchange.
    pub fn fail(&self, error: Error) {
        if let Some(exchange) = self.take() {
            exchange.fail(error);
        }
    }

    /// Reports that the transport has finished. Ends the exchange if it is still open. Idempotent.
    pub fn close(&self) {
        drop(self.take());
    }
}

/// Returns the error of a failed transport in the host language.
///
/// `kind` is the name of an [`ErrorKind`], `pool` (the client had no free connection) or `refused`
/// (no process listens at the address). Failures of any other kind are not retried.
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
        // Nothing was sent, and the target is not at fault.
        "pool" => Error::new(ErrorKind::ConnectTimeout, message).with_local_cause(),
        "refused" => Error::new(ErrorKind::Connect, message).with_connect_refused(),
        _ => {
            let known = KINDS.into_iter().find(|known| known.as_str() == kind);
            Error::new(known.unwrap_or(ErrorKind::Request), message)
        }
    }
}

/// Returns a placeholder for a request body that the transport in the host language reads itself.
/// Reading the placeholder fails with an error that names `reader`, the transport.
pub fn unread_body(reader: &'static str) -> RequestBody {
    RequestBody::stream(UnreadBody(reader))
}

/// A request body whose reads fail, because the transport in the host language reads the upload.
struct UnreadBody(&'static str);

impl Body for UnreadBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let error = Error::new(ErrorKind::Request, format!("this body is read by {}", self.0));
        Poll::Ready(Some(Err(error)))
    }
}
