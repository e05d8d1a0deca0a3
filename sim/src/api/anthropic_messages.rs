//! Anthropic's `POST /v1/messages`: stream events and whole answers.

use serde_json::{Value, json};

use super::{Encoder, Finish, sse, text, token_text};

fn stop_reason(e: &Encoder) -> &'static str {
    match e.request.finish {
        Finish::Length => "max_tokens",
        Finish::Stop => "end_turn",
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
        let block = json!({"type": "text", "text": ""});
        sse::event(out, &json!({"type": "content_block_start", "index": 0, "content_block": block}));
    }
    let delta = json!({"type": "text_delta", "text": token_text(index)});
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
    message(e, json!([{"type": "text", "text": text(tokens)}]), Some(stop_reason(e)), tokens)
}
