//! Builds responses in the format of the API that a request uses. Each API has a module.

mod anthropic_messages;
mod embeddings;
mod error;
mod gemini;
mod openai_chat;
mod openai_completions;
mod openai_responses;
mod request_shape;
mod sse;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use tidegate::ErrorKind;

pub(crate) use self::request_shape::RequestShape;
use self::request_shape::{Api, Piece};
use crate::response::{BodyEvent, BodyStep, ResponseHead, ScriptedResponse};
use crate::script::{ModelReply, ReplyEnd, ScriptedAnswer, StatusAnswer};

/// The events of a streamed answer, encoded as text.
struct Events {
    /// The events of each [`Piece`] of the answer. The text of the first piece begins with the
    /// events that open the stream.
    pieces: Vec<String>,
    /// The events that follow the last piece of a complete answer.
    close: String,
}

/// Builds the response for an answer of the script.
pub(crate) fn scripted(answer: &ScriptedAnswer, shape: &RequestShape) -> ScriptedResponse {
    match answer {
        ScriptedAnswer::Reply(answer) => reply(answer, shape),
        ScriptedAnswer::Status(answer) => status(answer, shape),
        ScriptedAnswer::Overloaded(answer) => ScriptedResponse {
            after: answer.after,
            ..failure("overloaded", shape.overloaded_status(), answer.retry_after, shape)
        },
        ScriptedAnswer::Refuse(answer) => {
            ScriptedResponse { answer: "refuse", after: answer.after, head: None, steps: VecDeque::new() }
        }
    }
}

/// Builds the 429 of a route that has reached its capacity or rate. `answer` is the kind that
/// [`RecordedAttempt::answer`](crate::RecordedAttempt::answer) shows.
pub(crate) fn limited(
    answer: &'static str,
    retry_after: Option<Duration>,
    shape: &RequestShape,
) -> ScriptedResponse {
    failure(answer, StatusCode::TOO_MANY_REQUESTS, retry_after, shape)
}

/// Builds the response with a model's answer. Embeddings are never streamed.
fn reply(reply: &ModelReply, shape: &RequestShape) -> ScriptedResponse {
    let pieces = request_shape::pieces(reply);
    if shape.stream && shape.api != Api::Embeddings {
        streamed(reply, &pieces, shape)
    } else {
        whole_reply(reply, &pieces, shape)
    }
}

