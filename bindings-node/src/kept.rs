//! Calls that go by the caller's own fetch: the exchange comes back to the event loop that made the call.
//!
//! Workers hand an exchange over and are done with it. What serves it is JavaScript (`ts/fetch/kept.ts`); what that brings goes back
//! through [`Kept`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body::{Body, Frame};
use napi::Result;
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::transport::Foreign;
use tidegate::transport::foreign::{Exchange, Host, Room};
use tidegate::{Error, ErrorKind, RequestBody};
use tokio::runtime::Handle;

use crate::bridge::{Held, Kind, Outcome, Port, Queue, Row};
use crate::request;
use crate::values::Latin1;

/// Which attempt of its call a response came from: JavaScript has the platform's own response to it.
#[derive(Clone, Copy)]
pub(crate) struct Attempt(pub(crate) u32);

/// What JavaScript threw, by the place where it keeps it: the caller gets back the very object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thrown(pub(crate) u32);

impl std::fmt::Display for Thrown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the caller's own fetch threw")
    }
}

impl std::error::Error for Thrown {}

/// The transport of one call: the loop that made it.
pub(crate) fn transport(port: &Port, number: u32, request: &Request<RequestBody>) -> Foreign {
    let (uri, headers) = (request.uri().clone(), request.headers().clone());
    Foreign::new(OnLoop { queue: port.queue(), number, uri, headers })
}

struct OnLoop {
    queue: Arc<Queue>,
    /// The call's.
    number: u32,
    /// URL and headers as the caller sends them.
    uri: Uri,
    headers: HeaderMap,
}

impl Host for OnLoop {
    fn begin(&self, request: Request<RequestBody>, exchange: Exchange) {
        let (head, body) = request.into_parts();
        let differs =
            |name: &&http::HeaderName| !head.headers.get_all(*name).iter().eq(self.headers.get_all(*name));
        let mut changes = Vec::new();
        for name in head.headers.keys().filter(differs) {
            for value in head.headers.get_all(name) {
                request::line(&mut changes, name, value);
            }
        }
        let open = Held::new(Open { exchange, body: Some(body) }, Handle::current());
        let url = (head.uri != self.uri).then(|| head.uri.to_string());
        self.queue.begin(self.number, Letter { open, changes, url });
    }

    fn cancel(&self, id: u64) {
        self.queue.cancel(id);
    }
}

/// An exchange on its way to JavaScript, and what that must know of its request: the rest it has.
pub(crate) struct Letter {
    open: Held<Open>,
    /// Headers that the core changed.
    changes: Vec<u8>,
    /// Where it goes, where the core changed that: to a replica.
    url: Option<String>,
}

struct Open {
    exchange: Exchange,
    /// Until it was sent.
    body: Option<RequestBody>,
}

impl Outcome for Letter {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        let Letter { mut open, changes, url } = *self;
        let id = open.get_mut().map_or(0, |open| open.exchange.id());
        row.kind(Kind::Begin)?;
        row.put(0, Kept { open: Mutex::new(Some(open)), id })?;
        row.put(1, Latin1(changes))?;
        row.put(2, url)
    }
}

/// One exchange, as JavaScript holds it. Losing it, or `close`, says that this side is over: until then a cancelled one keeps its slot.
#[napi]
pub struct Kept {
    open: Mutex<Option<Held<Open>>>,
    id: u64,
}

impl Kept {
    fn with<T>(&self, what: impl FnOnce(&mut Open) -> T) -> Option<T> {
        self.open.lock().as_mut().and_then(Held::get_mut).map(what)
    }

    fn take(&self) -> Option<Exchange> {
        let held = self.open.lock().take();
        held.and_then(Held::into_inner).map(|open| open.exchange)
    }
}

#[napi]
impl Kept {
    /// What a cancel names it by.
    #[napi(getter)]
    pub fn id(&self) -> f64 {
        self.id as f64
    }

    /// The request's body was read to its end: from now on the answer can be late.
    #[napi]
    pub fn sent(&self) {
        let body = self.with(|open| open.body.take());
        drop(body);
    }

    /// The head of the answer to that attempt. False: nobody waits for it.
    #[napi]
    pub fn answer(&self, attempt: u32, status: u16, headers: Latin1) -> bool {
        let head = Response::builder().status(status).extension(Attempt(attempt)).body(());
        let head = match (head, request::parse(&headers.0)) {
            (Ok(mut head), Ok(headers)) => {
                *head.headers_mut() = headers;
                head
            }
            (Err(_), _) | (_, Err(_)) => {
                let text = "the caller's own fetch answered with a malformed head";
                self.give_up(Error::new(ErrorKind::Transport, text));
                return false;
            }
        };
        self.with(|open| open.exchange.answer(head)).unwrap_or(false)
    }

    /// The next chunk. True: go on. False: wait for room. Null: nobody reads any more.
    #[napi]
    pub fn chunk(&self, chunk: &[u8]) -> Option<bool> {
        let chunk = Bytes::copy_from_slice(chunk);
        match self.with(|open| open.exchange.chunk(chunk))? {
            Room::Now => Some(true),
            Room::Later => Some(false),
            Room::Gone => None,
        }
    }

    /// Says with that number once there is room, or nobody reads any more.
    #[napi]
    pub fn room(&self, port: &Port, number: u32) {
        let room = self.with(|open| open.exchange.room());
        port.submit(number, async move {
            if let Some(room) = room {
                room.await;
            }
            Ready
        });
    }

    /// The body is whole.
    #[napi]
    pub fn end(&self) {
        if let Some(exchange) = self.take() {
            exchange.end();
        }
    }

    /// It failed: as what, and where what was thrown is kept.
    #[napi]
    pub fn fail(&self, kind: String, message: String, thrown: u32) {
        // The host itself said that nobody listens there.
        let refused = kind == "refused";
        let error = if refused {
            Error::new(ErrorKind::Connect, message).nobody_listens()
        } else {
            Error::new(kind_of(&kind), message)
        };
        self.give_up(error.because(Thrown(thrown)));
    }

    /// This side is over. Idempotent.
    #[napi]
    pub fn close(&self) {
        drop(self.take());
    }

    fn give_up(&self, error: Error) {
        if let Some(exchange) = self.take() {
            exchange.fail(error);
        }
    }
}

fn kind_of(kind: &str) -> ErrorKind {
    const KINDS: [ErrorKind; 6] = [
        ErrorKind::Connect,
        ErrorKind::ConnectTimeout,
        ErrorKind::FirstTokenTimeout,
        ErrorKind::IdleTimeout,
        ErrorKind::Transport,
        ErrorKind::Truncated,
    ];
    // What nobody knows is not repeated.
    KINDS.into_iter().find(|known| known.as_str() == kind).unwrap_or(ErrorKind::Request)
}

/// There is room, somewhere.
pub(crate) struct Ready;

impl Outcome for Ready {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        row.kind(Kind::Room)
    }
}

/// The body of an upload that the caller's own fetch reads from the caller's own stream.
pub(crate) fn upload() -> RequestBody {
    RequestBody::stream(Unread)
}

struct Unread;

impl Body for Unread {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Error>>> {
        let error = Error::new(ErrorKind::Request, "this body is read by the caller's own fetch");
        Poll::Ready(Some(Err(error)))
    }
}
