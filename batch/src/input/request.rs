//! Parses an input line as a request. A line is either a request of OpenAI's batch format, or only
//! a request body, which may contain a `custom_id`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::line_error::LineError;

/// A valid request to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The line's `custom_id`, or `line-N` with the line number if it has none.
    pub custom_id: String,
    /// Whether the line has a `custom_id`. `null` is none.
    pub is_named: bool,
    /// Path of the endpoint, one of [`ENDPOINT_PATHS`] or [`RequestOverrides::path`].
    pub path: String,
    /// JSON body of the request.
    pub body: Bytes,
}

/// Settings that apply to every line. By default, each line is sent as it is.
#[derive(Clone, Debug, Default)]
pub struct RequestOverrides {
    /// Model to use in every request. `None` uses the model of each line.
    pub model: Option<String>,
    /// Endpoint path of lines that name none, starting with `/v1/`. With `None`, a line that is
    /// only a body goes to chat completions if it has `messages`, or to completions if it has
    /// `prompt`; another line without a path is invalid.
    pub path: Option<String>,
}

/// Paths that the `url` of a line may have: those of OpenAI and of Anthropic. The `url` may omit
/// `/v1`.
pub const ENDPOINT_PATHS: [&str; 6] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/moderations",
    "/v1/messages",
];

/// Maximum length of a `custom_id` in bytes, as in OpenAI's API. The minimum is 1.
const MAX_CUSTOM_ID_BYTES: usize = 512;

#[derive(Deserialize)]
struct Entry<'a> {
    /// `None` if the key is missing.
    #[serde(default, deserialize_with = "present")]
    custom_id: Option<Value>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    url: Option<Cow<'a, str>>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    messages: Option<IgnoredAny>,
    prompt: Option<IgnoredAny>,
}

/// Deserializes a value whose key is present, so that `null` differs from a missing key.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    stream: Option<Value>,
}

/// Returns the request that `text`, the text of line `number`, describes, with `overrides` applied.
///
/// # Errors
///
/// Returns two values: the line's `custom_id`, or `line-N` if it has no valid one, and what is
/// wrong with the line. The error codes are OpenAI's where OpenAI defines one.
pub fn parse_request(
    number: u64,
    text: &Bytes,
    overrides: &RequestOverrides,
) -> Result<Request, (String, LineError)> {
    let unnamed = || format!("line-{number}");
    let entry: Entry<'_> = match serde_json::from_slice(text) {
        Ok(entry) => entry,
        Err(error) => {
            let error = LineError::new(
                "invalid_json_line",
                format!("line {number} is not a JSON request object: {error}"),
            );
            return Err((unnamed(), error));
        }
    };
    let has_custom_id = entry.custom_id.is_some();
    let is_named = entry.custom_id.as_ref().is_some_and(|id| !id.is_null());
    let custom_id = match entry.custom_id {
        None | Some(Value::Null) => unnamed(),
        Some(Value::String(id)) if !id.is_empty() && id.len() <= MAX_CUSTOM_ID_BYTES => id,
        Some(_) => {
            let text =
                format!("line {number}: \"custom_id\" must be a string of 1 to {MAX_CUSTOM_ID_BYTES} bytes");
            return Err((unnamed(), LineError::new("invalid_custom_id", text)));
        }
    };
    let Some(raw) = entry.body.filter(|_| entry.messages.is_none()) else {
        let path = overrides.path.clone().or_else(|| {
            let path = if entry.messages.is_some() { ENDPOINT_PATHS.first() } else { ENDPOINT_PATHS.get(1) };
            path.filter(|_| entry.messages.is_some() || entry.prompt.is_some()).map(|path| (*path).to_owned())
        });
        let Some(path) = path else {
            let what = "expected a batch request (\"custom_id\", \"method\", \"url\", \"body\"), or a body whose endpoint is known";
            return Err((custom_id, missing(number, what)));
        };
        let body = if has_custom_id { without_custom_id(text) } else { Ok(text.clone()) };
        return match body {
            Ok(body) => {
                let body = finish(number, body, overrides).map_err(|error| (custom_id.clone(), error))?;
                Ok(Request { custom_id, is_named, path, body })
            }
            Err(error) => {
                let text = format!("line {number}: \"custom_id\" cannot be removed from the body: {error}");
                Err((custom_id, LineError::new("invalid_request", text)))
            }
        };
    };
    match entry.method.as_deref() {
        None => {}
        Some(method) if method.eq_ignore_ascii_case("POST") => {}
        Some(_) => {
            return Err((
                custom_id,
                LineError::new("invalid_method", format!("line {number}: \"method\" must be POST")),
            ));
        }
    }
    let path = match &entry.url {
        Some(url) => match endpoint_path(url) {
            Some(path) => path,
            None => {
                let text = format!("line {number}: \"url\" must be one of {}", ENDPOINT_PATHS.join(", "));
                return Err((custom_id, LineError::new("invalid_url", text)));
            }
        },
        None => match &overrides.path {
            Some(path) => path.clone(),
            None => return Err((custom_id, missing(number, "\"url\" is missing"))),
        },
    };
    let body = text.slice_ref(raw.get().as_bytes());
    let body = finish(number, body, overrides).map_err(|error| (custom_id.clone(), error))?;
    Ok(Request { custom_id, is_named, path, body })
}

