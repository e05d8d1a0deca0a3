//! Answers of `chat/completions`.

use serde_json::{Value, json};

use super::request_shape::{Piece, RequestShape, has_tools, text, tools};
use super::{Events, sse};
use crate::script::ToolCall;

/// Creation date in answers, in seconds since 1970. It is constant, so that runs are deterministic.
pub(super) const CREATED: u64 = 1_700_000_000;

pub(super) fn usage(shape: &RequestShape, pieces: &[Piece<'_>]) -> Value {
    let (input, output) = (shape.input_tokens, pieces.len());
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

fn chunk(shape: &RequestShape, choices: Value) -> Value {
    json!({
        "id": format!("chatcmpl-{}", shape.number), "object": "chat.completion.chunk", "created": CREATED,
        "model": shape.model, "choices": choices,
    })
}

fn choice(delta: Value, finish: Option<&str>) -> Value {
    json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}])
}

fn finish(pieces: &[Piece<'_>]) -> &'static str {
    if has_tools(pieces) { "tool_calls" } else { "stop" }
}

fn tool(shape: &RequestShape, index: usize, tool: &ToolCall) -> Value {
    json!({
        "id": format!("call_{}_{index}", shape.number), "type": "function",
        "function": {"name": tool.name, "arguments": tool.argument_text()},
    })
}

pub(super) fn events(pieces: &[Piece<'_>], shape: &RequestShape) -> Events {
    let delta = |piece: &Piece<'_>| match piece {
        Piece::Text(text) => json!({"content": text}),
        Piece::Tool(index, tool_call) => {
            let mut tool_call = tool(shape, *index, tool_call);
            if let Some(fields) = tool_call.as_object_mut() {
                fields.insert(String::from("index"), json!(index));
            }
            json!({"tool_calls": [tool_call]})
        }
    };
    let mut events: Vec<String> =
        pieces.iter().map(|piece| sse::data(&chunk(shape, choice(delta(piece), None)))).collect();
    if let Some(first) = events.first_mut() {
        let role =
            json!({"role": "assistant", "content": if has_tools(pieces) { Value::Null } else { json!("") }});
        first.insert_str(0, &sse::data(&chunk(shape, choice(role, None))));
    }
    let mut close = sse::data(&chunk(shape, choice(json!({}), Some(finish(pieces)))));
    if shape.include_usage {
        let mut last = chunk(shape, json!([]));
        if let Some(fields) = last.as_object_mut() {
            fields.insert(String::from("usage"), usage(shape, pieces));
        }
        close.push_str(&sse::data(&last));
    }
    close.push_str(sse::DONE);
    Events { pieces: events, close }
}

pub(super) fn whole(pieces: &[Piece<'_>], shape: &RequestShape) -> Value {
    let text = text(pieces);
    let content = if text.is_empty() && has_tools(pieces) { Value::Null } else { json!(text) };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if has_tools(pieces)
        && let Some(fields) = message.as_object_mut()
    {
        let calls = tools(pieces).map(|(index, tool_call)| tool(shape, index, tool_call)).collect();
        fields.insert(String::from("tool_calls"), Value::Array(calls));
    }
    json!({
        "id": format!("chatcmpl-{}", shape.number), "object": "chat.completion", "created": CREATED, "model": shape.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(pieces)}],
        "usage": usage(shape, pieces),
    })
}
