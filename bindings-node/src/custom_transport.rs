//! Calls over the caller's own fetch: the exchange is made on the event loop of the call.
//!
//! A worker offers the exchange and continues with other work. JavaScript (`ts/fetch/kept.ts`)
//! makes the exchange, and answers through [`Kept`].

use std::sync::Arc;

use http::{Request, Response};
use napi::Result;
use napi_derive::napi;
use tidegate::transport::Foreign;
use tidegate::transport::foreign::{Exchange, Host};
use tidegate::{Error, ErrorKind, RequestBody};
use tidegate_bindings::{ExchangeHandle, ExchangeOffer, OriginalHead, transport_error, unread_body};

use crate::bridge::{Kind, Outcome, Port, Queue, Row};
use crate::failure::Thrown;
use crate::request;
use crate::values::Latin1;

/// The attempt that a response came from: JavaScript has the platform's own response to it.
#[derive(Clone, Copy)]
pub(crate) struct Attempt(pub(crate) u32);

/// Returns the transport of one call: the event loop that made it.
pub(crate) fn transport(port: &Port, number: u32, request: &Request<RequestBody>) -> Foreign {
    Foreign::new(OnLoop { queue: port.queue(), number, original: OriginalHead::of(request) })
}

/// Returns the body of an upload that the caller's own fetch reads from the caller's own stream.
pub(crate) fn upload() -> RequestBody {
    unread_body("the caller's own fetch")
}

/// The event loop that makes the exchanges of one call.
struct OnLoop {
    queue: Arc<Queue>,
    /// The number of the call.
    number: u32,
    original: OriginalHead,
}

impl Host for OnLoop {
    fn begin(&self, request: Request<RequestBody>, exchange: Exchange) {
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
        row.kind(Kind::Begin)?;
        row.put(0, Kept(self.exchange))?;
        row.put(1, Latin1(changes))?;
        row.put(2, self.changed_url)
    }
}

/// One exchange over the caller's own fetch. Dropping or closing it reports that fetch has
/// finished. A cancelled exchange keeps its slot until then.
#[napi]
pub struct Kept(ExchangeHandle);

#[napi]
impl Kept {
    /// The number that a cancellation names.
    #[napi(getter)]
    pub fn id(&self) -> f64 {
        self.0.id() as f64
    }

    /// Reports that the request body was read to its end. The time limit of the response starts
    /// here.
    #[napi]
    pub fn sent(&self) {
        self.0.on_body_sent();
    }

    /// Passes on the response head of that attempt. Returns `false` if the exchange was cancelled.
    #[napi]
    pub fn answer(&self, attempt: u32, status: u16, headers: Latin1) -> bool {
        let head = Response::builder().status(status).extension(Attempt(attempt)).body(());
        let (Ok(mut head), Ok(headers)) = (head, request::parse(&headers.0)) else {
            let text = "the caller's own fetch answered with a malformed head";
            self.0.fail(Error::new(ErrorKind::Transport, text));
            return false;
        };
        *head.headers_mut() = headers;
        self.0.answer(head)
    }

    /// Passes on the next chunk. Returns `true` if fetch may continue, `false` if it must wait for
    /// room first, and null if the reader is gone.
    #[napi]
    pub fn chunk(&self, chunk: &[u8]) -> Option<bool> {
        self.0.chunk(chunk)
    }

    /// Resolves the number once there is room or the reader is gone.
    #[napi]
    pub fn room(&self, port: &Port, number: u32) {
        let room = self.0.room();
        port.submit(number, async move {
            room.await;
            Ready
        });
    }

    /// Ends the body successfully.
    #[napi]
    pub fn end(&self) {
        self.0.end();
    }

    /// Ends the exchange with an error of this kind. `thrown` is the index of the value that fetch
    /// threw.
    #[napi]
    pub fn fail(&self, kind: String, message: String, thrown: u32) {
        self.0.fail(transport_error(&kind, message).with_source(Thrown(thrown)));
    }

    /// Reports that fetch has finished. Idempotent.
    #[napi]
    pub fn close(&self) {
        self.0.close();
    }
}

/// Tells JavaScript that there may be room now.
pub(crate) struct Ready;

impl Outcome for Ready {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        row.kind(Kind::Room)
    }
}