/// Returns the entry of [`ENDPOINT_PATHS`] that equals `url`, which may omit `/v1`. Returns `None`
/// if no entry does.
pub(crate) fn endpoint_path(url: &str) -> Option<String> {
    let versioned =
        if url.starts_with("/v1/") { Cow::Borrowed(url) } else { Cow::Owned(format!("/v1{url}")) };
    ENDPOINT_PATHS.iter().find(|path| *versioned == ***path).map(|path| (*path).to_owned())
}

/// Returns the body to send: `body` with the model of `overrides`, if there is one.
fn finish(number: u64, body: Bytes, overrides: &RequestOverrides) -> Result<Bytes, LineError> {
    let read: Body<'_> = serde_json::from_slice(&body).map_err(|error| {
        let text = format!("line {number}: the body is not a JSON object: {error}");
        LineError::new("invalid_request", text)
    })?;
    if read.stream == Some(Value::Bool(true)) {
        let text = format!("line {number}: streaming is not supported; remove \"stream\"");
        return Err(LineError::new("streaming_not_supported", text));
    }
    match &overrides.model {
        None if read.model.is_none() => {
            Err(missing(number, "the body has no \"model\"; add one, or set a model for all lines"))
        }
        None => Ok(body),
        Some(model) => with_model(&body, model).map_err(|error| {
            let text = format!("line {number}: the model cannot be inserted into the body: {error}");
            LineError::new("invalid_request", text)
        }),
    }
}

/// Returns a body without its `custom_id`, which is not part of the request. The other values are
/// unchanged.
fn without_custom_id(body: &[u8]) -> serde_json::Result<Bytes> {
    let mut fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(body)?;
    fields.remove("custom_id");
    serde_json::to_vec(&fields).map(Bytes::from)
}

fn with_model(body: &[u8], model: &str) -> serde_json::Result<Bytes> {
    let mut fields: serde_json::Map<String, Value> = serde_json::from_slice(body)?;
    fields.insert("model".to_owned(), Value::from(model));
    serde_json::to_vec(&fields).map(Bytes::from)
}

