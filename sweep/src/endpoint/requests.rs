//! Builds requests in the shape of each kind of endpoint.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Request, Uri};
use serde_json::{Map, Value, json};
use tidegate::RequestBody;

use super::{Api, Endpoint};

/// The key that limits the output tokens. Newer OpenAI models only accept `max_completion_tokens`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OutputLimitKey {
    /// `max_tokens`
    #[default]
    Tokens,
    /// `max_completion_tokens`
    CompletionTokens,
}

/// Keys that limit the output tokens, over all kinds of endpoints.
const MAXIMA: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

impl Endpoint {
    /// Returns a streaming request body for a prompt with at most `output` answer tokens.
    pub(crate) fn body(
        &self,
        model: &str,
        prompt: &str,
        output: u64,
        maximum: OutputLimitKey,
        exact: bool,
    ) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("model".into(), json!(model));
        match self.api {
            Api::Chat | Api::Messages => {
                body.insert("messages".into(), json!([{"role": "user", "content": prompt}]))
            }
            Api::Completions => body.insert("prompt".into(), json!(prompt)),
            Api::Responses => body.insert("input".into(), json!(prompt)),
        };
        body.insert(self.maximum(maximum).into(), json!(output));
        body.insert("stream".into(), json!(true));
        if exact {
            // vLLM extensions that ignore the model's end of sequence.
            body.insert("ignore_eos".into(), json!(true));
            body.insert("min_tokens".into(), json!(output));
        }
        body
    }

    /// Returns the key that limits the output tokens at this endpoint.
    pub(crate) fn maximum(&self, maximum: OutputLimitKey) -> &'static str {
        match (self.api, maximum) {
            (Api::Responses, _) => "max_output_tokens",
            (Api::Chat, OutputLimitKey::CompletionTokens) => "max_completion_tokens",
            _ => "max_tokens",
        }
    }

    /// Returns the maximum output tokens of a body, over all its choices.
    pub(crate) fn most_output(body: &Map<String, Value>) -> Option<u64> {
        let most = MAXIMA.iter().find_map(|key| body.get(*key)?.as_u64())?;
        let answers = body.get("n").and_then(Value::as_u64).unwrap_or(1);
        Some(most.saturating_mul(answers.max(1)))
    }

    /// Returns the request of a call.
    pub(crate) fn request(&self, body: Bytes) -> Request<RequestBody> {
        let mut request = self.to(self.uri.clone());
        *request.method_mut() = http::Method::POST;
        *request.body_mut() = RequestBody::from(body);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    /// Returns an auxiliary request to a URL, such as `/v1/models` or `/metrics`.
    pub(crate) fn beside(&self, path: &str) -> Option<Request<RequestBody>> {
        let uri: Uri = path.parse().ok()?;
        Some(self.to(uri))
    }

    /// Returns the request for the list of models.
    pub(crate) fn models(&self) -> Option<Request<RequestBody>> {
        self.beside(&format!("{}/models", self.base()))
    }

    /// Returns the request for the engine's metrics.
    pub(crate) fn metrics(&self) -> Option<Request<RequestBody>> {
        let mut request = self.beside(&self.at("/metrics"))?;
        // Sent without the key, because metrics are public wherever they are served.
        request.headers_mut().clear();
        Some(request)
    }

    fn to(&self, uri: Uri) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::default());
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        if let Some(key) = &self.key {
            headers.insert(self.key_header(), key.clone());
        }
        if self.api == Api::Messages {
            headers
                .insert(HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_shape_of_their_api() {
        for (api, asks, most) in [
            (Api::Chat, "messages", "max_tokens"),
            (Api::Completions, "prompt", "max_tokens"),
            (Api::Responses, "input", "max_output_tokens"),
            (Api::Messages, "messages", "max_tokens"),
        ] {
            let endpoint = Endpoint::new("http://h", Some(api)).unwrap().with_key("k").unwrap();
            let body = endpoint.body("m", "hello", 7, OutputLimitKey::Tokens, false);
            assert!(body.contains_key(asks) && body[most] == 7 && body["stream"] == true, "{body:?}");
            assert_eq!(Endpoint::most_output(&body), Some(7));
            let request = endpoint.request(Bytes::from_static(b"{}"));
            let key = request.headers().get(if api == Api::Messages { "x-api-key" } else { "authorization" });
            assert!(key.unwrap().is_sensitive());
            assert!(endpoint.metrics().unwrap().headers().is_empty());
            assert_eq!(endpoint.models().unwrap().uri(), "http://h/v1/models");
        }
    }

    #[test]
    fn n_multiplies_the_maximum_output() {
        let Value::Object(body) = json!({"max_completion_tokens": 5, "n": 3}) else { unreachable!() };
        assert_eq!(Endpoint::most_output(&body), Some(15));
    }
}
