//! Answers of Anthropic's `messages`: a text block, then one block per tool call.

use serde_json::{Value, json};

use super::request_shape::{Piece, RequestShape, has_tools, text, tools};
use super::{Events, sse};
use crate::script::ToolCall;

fn stop_reason(pieces: &[Piece<'_>]) -> &'static str {
    if has_tools(pieces) { "tool_use" } else { "end_turn" }
}

fn message(shape: &RequestShape, content: Value, stop: Option<&str>, tokens: usize) -> Value {
    json!({
        "id": format!("msg_{}", shape.number), "type": "message", "role": "assistant", "model": shape.model,
        "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": shape.input_tokens, "output_tokens": tokens},
    })
}

fn tool(shape: &RequestShape, index: usize, tool: &ToolCall, input: Value) -> Value {
    json!({"type": "tool_use", "id": format!("toolu_{}_{index}", shape.number), "name": tool.name, "input": input})
}

fn start(index: usize, block: Value) -> String {
    sse::event(&json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn delta(index: usize, delta: Value) -> String {
    sse::event(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

fn stop(index: usize) -> String {
    sse::event(&json!({"type": "content_block_stop", "index": index}))
}

pub(super) fn events(pieces: &[Piece<'_>], shape: &RequestShape) -> Events {
    let texts = pieces.iter().filter(|piece| matches!(piece, Piece::Text(_))).count();
    let mut events = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let mut event = String::new();
        if number == 0 {
            event.push_str(&sse::event(
                &json!({"type": "message_start", "message": message(shape, json!([]), None, 0)}),
            ));
        }
        match piece {
            Piece::Text(text) => {
                if number == 0 {
                    event.push_str(&start(0, json!({"type": "text", "text": ""})));
                }
                event.push_str(&delta(0, json!({"type": "text_delta", "text": text})));
                if number + 1 == texts {
                    event.push_str(&stop(0));
                }
            }
            Piece::Tool(index, tool_call) => {
                let block = usize::from(texts > 0) + index;
                event.push_str(&start(block, tool(shape, *index, tool_call, json!({}))));
                event.push_str(&delta(
                    block,
                    json!({"type": "input_json_delta", "partial_json": tool_call.argument_text()}),
                ));
                event.push_str(&stop(block));
            }
        }
        events.push(event);
    }
    let usage = json!({"input_tokens": shape.input_tokens, "output_tokens": pieces.len()});
    let reason = json!({"stop_reason": stop_reason(pieces), "stop_sequence": null});
    let close = sse::event(&json!({"type": "message_delta", "delta": reason, "usage": usage}))
        + &sse::event(&json!({"type": "message_stop"}));
    Events { pieces: events, close }
}

pub(super) fn whole(pieces: &[Piece<'_>], shape: &RequestShape) -> Value {
    let text = text(pieces);
    let mut content = Vec::new();
    if !text.is_empty() || !has_tools(pieces) {
        content.push(json!({"type": "text", "text": text}));
    }
    content.extend(
        tools(pieces).map(|(index, tool_call)| tool(shape, index, tool_call, tool_call.argument_value())),
    );
    message(shape, Value::Array(content), Some(stop_reason(pieces)), pieces.len())
}
