//! The tower layer that requests usage and hides it from the response.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Request, Response};
use memchr::memmem;

use super::ask::asking;
use super::body::FilteredBody;
use crate::body::{RequestBody, ResponseBody};
use crate::call::Call;
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, tower_layer};
use crate::transport::Foreign;
use tidegate_protocol::Dialect;
use tidegate_protocol::headers::{is_compressed, is_signed};

/// Requests the usage of streams whose target has `ask_usage` set and whose caller did not request
/// it.
///
/// *Default*: does nothing; acts on requests that carry a [`Call`] to a target with `ask_usage`. It
/// must be above the layer that reads the usage, because it hides the usage from the layers above.
///
/// # Cancel safety
///
/// Dropping the future or the body ends the exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AskUsageLayer;

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

/// Returns `true` if the request is a stream without reported usage, and its body may be changed.
fn concerns(request: &Request<RequestBody>) -> bool {
    let Some(call) = request.extensions().get::<Call>() else { return false };
    let (facts, headers) = (call.facts(), request.headers());
    let silent = matches!(facts.dialect, Dialect::OpenAiChat | Dialect::OpenAiCompletions) && facts.stream;
    // A client's own transport sends the client's own request, so changing the body here would have
    // no effect.
    let sealed =
        request.extensions().get::<Foreign>().is_some() || is_signed(headers) || is_compressed(headers);
    silent && !sealed && call.is_enforced() && call.target().config().ask_usage
}

/// Removes the requested usage from a response.
fn hidden(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    if !response.status().is_success() || is_document(response.headers()) || is_compressed(response.headers())
    {
        return response;
    }
    // The length is that of the body before usage is removed.
    response.headers_mut().remove(CONTENT_LENGTH);
    response.map(|body| ResponseBody::new(FilteredBody::new(body)))
}

/// Returns `true` if the response is one JSON document. It does not stream, and its usage was not
/// requested by this layer.
fn is_document(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase());
    content_type.is_some_and(|value| memmem::find(&value, b"json").is_some())
}
