//! Answers of `models/MODEL:generateContent` and `:streamGenerateContent`. A stream consists of
//! server-sent events, which Google's clients request with `?alt=sse`.

use http::StatusCode;
use serde_json::{Value, json};

use super::request_shape::{Piece, RequestShape};
use super::{Events, sse};

fn answer(shape: &RequestShape, pieces: &[Piece<'_>], tokens: usize, finish: Option<&str>) -> Value {
    let part = |piece: &Piece<'_>| match piece {
        Piece::Text(text) => json!({"text": text}),
        Piece::Tool(_, tool_call) => {
            json!({"functionCall": {"name": tool_call.name, "args": tool_call.argument_value()}})
        }
    };
    let parts: Vec<Value> = pieces.iter().map(part).collect();
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if let (Some(finish), Some(fields)) = (finish, candidate.as_object_mut()) {
        fields.insert(String::from("finishReason"), json!(finish));
    }
    let input = shape.input_tokens;
    json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": input, "candidatesTokenCount": tokens, "totalTokenCount": input + tokens,
        },
        "modelVersion": shape.model, "responseId": format!("resp_{}", shape.number),
    })
}

pub(super) fn events(pieces: &[Piece<'_>], shape: &RequestShape) -> Events {
    let event = |(number, piece): (usize, &Piece<'_>)| {
        sse::data(&answer(shape, std::slice::from_ref(piece), number + 1, None))
    };
    let close = sse::data(&answer(shape, &[Piece::Text("")], pieces.len(), Some("STOP")));
    Events { pieces: pieces.iter().enumerate().map(event).collect(), close }
}

pub(super) fn whole(pieces: &[Piece<'_>], shape: &RequestShape) -> Value {
    answer(shape, pieces, pieces.len(), Some("STOP"))
}

pub(super) fn error(status: StatusCode, message: &str) -> Value {
    let word = match status.as_u16() {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        400..500 => "INVALID_ARGUMENT",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    json!({"error": {"code": status.as_u16(), "message": message, "status": word}})
}
