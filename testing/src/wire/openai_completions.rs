//! Answers of `completions`. The API has no tool calls, so those of a scripted answer are omitted.

use serde_json::{Value, json};

use super::openai_chat::{CREATED, usage};
use super::request_shape::{Piece, RequestShape, text};
use super::{Events, sse};

fn answer(shape: &RequestShape, choices: Value) -> Value {
    json!({
        "id": format!("cmpl-{}", shape.number), "object": "text_completion", "created": CREATED, "model": shape.model,
        "choices": choices,
    })
}

fn choice(text: &str, finish: Option<&str>) -> Value {
    json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish}])
}

fn with_usage(shape: &RequestShape, choices: Value, pieces: &[Piece<'_>]) -> Value {
    let mut value = answer(shape, choices);
    if let Some(fields) = value.as_object_mut() {
        fields.insert(String::from("usage"), usage(shape, pieces));
    }
    value
}

pub(super) fn events(pieces: &[Piece<'_>], shape: &RequestShape) -> Events {
    let event = |piece: &Piece<'_>| match piece {
        Piece::Text(text) => sse::data(&answer(shape, choice(text, None))),
        Piece::Tool(..) => String::new(),
    };
    let mut close = sse::data(&answer(shape, choice("", Some("stop"))));
    if shape.include_usage {
        close.push_str(&sse::data(&with_usage(shape, json!([]), pieces)));
    }
    close.push_str(sse::DONE);
    Events { pieces: pieces.iter().map(event).collect(), close }
}

pub(super) fn whole(pieces: &[Piece<'_>], shape: &RequestShape) -> Value {
    with_usage(shape, choice(&text(pieces), Some("stop")), pieces)
}
