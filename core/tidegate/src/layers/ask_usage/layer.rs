//! The tower layer that requests usage and hides it from the response.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Request, Response};
use memchr::memmem;

use super::ask::with_usage;
use super::body::FilteredBody;
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, boxed, tower_layer};
use crate::transport::Foreign;
use tidegate_protocol::Dialect;
use tidegate_protocol::signed_or_compressed::{is_compressed, is_signed};

/// Requests the usage of streams, and removes the requested usage from their responses.
///
/// *Default*: acts in mode `enforce` on streams of OpenAI's chat and completions APIs, if the
/// target sets `ask_usage` (default `false`) and the caller has not set `include_usage`. The layer
/// must be above the stream layer, which reads the usage, because the layers above do not see it.
///
/// # Cancel safety
///
/// Dropping the future or the response body ends the exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AskUsageLayer;

tower_layer!(AskUsageLayer);

impl<S: InnerService> Middleware<S> for AskUsageLayer {
    fn applies_to(&self, call: &Call) -> bool {
        may_ask(call)
    }

    fn call(&self, _: Call, inner: &mut S, mut request: Request<RequestBody>) -> ResponseFuture {
        let body = is_editable(&request).then(|| request.body().bytes().and_then(|body| with_usage(body)));
        let Some(body) = body.flatten() else { return boxed(inner.call(request)) };
        if request.headers().contains_key(CONTENT_LENGTH) {
            request.headers_mut().insert(CONTENT_LENGTH, body.len().into());
        }
        *request.body_mut() = Bytes::from(body).into();
        let response = inner.call(request);
        Box::pin(async move { Ok(without_usage(response.await?)) })
    }
}

/// Returns `true` if the layer may request usage for the call: the mode is `enforce`, the target
/// sets `ask_usage`, and the call is a stream of an API that reports usage only on request.
fn may_ask(call: &Call) -> bool {
    let facts = call.facts();
    let needs_request = matches!(facts.dialect, Dialect::OpenAiChat | Dialect::OpenAiCompletions);
    needs_request && facts.stream && call.is_enforced() && call.target().config().ask_usage
}

/// Returns `true` if the layer may change the body of the request: the body is neither signed nor
/// compressed, and the gate's own transport sends it. A client's own transport would send the
/// client's original body.
fn is_editable(request: &Request<RequestBody>) -> bool {
    let is_own = request.extensions().get::<Foreign>().is_some();
    !is_own && !is_signed(request.headers()) && !is_compressed(request.headers())
}

/// Returns the response with a body that hides the requested usage. Responses that are not
/// successful, are compressed or are a JSON document are returned unchanged.
fn without_usage(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    if !response.status().is_success() || is_document(response.headers()) || is_compressed(response.headers())
    {
        return response;
    }
    // The length is that of the body before usage is removed.
    response.headers_mut().remove(CONTENT_LENGTH);
    response.map(|body| ResponseBody::new(FilteredBody::new(body)))
}

/// Returns `true` if the content type is JSON. Such a response is not a stream, and reports usage
/// without a request.
fn is_document(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    content_type.is_some_and(|value| memmem::find(&value, b"json").is_some())
}
