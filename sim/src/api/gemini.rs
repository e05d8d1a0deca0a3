//! Gemini's `POST .../models/MODEL:generateContent` and `:streamGenerateContent`: request paths,
//! stream events and whole answers.
//!
//! The path contains the model, and whether the answer is streamed. With the query `alt=sse`, a
//! stream consists of server-sent events; without it, of one JSON list, sent element by element.

use http::Uri;
use serde_json::{Value, json};

use super::answer_content::Answer;
use super::{ApiError, Encoder, Finish};

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

fn chunk(e: &Encoder, part: Value, finish: Option<&str>, tokens: u32) -> Value {
    let mut candidate = json!({"content": {"parts": [part], "role": "model"}, "index": 0});
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

/// Returns a part with `text`, or with the tool call whose arguments are in `text`. The arguments
/// are empty if they are not a whole JSON document.
fn part(e: &Encoder, text: &str) -> Value {
    match &e.request.answer {
        Answer::ToolCall { name, .. } => {
            let args = serde_json::from_str(text).unwrap_or_else(|_| json!({}));
            json!({"functionCall": {"id": format!("call_{}", e.id), "name": name, "args": args}})
        }
        _ => json!({"text": text}),
    }
}

/// Writes the event of a token. A tool call has none, because Gemini sends the call as a whole.
pub(super) fn token(e: &Encoder, index: u32, out: &mut String) {
    if !is_call(e) {
        let part = part(e, e.request.answer.token_text(index));
        write(e, index == 0, &chunk(e, part, None, index + 1), out);
    }
}

fn is_call(e: &Encoder) -> bool {
    matches!(e.request.answer, Answer::ToolCall { .. })
}

pub(super) fn close(e: &Encoder, tokens: u32, out: &mut String) {
    let last = if is_call(e) { part(e, &e.request.answer.text(tokens)) } else { part(e, "") };
    write(e, tokens == 0 || is_call(e), &chunk(e, last, Some(finish_reason(e)), tokens), out);
    if e.request.list {
        out.push_str("\r\n]");
    }
}

pub(super) fn full(e: &Encoder, tokens: u32) -> Value {
    chunk(e, part(e, &e.request.answer.text(tokens)), Some(finish_reason(e)), tokens)
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
