//! HTTP/2 connections, based on hyper: each runs in a task of its own and carries many exchanges.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response, Uri, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::errors;
use super::stream::Stream;
use crate::body::RequestBody;
use crate::error::Error;

/// The maximum length of the header fields of a response in bytes, as for HTTP/1.1.
const MAX_HEADERS: u32 = 256 * 1024;
/// How many bytes of a response the server may send before the caller reads them. This bounds the
/// memory of unread bodies, because the window of the connection does not.
const STREAM_WINDOW: u32 = 512 * 1024;
/// The window of the connection in bytes: the largest that HTTP/2 allows, so that no unread body
/// holds up other calls.
///
/// h2 charges each unread frame below 256 bytes its difference to 256 bytes, and closes a
/// connection whose charges exceed half of this window.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// The minimum number of cancelled exchanges that a connection remembers for a second, to ignore
/// what the server still sends for them.
const MIN_REMEMBERED_RESETS: usize = 50;
/// After this time without data the server is asked whether the connection is still alive, as long
/// as an exchange is in flight.
const PING_AFTER: Duration = Duration::from_secs(20);
/// If no answer to that question comes within this time, the connection is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection as hyper runs it. Its task owns it.
type Driver = hyper::client::conn::http2::Connection<TokioIo<Stream>, Upload, Tasks>;

/// An HTTP/2 connection. Clones share it, and each clone counts as an exchange in flight.
#[derive(Clone)]
pub(super) struct Connection {
    sender: SendRequest<Upload>,
    /// Is asked what the server allows.
    driver: Weak<Mutex<Driver>>,
    /// Counts the clones.
    in_flight: Arc<()>,
}

impl Connection {
    /// Starts HTTP/2 on a stream, and spawns the task that runs it until the server closes it, or
    /// the last clone is dropped. It is used for at most `max_streams` exchanges at the same time.
    /// Until the settings of the server arrive, `allowed_streams` is the number of streams that it
    /// allows. `None` means hyper's default of 100.
    ///
    /// # Errors
    /// `Connect` if the connection fails at once.
    pub(super) async fn start(
        stream: Stream,
        max_streams: usize,
        allowed_streams: Option<usize>,
    ) -> Result<Self, Error> {
        let started = Builder::new(Tasks)
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_header_list_size(MAX_HEADERS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(allowed_streams)
            .max_concurrent_reset_streams(max_streams.max(MIN_REMEMBERED_RESETS))
            // Frames for cancelled exchanges that are no longer remembered are answered with
            // resets. By default, hyper closes the connection after 1,024 of them.
            .max_local_error_reset_streams(None::<usize>)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection): (_, Driver) = started.map_err(|error| errors::connect(&error))?;
        let owned = Arc::new(Mutex::new(connection));
        let driver = Arc::downgrade(&owned);
        // Its errors reach the exchanges.
        tokio::spawn(poll_fn(move |cx| Pin::new(&mut *owned.lock()).poll(cx).map(drop)));
        Ok(Self { sender, driver, in_flight: Arc::default() })
    }

