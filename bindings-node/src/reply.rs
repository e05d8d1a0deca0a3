//! A response: its head and whatever is there of its body in one crossing, the rest pulled.

use std::sync::Arc;
use std::task::Poll;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Request};
use hyper::ext::ReasonPhrase;
use napi::bindgen_prelude::{BufferSlice, Either4, Null, Undefined};
use napi::{Env, Result};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{Client, Error, ErrorKind, RequestBody};

use crate::bridge::{Kind, Outcome, Port, Pull, Pulled, Ring, Row};
use crate::failure::{self, Failure};
use crate::kept::Attempt;
use crate::request::{self, Manner};
use crate::stream::{self, Begun, Stream};
use crate::values::{Chunk, Latin1, Whole};

/// What a call came to, as a worker hands it over.
pub(crate) struct Answer {
    status: u16,
    /// Of the status line; HTTP/2 has none, and the usual one stands in.
    reason: Vec<u8>,
    headers: HeaderMap,
    body: Begun,
    /// Of the caller's own fetch, where that made it.
    attempt: Option<Attempt>,
}

/// Makes the call and takes what comes with the head.
pub(crate) async fn exchange(
    client: Client,
    request: Request<RequestBody>,
    manner: Manner,
) -> std::result::Result<Answer, Error> {
    let response = match client.call(request).await {
        Err(error) if manner == Manner::AnswerAll || refusal(&error) => error.response(),
        response => response?,
    };
    let (head, body) = response.into_parts();
    let events =
        head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let body = stream::begin(body, events).await;
    let reason = match head.extensions.get::<ReasonPhrase>() {
        Some(reason) => reason.as_bytes().to_vec(),
        None => head.status.canonical_reason().unwrap_or_default().into(),
    };
    let attempt = head.extensions.get::<Attempt>().copied();
    Ok(Answer { status: head.status.as_u16(), reason, headers: head.headers, body, attempt })
}

fn refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused(_) | ErrorKind::Deadline)
}

impl Outcome for std::result::Result<Answer, Error> {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        let Answer { status, reason, headers, body, attempt } = match *self {
            Ok(answer) => answer,
            Err(error) => return write_failure(&error, row),
        };
        row.kind(Kind::Answer)?;
        row.put(0, status)?;
        row.put(1, Latin1(flat(reason, &headers)))?;
        if let Some(Attempt(attempt)) = attempt {
            row.put(3, attempt)?;
        }
        match body {
            Begun::Whole(bytes) if bytes.is_empty() => row.put(2, Null),
            Begun::Whole(bytes) => row.put(2, Whole { text: !headers.contains_key(CONTENT_ENCODING), bytes }),
            Begun::Stream(stream) => row.put(2, Reply { stream: Arc::new(stream), ring: Mutex::default() }),
        }
    }
}

pub(crate) fn write_failure(error: &Error, row: &mut Row<'_, '_>) -> Result<()> {
    row.kind(Kind::Failure)?;
    row.put(0, Failure::from(error))
}

/// One string: `reason\nname\nvalue\n...`. None of them can hold a line end.
fn flat(reason: Vec<u8>, headers: &HeaderMap) -> Vec<u8> {
    let mut flat = reason;
    flat.reserve(1 + headers.len() * 48);
    flat.push(b'\n');
    headers.iter().for_each(|(name, value)| request::line(&mut flat, name, value));
    flat
}

impl Outcome for Pulled {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        match *self {
            Some(Ok(bytes)) => {
                row.kind(Kind::Chunk)?;
                row.put(0, Chunk(bytes))
            }
            Some(Err(error)) => write_failure(&error, row),
            None => row.kind(Kind::End),
        }
    }
}

/// A response's body. Dropping it, which the garbage collector does at the latest, ends the exchange.
#[napi]
pub struct Reply {
    stream: Arc<Stream>,
    ring: Mutex<Option<Arc<Ring>>>,
}

#[napi]
impl Reply {
    /// The next chunk; null at the end; a failure; or undefined: one of these will come with the number, always the same for one reply.
    #[napi(ts_return_type = "Uint8Array | Failure | null | undefined")]
    pub fn pull<'env>(
        &self,
        env: &'env Env,
        port: &Port,
        number: u32,
    ) -> Result<Either4<BufferSlice<'env>, Failure, Null, Undefined>> {
        let ring = {
            let mut ring = self.ring.lock();
            match &*ring {
                Some(ring) => ring.clone(),
                None => {
                    let stream: Arc<dyn Pull> = self.stream.clone();
                    ring.insert(port.ring(number, &stream)?).clone()
                }
            }
        };
        Ok(match ring.pull() {
            Poll::Ready(Some(Ok(bytes))) => Either4::A(BufferSlice::copy_from(env, &bytes[..])?),
            Poll::Ready(Some(Err(error))) => Either4::B(Failure::from(&error)),
            Poll::Ready(None) => Either4::C(Null),
            Poll::Pending => Either4::D(()),
        })
    }

    /// Ends the exchange now and gives the slot back. Idempotent.
    #[napi]
    pub fn close(&self) {
        self.stream.close();
    }

    /// What a reader finds when somebody else closed the response.
    #[napi]
    pub fn closed() -> Failure {
        Failure::from(&failure::closed())
    }
}
