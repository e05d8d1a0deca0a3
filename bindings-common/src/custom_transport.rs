//! HTTP exchanges that the caller's own transport makes in the host language (Python or
//! JavaScript), instead of the gate's transport.
//!
//! A worker thread of the runtime passes an [`ExchangeOffer`] to the host language and continues
//! with other work. The transport there reports the response through the [`ExchangeHandle`].

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

/// The URL and the headers of a request as the program made it, before the core changes them.
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

/// A request to the host language to make one exchange. It lists what the core changed in the
/// original request.
pub struct ExchangeOffer {
    /// The handle through which the caller's own transport reports the response.
    pub exchange: ExchangeHandle,
    /// The headers that the core changed or added, with their new values.
    pub changed_headers: Vec<(HeaderName, HeaderValue)>,
    /// The URL at the replica that the core has chosen. `None` if the core did not change the URL.
    pub changed_url: Option<String>,
    /// The maximum time that the call waits for progress of the exchange: the time until its
    /// deadline or, if shorter, its longest timeout. `None` if the request belongs to no call.
    pub max_wait: Option<Duration>,
}

impl ExchangeOffer {
    /// Creates the offer of an exchange. The changes are the differences between `request` and
    /// `original`.
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

/// The handle through which the caller's own transport reports on one exchange. Dropping or closing
/// it reports that the transport has finished. A cancelled exchange occupies its slot until then,
/// but at most 5 s.
pub struct ExchangeHandle {
    open: Mutex<Option<RuntimeBound<Open>>>,
    id: u64,
}

struct Open {
    exchange: Exchange,
    /// The request body. `None` after the transport has read it to its end.
    body: Option<RequestBody>,
}

impl ExchangeHandle {
    fn new(exchange: Exchange, body: RequestBody) -> Self {
        let id = exchange.id();
        let open = RuntimeBound::in_current(Open { exchange, body: Some(body) });
        Self { open: Mutex::new(Some(open)), id }
    }

    /// Returns the id of the exchange. The core passes this id to the host language to cancel the
    /// exchange.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Calls `f` with the exchange, and returns its result. Returns `None` if the exchange has
    /// ended, or if it belongs to the parent of this forked process.
    pub fn with<T>(&self, f: impl FnOnce(&Exchange) -> T) -> Option<T> {
        self.open.lock().as_ref().and_then(RuntimeBound::get).map(|open| f(&open.exchange))
    }

    /// Takes the exchange out of the handle. Returns `None` if the exchange has ended, or if it
    /// belongs to the parent of this forked process.
    fn take(&self) -> Option<Exchange> {
        let open = self.open.lock().take();
        open.and_then(RuntimeBound::into_inner).map(|open| open.exchange)
    }

    /// Returns `true` if the exchange was cancelled or has ended.
    pub fn is_cancelled(&self) -> bool {
        self.with(Exchange::is_cancelled).unwrap_or(true)
    }

    /// Reports that the transport has read the request body to its end. The time limit for the
    /// response starts at this moment.
    pub fn on_body_sent(&self) {
        let body =
            self.open.lock().as_mut().and_then(RuntimeBound::get_mut).and_then(|open| open.body.take());
        drop(body);
    }

    /// Reports the response head, which is returned to the caller. Returns `true` if the head was
    /// accepted. Returns `false` without an effect if the exchange was cancelled, has ended, or has
    /// a head already.
    pub fn answer(&self, head: Response<()>) -> bool {
        self.with(|exchange| exchange.answer(head)).unwrap_or(false)
    }

    /// Sends a chunk of the response body to the caller. Returns `Some(true)` if the transport may
    /// send the next chunk now, `Some(false)` if it must wait for [`Self::ready`] first, and `None`
    /// if the caller no longer reads the response or the exchange has ended.
    pub fn chunk(&self, chunk: &[u8]) -> Option<bool> {
        let chunk = Bytes::copy_from_slice(chunk);
        match self.with(|exchange| exchange.chunk(chunk))? {
            SendState::Open => Some(true),
            SendState::Full => Some(false),
            SendState::Closed => None,
        }
    }

    /// Returns a future that resolves to `true` when the next chunk of the response body may be
    /// sent. It resolves to `false` if the caller no longer reads the response or the exchange has
    /// ended.
    pub fn ready(&self) -> impl Future<Output = bool> + Send + use<> {
        let room = self.with(Exchange::room);
        async move {
            match room {
                Some(room) => room.await,
                None => false,
            }
        }
    }

    /// Reports that the response body is complete, which ends the exchange successfully.
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

    /// Reports that the transport has finished. If the exchange is still open, it fails.
    /// Idempotent.
    pub fn close(&self) {
        drop(self.take());
    }
}

/// Returns the error for a failure of the transport in the host language.
///
/// `kind` is the name of an [`ErrorKind`] of the connection, such as `connect`, or one of two
/// additional names: `pool` (the client had no free connection) and `refused` (no process listens
/// at the address). Any other `kind` results in [`ErrorKind::Request`], which is not retried.
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
/// If the core reads the placeholder, the read fails with an error that names `reader`, the
/// transport.
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
