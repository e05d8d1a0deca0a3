//! The tower layer: asks on the way down, and hides on the way up.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Request, Response};
use memchr::memmem;

use super::ask::asking;
use super::body::Hidden;
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::middleware::{InnerService, Middleware, ResponseFuture, tower_layer};
use crate::transport::Foreign;
use tidegate_protocol::Dialect;
use tidegate_protocol::headers::{is_compressed, is_signed};

/// Asks streams for their usage, where their target has `ask_usage` and their caller did not ask.
///
/// *Default*: does nothing; acts on requests that carry a [`Call`] to such a target. Wrong order: below what reads the usage, which it hides.
/// *Cancellation safety*: dropping the future or the body ends the exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct AskUsageLayer;

tower_layer!(AskUsageLayer);

impl<S: InnerService> Middleware<S> for AskUsageLayer {
    fn call(&self, inner: &mut S, mut request: Request<RequestBody>) -> ResponseFuture {
        let Some(body) = concerns(&request).then(|| asking(request.body().bytes()?)).flatten() else {
            return Box::pin(inner.call(request));
        };
        if request.headers().contains_key(CONTENT_LENGTH) {
            request.headers_mut().insert(CONTENT_LENGTH, body.len().into());
        }
        *request.body_mut() = Bytes::from(body).into();
        let response = inner.call(request);
        Box::pin(async move { Ok(hidden(response.await?)) })
    }
}

/// Whether there is something to ask for, and we may.
fn concerns(request: &Request<RequestBody>) -> bool {
    let Some(call) = request.extensions().get::<Call>() else { return false };
    let (facts, headers) = (call.facts(), request.headers());
    let silent = matches!(facts.dialect, Dialect::OpenAiChat | Dialect::OpenAiCompletions) && facts.stream;
    // A client's own transport sends the client's own request, whose body is not ours to change either.
    let sealed =
        request.extensions().get::<Foreign>().is_some() || is_signed(headers) || is_compressed(headers);
    silent && !sealed && call.is_enforced() && call.target().config().ask_usage
}

/// The response as it would be had we not asked.
fn hidden(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    if !response.status().is_success() || is_document(response.headers()) || is_compressed(response.headers())
    {
        return response;
    }
    // The length is of what the server sent.
    response.headers_mut().remove(CONTENT_LENGTH);
    response.map(|body| ResponseBody::new(Hidden::new(body)))
}

/// Whether the answer is one JSON document: it does not stream, and its usage is nothing that we asked for.
fn is_document(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    content_type.is_some_and(|value| memmem::find(&value, b"json").is_some())
}