fn missing(number: u64, what: &str) -> LineError {
    LineError::new("missing_required_parameter", format!("line {number}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, overrides: &RequestOverrides) -> Result<Request, (String, LineError)> {
        parse_request(7, &Bytes::copy_from_slice(text.as_bytes()), overrides)
    }

    #[test]
    fn parses_batch_lines_and_bare_bodies() {
        let plain = RequestOverrides::default();
        let batch = read(
            r#"{"custom_id": "a", "method": "post", "url": "/v1/embeddings", "body": {"model": "m", "n":1.50}}"#,
            &plain,
        );
        let expected = Request {
            custom_id: "a".into(),
            is_named: true,
            path: "/v1/embeddings".into(),
            body: r#"{"model": "m", "n":1.50}"#.into(),
        };
        assert_eq!(batch, Ok(expected), "the body is unchanged");
        let bare = read(r#"{"model":"m","messages":[]}"#, &plain).unwrap();
        assert_eq!((&*bare.custom_id, &*bare.path), ("line-7", "/v1/chat/completions"));
        assert_eq!(read(r#"{"model":"m","prompt":""}"#, &plain).unwrap().path, "/v1/completions");
        let overrides = RequestOverrides { model: Some("other".into()), path: Some("/v1/responses".into()) };
        let request = read(r#"{"input":"x","model":"m","seed":1}"#, &overrides).unwrap();
        assert_eq!(request.path, "/v1/responses");
        assert_eq!(request.body, r#"{"input":"x","model":"other","seed":1}"#);
        assert_eq!(
            read(r#"{"url":"/chat/completions","body":{"model":"m"}}"#, &plain).unwrap().custom_id,
            "line-7"
        );
    }

    #[test]
    fn custom_id_of_a_bare_body_names_the_record_and_is_not_sent() {
        let plain = RequestOverrides::default();
        let request = read(r#"{"custom_id":"a","model":"m","n":1.50,"prompt":"x"}"#, &plain).unwrap();
        assert_eq!(request.custom_id, "a");
        assert_eq!(request.body, r#"{"model":"m","n":1.50,"prompt":"x"}"#);
        for text in [
            r#"{"custom_id":"a","model":"m","input":"x"}"#,
            r#"{"custom_id":"a","prompt":"x"}"#,
            r#"{"custom_id":"a","model":"m","prompt":"x","stream":true}"#,
        ] {
            assert_eq!(read(text, &plain).unwrap_err().0, "a", "{text}");
        }
    }

    #[test]
    fn null_is_no_custom_id_and_is_not_sent() {
        let request =
            read(r#"{"custom_id":null,"model":"m","prompt":"x"}"#, &RequestOverrides::default()).unwrap();
        assert_eq!((&*request.custom_id, request.is_named), ("line-7", false));
        assert_eq!(request.body, r#"{"model":"m","prompt":"x"}"#);
    }

    #[test]
    fn invalid_lines_are_reported_by_line_and_code() {
        for (text, code) in [
            ("{", "invalid_json_line"),
            ("[]", "invalid_json_line"),
            ("{}", "missing_required_parameter"),
            (r#"{"model":"m","input":"x"}"#, "missing_required_parameter"),
            (r#"{"custom_id":1,"url":"/v1/embeddings","body":{"model":"m"}}"#, "invalid_custom_id"),
            (
                r#"{"custom_id":"a","method":"GET","url":"/v1/embeddings","body":{"model":"m"}}"#,
                "invalid_method",
            ),
            (
                r#"{"custom_id":"a","url":"https://elsewhere.example/v1/embeddings","body":{"model":"m"}}"#,
                "invalid_url",
            ),
            (r#"{"custom_id":"a","url":"/v1/files","body":{"model":"m"}}"#, "invalid_url"),
            (r#"{"custom_id":"a","body":{"model":"m"}}"#, "missing_required_parameter"),
            (r#"{"custom_id":"a","url":"/v1/embeddings","body":[1]}"#, "invalid_request"),
            (r#"{"custom_id":"a","url":"/v1/embeddings","body":{}}"#, "missing_required_parameter"),
            (r#"{"model":"m","messages":[],"stream":true}"#, "streaming_not_supported"),
        ] {
            let (_, error) = read(text, &RequestOverrides::default()).unwrap_err();
            assert_eq!(error.code, code, "{text}");
            assert!(error.message.contains("line 7"), "{}", error.message);
        }
    }
}