fn streamed(reply: &ModelReply, pieces: &[Piece<'_>], shape: &RequestShape) -> ScriptedResponse {
    let events = match shape.api {
        Api::Completions => openai_completions::events(pieces, shape),
        Api::Responses => openai_responses::events(pieces, shape),
        Api::Messages => anthropic_messages::events(pieces, shape),
        Api::Gemini => gemini::events(pieces, shape),
        Api::Chat | Api::Embeddings => openai_chat::events(pieces, shape),
    };
    let last = if reply.end == ReplyEnd::Complete {
        events.pieces.len()
    } else {
        reply.end_after.unwrap_or(usize::MAX).min(events.pieces.len())
    };
    let at = |index: usize| reply.after + reply.every * u32::try_from(index).unwrap_or(u32::MAX);
    let mut steps: VecDeque<BodyStep> = events
        .pieces
        .into_iter()
        .take(last)
        .enumerate()
        .map(|(index, text)| BodyStep { at: at(index), event: BodyEvent::Chunk(text.into()) })
        .collect();
    let end = steps.back().map_or(reply.after, |step| step.at);
    match reply.end {
        ReplyEnd::Complete => {
            steps.push_back(BodyStep { at: end, event: BodyEvent::Chunk(events.close.into()) })
        }
        ReplyEnd::Truncate if steps.is_empty() => {
            steps.push_back(BodyStep { at: end, event: BodyEvent::End })
        }
        ReplyEnd::Truncate => {}
        ReplyEnd::Stall => steps.push_back(BodyStep { at: end, event: BodyEvent::Silence }),
        ReplyEnd::Error => steps.push_back(BodyStep {
            at: end + reply.every,
            event: BodyEvent::Chunk(error::event(shape).into()),
        }),
        ReplyEnd::Break => steps.push_back(BodyStep { at: end + reply.every, event: BROKEN }),
    }
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    ScriptedResponse {
        answer: "reply",
        after: Duration::ZERO,
        head: Some(ResponseHead { status: StatusCode::OK, headers, length: None }),
        steps,
    }
}

const BROKEN: BodyEvent =
    BodyEvent::Fail(ErrorKind::Transport, "the exchange failed: the fake target breaks the connection");

fn whole_reply(reply: &ModelReply, pieces: &[Piece<'_>], shape: &RequestShape) -> ScriptedResponse {
    let value = match shape.api {
        Api::Chat => openai_chat::whole(pieces, shape),
        Api::Completions => openai_completions::whole(pieces, shape),
        Api::Responses => openai_responses::whole(pieces, shape),
        Api::Messages => anthropic_messages::whole(pieces, shape),
        Api::Gemini => gemini::whole(pieces, shape),
        Api::Embeddings => embeddings::whole(shape),
    };
    let text = value.to_string();
    let after = reply.after + reply.every * u32::try_from(pieces.len().saturating_sub(1)).unwrap_or(u32::MAX);
    if reply.end == ReplyEnd::Error {
        return ScriptedResponse {
            answer: "reply",
            after,
            ..failure("reply", StatusCode::INTERNAL_SERVER_ERROR, None, shape)
        };
    }
    let response = ScriptedResponse::whole(StatusCode::OK, json_headers(), text.into());
    let broken = match reply.end {
        ReplyEnd::Complete | ReplyEnd::Error => None,
        ReplyEnd::Truncate => Some(BodyEvent::Fail(
            ErrorKind::Truncated,
            "the exchange failed: the fake target ends the body too early",
        )),
        ReplyEnd::Stall => Some(BodyEvent::Silence),
        ReplyEnd::Break => Some(BROKEN),
    };
    let steps = match broken {
        None => response.steps,
        Some(event @ BodyEvent::Silence) if reply.end_after == Some(0) => {
            [BodyStep { at: Duration::ZERO, event }].into()
        }
        Some(event) => first_half_then(response.steps, event),
    };
    ScriptedResponse { answer: "reply", after, steps, ..response }
}

/// Returns the steps of a body with each chunk cut to its first half, followed by the event
/// `instead`.
fn first_half_then(steps: VecDeque<BodyStep>, instead: BodyEvent) -> VecDeque<BodyStep> {
    let half = |step| match step {
        BodyStep { at, event: BodyEvent::Chunk(bytes) } => {
            BodyStep { at, event: BodyEvent::Chunk(bytes.slice(..bytes.len() / 2)) }
        }
        other => other,
    };
    steps.into_iter().map(half).chain([BodyStep { at: Duration::ZERO, event: instead }]).collect()
}

/// Builds the response with the status, the headers and the body that the script gives.
fn status(status: &StatusAnswer, shape: &RequestShape) -> ScriptedResponse {
    let code = status.status;
    let (mut headers, body) = match &status.body {
        None if code.is_client_error() || code.is_server_error() => {
            (json_headers(), error::body(code, shape).to_string())
        }
        None => (HeaderMap::new(), String::new()),
        Some(Value::String(text)) => (HeaderMap::new(), text.clone()),
        Some(value) => (json_headers(), value.to_string()),
    };
    insert_retry_after(&mut headers, status.retry_after);
    headers.extend(status.headers.clone());
    ScriptedResponse { after: status.after, ..ScriptedResponse::whole(code, headers, Bytes::from(body)) }
}

/// Builds an error response in the format of the request's API. `answer` is the kind that
/// [`RecordedAttempt::answer`](crate::RecordedAttempt::answer) shows, and `after` the delay in
/// `Retry-After`, or `None` for no such header.
fn failure(
    answer: &'static str,
    code: StatusCode,
    after: Option<Duration>,
    shape: &RequestShape,
) -> ScriptedResponse {
    let mut headers = json_headers();
    insert_retry_after(&mut headers, after);
    ScriptedResponse {
        answer,
        ..ScriptedResponse::whole(code, headers, error::body(code, shape).to_string().into())
    }
}

/// Adds `retry-after` in seconds, rounded up. If the delay is not whole, also adds
/// `retry-after-ms`, as Azure does. Adds nothing for `None`.
fn insert_retry_after(headers: &mut HeaderMap, after: Option<Duration>) {
    let Some(after) = after else { return };
    let whole = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    headers.insert(RETRY_AFTER, whole.into());
    if after.subsec_nanos() > 0 {
        let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        headers.insert(HeaderName::from_static("retry-after-ms"), millis.into());
    }
}

fn json_headers() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}
