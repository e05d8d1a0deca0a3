//! Builds the requests for an endpoint in the format of its API.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Uri};
use serde_json::{Map, Value, json};
use tidegate::RequestBody;
use tidegate::protocol::api_key::ANTHROPIC_VERSION;

use super::{Api, Endpoint};

/// JSON key that limits the output tokens of chat completions. Newer OpenAI models accept only
/// `max_completion_tokens`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OutputLimitKey {
    /// The key `max_tokens`, which most servers accept. The default.
    #[default]
    Tokens,
    /// The key `max_completion_tokens`, which OpenAI's newer models require.
    CompletionTokens,
}

/// Names of the JSON keys that limit the output tokens, over all APIs.
const OUTPUT_LIMIT_KEYS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

impl Endpoint {
    /// Returns a streaming request body with `prompt` and at most `output` answer tokens. If
    /// `exact` is `true`, the body also contains vLLM's keys that force the answer to that length.
    /// For chat completions, `key` selects the JSON key of the limit.
    pub(crate) fn request_body(
        &self,
        model: &str,
        prompt: &str,
        output: u64,
        key: OutputLimitKey,
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
        body.insert(self.output_limit_key(key).into(), json!(output));
        body.insert("stream".into(), json!(true));
        if exact {
            Self::force_answer_length(&mut body, output);
        }
        body
    }

    /// Adds vLLM's keys to a request body that make each answer `output` tokens long, because the
    /// model's end of sequence is ignored. `output` must be the limit of the body.
    pub(crate) fn force_answer_length(body: &mut Map<String, Value>, output: u64) {
        body.insert("ignore_eos".into(), json!(true));
        body.insert("min_tokens".into(), json!(output));
    }

    /// Returns the JSON key that limits the output tokens in this API. Only for chat completions,
    /// the key depends on `key`.
    pub(crate) fn output_limit_key(&self, key: OutputLimitKey) -> &'static str {
        match (self.api, key) {
            (Api::Responses, _) => "max_output_tokens",
            (Api::Chat, OutputLimitKey::CompletionTokens) => "max_completion_tokens",
            _ => "max_tokens",
        }
    }

    /// Returns the maximum number of output tokens that a request body allows for each of its
    /// choices, or `None` if the body has no limit.
    pub(crate) fn max_answer_tokens(body: &Map<String, Value>) -> Option<u64> {
        OUTPUT_LIMIT_KEYS.iter().find_map(|key| body.get(*key)?.as_u64())
    }

    /// Returns the maximum number of output tokens that a request body allows: its limit multiplied
    /// by its number of choices `n`. Returns `None` if the body has no limit.
    pub(crate) fn max_output_tokens(body: &Map<String, Value>) -> Option<u64> {
        let most = Self::max_answer_tokens(body)?;
        let answers = body.get("n").and_then(Value::as_u64).unwrap_or(1);
        Some(most.saturating_mul(answers.max(1)))
    }

    /// Returns the POST request that sends `body` to the endpoint, with the key.
    pub(crate) fn request(&self, body: Bytes) -> Request<RequestBody> {
        let mut request = self.request_to(self.uri.clone());
        *request.method_mut() = http::Method::POST;
        *request.body_mut() = RequestBody::from(body);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    /// Returns a GET request for `path`, which is an absolute URL, with the endpoint's key. Returns
    /// `None` if `path` is not a valid URL.
    pub(crate) fn auxiliary_request(&self, path: &str) -> Option<Request<RequestBody>> {
        let uri: Uri = path.parse().ok()?;
        Some(self.request_to(uri))
    }

    /// Returns the request for the server's list of models, or `None` if the URL is invalid.
    pub(crate) fn models(&self) -> Option<Request<RequestBody>> {
        self.auxiliary_request(&format!("{}/models", self.base()))
    }

    /// Returns the request for `/metrics` at the server's origin, without the key. Returns `None`
    /// if the URL is invalid.
    pub(crate) fn metrics(&self) -> Option<Request<RequestBody>> {
        let mut request = self.auxiliary_request(&self.with_path("/metrics"))?;
        // Sent without the key, because metrics are public wherever they are served.
        request.headers_mut().clear();
        Some(request)
    }

    fn request_to(&self, uri: Uri) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::default());
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        if let Some(key) = &self.key {
            headers.insert(self.key_header().0, key.clone());
        }
        if self.api == Api::Messages {
            let (name, version) = ANTHROPIC_VERSION;
            headers.insert(name, version);
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
            let body = endpoint.request_body("m", "hello", 7, OutputLimitKey::Tokens, false);
            assert!(body.contains_key(asks) && body[most] == 7 && body["stream"] == true, "{body:?}");
            assert_eq!(Endpoint::max_output_tokens(&body), Some(7));
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
        assert_eq!(Endpoint::max_output_tokens(&body), Some(15));
    }
}