    /// Returns the number of exchanges in flight. The clone that is asked does not count.
    pub(super) fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
    }

    /// Returns the number of streams that the server allows at the same time. `None` if the
    /// connection has ended, or if its task runs at this moment.
    pub(super) fn allowed_streams(&self) -> Option<usize> {
        let driver = self.driver.upgrade()?;
        // The task may be polling the body of a request, so it is not waited for.
        let driver = driver.try_lock()?;
        Some(driver.current_max_send_streams())
    }

    /// Returns `true` if the server has closed the connection, or said that it will.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request, and returns the response when its head has arrived. Also returns the guard
    /// of a streamed upload, or `None` if the body of the request is not a stream.
    ///
    /// # Errors
    /// The failure contains the request again if nothing was sent, or if the server has not
    /// processed it and its body is not a stream. `Request` if the `host` header names no host.
    ///
    /// # Cancel safety
    /// Dropping the future resets the stream. So does dropping both the response's body and the
    /// guard, also while flow control holds up the upload.
    pub(super) async fn exchange(
        &mut self,
        mut request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Option<UploadGuard>), Box<Failure>> {
        let copy = try_clone(&request);
        let host = request.headers_mut().remove(header::HOST);
        if let Some(host) = &host {
            *request.uri_mut() = with_authority(request.uri(), host.as_bytes())?;
        }
        let (guard, is_abandoned) = request.body().upload_progress().map(|_| oneshot::channel()).unzip();
        let request = request.map(|body| Upload { body, is_abandoned });
        let response = self.sender.try_send_request(request).await.map_err(|mut failure| {
            let mut unsent = failure.take_message().map(|request| request.map(|upload| upload.body));
            if let (Some(request), Some(host)) = (&mut unsent, host) {
                request.headers_mut().insert(header::HOST, host);
            }
            let refused = copy.filter(|_| errors::is_unprocessed(failure.error()));
            Box::new(Failure { error: errors::exchange(failure.error()), unsent, refused })
        })?;
        Ok((response, guard))
    }
}

/// Ends a streamed upload when it is dropped.
pub(super) type UploadGuard = oneshot::Sender<Infallible>;

tokio::task_local! {
    /// The signal that ends this task: the guard of the upload that the task sends was dropped.
    /// `None` if the task sends no streamed upload.
    static ABANDONED: RefCell<Option<oneshot::Receiver<Infallible>>>;
}

/// Spawns the tasks of a connection, and ends a task that sends an upload once its [`UploadGuard`]
/// is dropped.
///
/// hyper sends a body to its end even if the body of the response is dropped, and does not poll the
/// body while flow control holds it up. A task that ends drops its half of the stream, so that the
/// stream is reset as soon as the body of the response is dropped, too.
#[derive(Clone, Copy)]
struct Tasks;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let is_abandoned = poll_fn(|cx| {
            ABANDONED.with(|signal| match &mut *signal.borrow_mut() {
                Some(signal) => Pin::new(signal).poll(cx).map(drop),
                None => Poll::Pending,
            })
        });
        let either = async move {
            tokio::select! {
                biased;
                () = is_abandoned => {}
                () = task => {}
            }
        };
        tokio::spawn(ABANDONED.scope(RefCell::default(), either));
    }
}

/// The body of a request.
struct Upload {
    body: RequestBody,
    /// Resolves when the guard is dropped. `None` if the body is not a stream, and once the task
    /// that sends the body has the signal.
    is_abandoned: Option<oneshot::Receiver<Infallible>>,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if this.is_abandoned.is_some() {
            // Fails in the task of the connection, which polls each body once before it spawns the
            // task that sends the body.
            let _ = ABANDONED.try_with(|signal| signal.replace(this.is_abandoned.take()));
            // The task must poll the signal before it waits for the body or for flow control.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut this.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns a copy of a request, or `None` if its body is a stream. The extensions are not copied.
fn try_clone(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Returns the URL with the value of the `host` header as its authority, which HTTP/2 sends instead
/// of that header. The URL's own authority may contain a password.
///
/// # Errors
/// `Request` if `host` names no host.
fn with_authority(url: &Uri, host: &[u8]) -> Result<Uri, Box<Failure>> {
    let authority = Authority::try_from(host).map_err(|error| errors::request(&error));
    let replaced = authority.and_then(|authority| {
        let mut parts = url.clone().into_parts();
        parts.authority = Some(authority);
        Uri::from_parts(parts).map_err(|error| errors::request(&error))
    });
    replaced.map_err(|error| Box::new(Failure { error, unsent: None, refused: None }))
}

/// Why there is no response.
pub(super) struct Failure {
    pub(super) error: Error,
    /// The request, if nothing of it was sent.
    pub(super) unsent: Option<Request<RequestBody>>,
    /// A copy of the request, if it was sent and the server has not processed it. `None` if its
    /// body is a stream.
    pub(super) refused: Option<Request<RequestBody>>,
}
