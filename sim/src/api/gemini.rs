//! Gemini's `POST .../models/MODEL:generateContent` and `:streamGenerateContent`: request paths,
//! stream events and whole answers.
//!
//! The path contains the model, and whether the answer is streamed. With the query `alt=sse`, a
//! stream consists of server-sent events; without it, of one JSON list, sent element by element.

use http::Uri;
use serde_json::{Value, json};

use super::{ApiError, Encoder, Finish, text, token_text};

/// The model and the streaming mode in a request path.
pub(super) struct ModelPath<'a> {
    pub(super) model: &'a str,
    pub(super) stream: bool,
}

impl<'a> ModelPath<'a> {
    /// Parses a request path. Returns `None` if it is not the path of one of the two Gemini
    /// methods. What precedes `/models/` is ignored, because Vertex AI puts the project there.
    pub(super) fn from_path(path: &'a str) -> Option<Self> {
        let (before, last) = path.rsplit_once('/')?;
        let (model, verb) = last.rsplit_once(':')?;
        let stream = match verb {
            "generateContent" => false,
            "streamGenerateContent" => true,
            _ => return None,
        };
        before.ends_with("/models").then_some(Self { model, stream })
    }
}

/// Returns `true` if the answer is streamed as a JSON list, and not as server-sent events.
pub(super) fn streams_json_list(uri: &Uri) -> bool {
    ModelPath::from_path(uri.path()).is_some_and(|model_path| model_path.stream)
        && !uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"))
}

fn chunk(e: &Encoder, content: &str, finish: Option<&str>, tokens: u32) -> Value {
    let mut candidate = json!({"content": {"parts": [{"text": content}], "role": "model"}, "index": 0});
    if let (Value::Object(fields), Some(finish)) = (&mut candidate, finish) {
        fields.insert("finishReason".to_owned(), json!(finish));
    }
    let prompt = e.request.prompt_tokens;
    json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": prompt,
            "candidatesTokenCount": tokens,
            "totalTokenCount": u64::from(prompt) + u64::from(tokens),
        },
        "modelVersion": e.request.model,
        "responseId": e.id,
    })
}

fn finish_reason(e: &Encoder) -> &'static str {
    match e.request.finish {
        Finish::Length => "MAX_TOKENS",
        Finish::Stop => "STOP",
    }
}

fn write(e: &Encoder, first: bool, value: &Value, out: &mut String) {
    match (e.request.list, first) {
        (false, _) => out.push_str(&format!("data: {value}\r\n\r\n")),
        (true, true) => out.push_str(&format!("[{value}")),
        (true, false) => out.push_str(&format!(",\r\n{value}")),
    }
}

pub(super) fn token(e: &Encoder, index: u32, out: &mut String) {
    write(e, index == 0, &chunk(e, token_text(index), None, index + 1), out);
}

pub(super) fn close(e: &Encoder, tokens: u32, out: &mut String) {
    write(e, tokens == 0, &chunk(e, "", Some(finish_reason(e)), tokens), out);
    if e.request.list {
        out.push_str("\r\n]");
    }
}

pub(super) fn full(e: &Encoder, tokens: u32) -> Value {
    chunk(e, &text(tokens), Some(finish_reason(e)), tokens)
}

/// Returns the JSON body of an error. Google puts the retry delay into this body and sends no
/// `Retry-After` header.
pub(super) fn error(error: &ApiError) -> Value {
    let status = match error.status {
        400 | 413 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    let mut body = json!({"code": error.status, "message": error.message, "status": status});
    if let (Value::Object(fields), Some(after)) = (&mut body, error.retry_in) {
        let kind = "type.googleapis.com/google.rpc.RetryInfo";
        let delay = format!("{}s", after.as_secs_f64());
        fields.insert("details".to_owned(), json!([{"@type": kind, "retryDelay": delay}]));
    }
    json!({"error": body})
}
