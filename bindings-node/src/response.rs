//! Responses on their way to JavaScript. The head is passed once, together with the part of the
//! body that has arrived. JavaScript requests the rest chunk by chunk.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Request};
use hyper::ext::ReasonPhrase;
use napi::bindgen_prelude::{BufferSlice, Either4, Null, Undefined};
use napi::{Env, Result};
use napi_derive::napi;
use parking_lot::Mutex;
use tidegate::{Client, Error, RequestBody};
use tidegate_bindings::{
    BodyStream, Chunk, FailureMode, StreamReader, is_event_stream, response_closed, send,
};

use crate::bridge::{CompletionKind, Outcome, Port, Queue, Row};
use crate::custom_transport::AttemptIndex;
use crate::errors::Failure;
use crate::request;
use crate::values::{Buffer, Latin1, WholeBody};

/// A response that a worker thread has received, before it is converted into JavaScript values.
pub(crate) struct Answer {
    status: u16,
    /// The reason phrase of the status line or, if there is none, as in HTTP/2, the usual phrase of
    /// the status.
    reason: Vec<u8>,
    headers: HeaderMap,
    body: std::result::Result<Bytes, BodyStream>,
    /// The index of the attempt that got the response, if the caller's own fetch made the exchange.
    /// `None` if the native transport made it.
    attempt: Option<AttemptIndex>,
}

/// Makes the call, and returns the response with the part of the body that arrived together with
/// the head.
pub(crate) async fn run_call(
    client: Client,
    request: Request<RequestBody>,
    failures: FailureMode,
) -> std::result::Result<Answer, Error> {
    let (head, body) = send(client, request, failures).await?.into_parts();
    let body = BodyStream::read_ahead(body, is_event_stream(&head.headers)).await.into_whole();
    let reason = match head.extensions.get::<ReasonPhrase>() {
        Some(reason) => reason.as_bytes().to_vec(),
        None => head.status.canonical_reason().unwrap_or_default().into(),
    };
    let attempt = head.extensions.get::<AttemptIndex>().copied();
    Ok(Answer { status: head.status.as_u16(), reason, headers: head.headers, body, attempt })
}

impl Outcome for std::result::Result<Answer, Error> {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        let Answer { status, reason, headers, body, attempt } = match *self {
            Ok(answer) => answer,
            Err(error) => return write_failure(&error, row),
        };
        row.kind(CompletionKind::Answer)?;
        row.put(0, status)?;
        row.put(1, Latin1(flatten(reason, &headers)))?;
        if let Some(AttemptIndex(attempt)) = attempt {
            row.put(3, attempt)?;
        }
        match body {
            Ok(bytes) if bytes.is_empty() => row.put(2, Null),
            Ok(bytes) => row.put(2, WholeBody { is_text: !headers.contains_key(CONTENT_ENCODING), bytes }),
            Err(stream) => row.put(2, Reply { stream: Arc::new(stream), reader: Mutex::default() }),
        }
    }
}

/// Writes a failure into the row of a completion.
pub(crate) fn write_failure(error: &Error, row: &mut Row<'_, '_>) -> Result<()> {
    row.kind(CompletionKind::Failure)?;
    row.put(0, Failure::from(error))
}

/// Returns a response head as one string: a line with the reason phrase, then two lines for each
/// header, `name\nvalue\n`. The phrase, the names and the values cannot contain a line feed.
fn flatten(reason: Vec<u8>, headers: &HeaderMap) -> Vec<u8> {
    let mut flat = reason;
    flat.reserve(1 + headers.len() * 48);
    flat.push(b'\n');
    headers.iter().for_each(|(name, value)| request::append_line(&mut flat, name, value));
    flat
}

impl Outcome for Chunk {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        match *self {
            Some(Ok(bytes)) => {
                row.kind(CompletionKind::Chunk)?;
                row.put(0, Buffer(bytes))
            }
            Some(Err(error)) => write_failure(&error, row),
            None => row.kind(CompletionKind::End),
        }
    }
}

/// The unread body of a response. Dropping it ends the exchange. The garbage collector drops it if
/// the program has neither read it to its end nor closed it.
#[napi]
pub struct Reply {
    stream: Arc<BodyStream>,
    reader: Mutex<Option<Arc<StreamReader<Queue>>>>,
}

#[napi]
impl Reply {
    /// Returns the next chunk, null at the end of the body, or a failure. If none of these has
    /// arrived, returns undefined, and delivers the result under `number` later. All calls of this
    /// method on one response must pass the same `number`.
    #[napi(ts_return_type = "Uint8Array | Failure | null | undefined")]
    pub fn pull<'env>(
        &self,
        env: &'env Env,
        port: &Port,
        number: u32,
    ) -> Result<Either4<BufferSlice<'env>, Failure, Null, Undefined>> {
        let reader = {
            let mut reader = self.reader.lock();
            match &*reader {
                Some(reader) => reader.clone(),
                None => reader.insert(port.reader(number, &self.stream)?).clone(),
            }
        };
        Ok(match reader.read() {
            Poll::Ready(Some(Ok(bytes))) => Either4::A(BufferSlice::copy_from(env, &bytes[..])?),
            Poll::Ready(Some(Err(error))) => Either4::B(Failure::from(&error)),
            Poll::Ready(None) => Either4::C(Null),
            Poll::Pending => Either4::D(()),
        })
    }

    /// Ends the exchange now, and releases its slot. Idempotent.
    #[napi]
    pub fn close(&self) {
        self.stream.close();
    }

    /// Returns the failure for a read from a response that was closed.
    #[napi]
    pub fn closed() -> Failure {
        Failure::from(&response_closed())
    }
}
