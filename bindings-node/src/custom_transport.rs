//! Calls whose exchanges the caller's own fetch makes, on the event loop that made the call.
//!
//! A worker thread of the runtime offers the exchange to JavaScript and continues with other work.
//! JavaScript (`ts/fetch/custom-fetch.ts`) makes the exchange, and reports the response through
//! [`Exchange`].

use std::sync::Arc;

use http::{Request, Response};
use napi::Result;
use napi_derive::napi;
use tidegate::transport::Foreign;
use tidegate::transport::foreign::{self, Host};
use tidegate::{Error, ErrorKind, RequestBody};
use tidegate_bindings::{ExchangeHandle, ExchangeOffer, OriginalHead, transport_error, unread_body};

use crate::bridge::{CompletionKind, Outcome, Port, Queue, Row};
use crate::errors::ThrownIndex;
use crate::request;
use crate::values::Latin1;

/// The index of an attempt that the caller's own fetch made. JavaScript stores the `Response` of
/// the attempt in a list at this index.
#[derive(Clone, Copy)]
pub(crate) struct AttemptIndex(pub(crate) u32);

/// Returns the transport for the call with this number: the caller's own fetch makes its exchanges,
/// on the event loop of `port`.
pub(crate) fn transport(port: &Port, number: u32, request: &Request<RequestBody>) -> Foreign {
    Foreign::new(LoopHost { queue: port.queue(), number, original: OriginalHead::from_request(request) })
}

/// Returns a placeholder for a request body that the caller's own fetch reads itself.
pub(crate) fn unread_upload() -> RequestBody {
    unread_body("the caller's own fetch")
}

/// Offers the exchanges of one call to the event loop that made the call.
struct LoopHost {
    queue: Arc<Queue>,
    /// The number under which JavaScript waits for the call.
    number: u32,
    original: OriginalHead,
}

impl Host for LoopHost {
    fn begin(&self, request: Request<RequestBody>, exchange: foreign::Exchange) {
        self.queue.offer(self.number, ExchangeOffer::new(request, exchange, &self.original));
    }

    fn cancel(&self, id: u64) {
        self.queue.cancel(id);
    }
}

impl Outcome for ExchangeOffer {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        let mut changes = Vec::new();
        for (name, value) in &self.changed_headers {
            request::append_line(&mut changes, name, value);
        }
        row.kind(CompletionKind::Exchange)?;
        row.put(0, Exchange(self.exchange))?;
        row.put(1, Latin1(changes))?;
        row.put(2, self.changed_url)
    }
}

/// One exchange that the caller's own fetch makes. Dropping or closing it reports that fetch has
/// finished. A cancelled exchange occupies its slot until then, but at most 5 s.
#[napi]
pub struct Exchange(ExchangeHandle);

#[napi]
impl Exchange {
    /// The id of the exchange. If the gate cancels the exchange, JavaScript receives this id.
    #[napi(getter)]
    pub fn id(&self) -> f64 {
        self.0.id() as f64
    }

    /// Reports that fetch has read the request body to its end. The time limit for the response
    /// starts at this moment.
    #[napi]
    pub fn body_sent(&self) {
        self.0.on_body_sent();
    }

    /// Reports the response head of an attempt. Returns `true` if the head was accepted. Returns
    /// `false` if the exchange was cancelled, has ended or has a head already, or if the head is
    /// malformed, which fails the exchange.
    ///
    /// `attempt` is the index under which JavaScript stores the response. `headers` has two lines
    /// for each header: `name\nvalue\n`.
    #[napi]
    pub fn answer(&self, attempt: u32, status: u16, headers: Latin1) -> bool {
        let head = Response::builder().status(status).extension(AttemptIndex(attempt)).body(());
        let (Ok(mut head), Ok(headers)) = (head, request::parse(&headers.0)) else {
            let text = "the caller's own fetch answered with a malformed head";
            self.0.fail(Error::new(ErrorKind::Transport, text));
            return false;
        };
        *head.headers_mut() = headers;
        self.0.answer(head)
    }

    /// Sends a chunk of the response body to the caller. Returns `true` if fetch may send the next
    /// chunk now, `false` if it must wait for `ready` first, and null if the caller no longer reads
    /// the response or the exchange has ended.
    #[napi]
    pub fn chunk(&self, chunk: &[u8]) -> Option<bool> {
        self.0.chunk(chunk)
    }

    /// Completes `number` in JavaScript when fetch may send the next chunk, when the caller no
    /// longer reads the response, or when the exchange has ended.
    #[napi]
    pub fn ready(&self, port: &Port, number: u32) {
        let room = self.0.ready();
        port.submit(number, async move {
            room.await;
            Ready
        });
    }

    /// Reports that the response body is complete, which ends the exchange successfully.
    #[napi]
    pub fn end(&self) {
        self.0.end();
    }

    /// Ends the exchange with the error that [`transport_error`] returns for `kind` and `message`.
    /// `thrown` is the index under which JavaScript stores the value that fetch threw.
    #[napi]
    pub fn fail(&self, kind: String, message: String, thrown: u32) {
        self.0.fail(transport_error(&kind, message).with_source(ThrownIndex(thrown)));
    }

    /// Reports that fetch has finished. If the exchange is still open, it fails. Idempotent.
    #[napi]
    pub fn close(&self) {
        self.0.close();
    }
}

/// The result of a wait that has no value, such as the wait until an upload can take its next
/// chunk.
pub(crate) struct Ready;

impl Outcome for Ready {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        row.kind(CompletionKind::Ready)
    }
}
