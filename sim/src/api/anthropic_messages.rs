//! Anthropic's `POST /v1/messages`: stream events and whole answers.

use serde_json::{Value, json};

use super::answer_content::Answer;
use super::{Encoder, Finish, sse};

fn stop_reason(e: &Encoder) -> &'static str {
    match (e.request.finish, &e.request.answer) {
        (Finish::Length, _) => "max_tokens",
        (Finish::Stop, Answer::ToolCall { .. }) => "tool_use",
        (Finish::Stop, _) => "end_turn",
    }
}

/// Returns a content block with `text`, or with the tool call whose arguments are in `text`. The
/// arguments are empty if they are not a whole JSON document.
fn block(e: &Encoder, text: &str) -> Value {
    match &e.request.answer {
        Answer::ToolCall { name, .. } => {
            let input = serde_json::from_str(text).unwrap_or_else(|_| json!({}));
            json!({"type": "tool_use", "id": format!("toolu_{}", e.id), "name": name, "input": input})
        }
        _ => json!({"type": "text", "text": text}),
    }
}

fn message(e: &Encoder, content: Value, stop: Option<&str>, tokens: u32) -> Value {
    json!({
        "id": format!("msg_{}", e.id),
        "type": "message",
        "role": "assistant",
        "model": e.request.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
        "usage": {"input_tokens": e.request.prompt_tokens, "output_tokens": tokens},
    })
}

pub(super) fn token(e: &Encoder, index: u32, out: &mut String) {
    if index == 0 {
        sse::event(out, &json!({"type": "message_start", "message": message(e, json!([]), None, 0)}));
        sse::event(out, &json!({"type": "content_block_start", "index": 0, "content_block": block(e, "")}));
    }
    let text = e.request.answer.token_text(index);
    let delta = match e.request.answer {
        Answer::ToolCall { .. } => json!({"type": "input_json_delta", "partial_json": text}),
        _ => json!({"type": "text_delta", "text": text}),
    };
    sse::event(out, &json!({"type": "content_block_delta", "index": 0, "delta": delta}));
}

pub(super) fn close(e: &Encoder, tokens: u32, out: &mut String) {
    sse::event(out, &json!({"type": "content_block_stop", "index": 0}));
    let delta = json!({"stop_reason": stop_reason(e), "stop_sequence": null});
    let usage = json!({"input_tokens": e.request.prompt_tokens, "output_tokens": tokens});
    sse::event(out, &json!({"type": "message_delta", "delta": delta, "usage": usage}));
    sse::event(out, &json!({"type": "message_stop"}));
}

pub(super) fn full(e: &Encoder, tokens: u32) -> Value {
    message(e, json!([block(e, &e.request.answer.text(tokens))]), Some(stop_reason(e)), tokens)
}
