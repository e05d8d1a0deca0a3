//! Answers of `responses`: a message, then one item per tool call.

use serde_json::{Value, json};

use super::openai_chat::CREATED;
use super::request_shape::{Piece, RequestShape, has_tools, text, tools};
use super::{Events, sse};
use crate::script::ToolCall;

fn response(shape: &RequestShape, status: &str, output: Value, usage: Value) -> Value {
    json!({
        "id": format!("resp_{}", shape.number), "object": "response", "created_at": CREATED, "status": status,
        "model": shape.model, "output": output, "usage": usage, "error": null, "incomplete_details": null,
        "instructions": null, "metadata": null, "parallel_tool_calls": true, "temperature": 1.0,
        "tool_choice": "auto", "tools": [], "top_p": 1.0,
    })
}

fn usage(shape: &RequestShape, pieces: &[Piece<'_>]) -> Value {
    let (input, output) = (shape.input_tokens, pieces.len());
    json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output,
    })
}

fn message_id(shape: &RequestShape) -> String {
    format!("msg_{}", shape.number)
}

fn message(shape: &RequestShape, status: &str, content: Value) -> Value {
    json!({"id": message_id(shape), "type": "message", "role": "assistant", "status": status, "content": content})
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn tool(shape: &RequestShape, index: usize, tool: &ToolCall, status: &str, arguments: &str) -> Value {
    json!({
        "id": format!("fc_{}_{index}", shape.number), "type": "function_call", "status": status, "name": tool.name,
        "call_id": format!("call_{}_{index}", shape.number), "arguments": arguments,
    })
}

fn output(pieces: &[Piece<'_>], shape: &RequestShape) -> Value {
    let text = text(pieces);
    let mut items = Vec::new();
    if !text.is_empty() || !has_tools(pieces) {
        items.push(message(shape, "completed", json!([part(&text)])));
    }
    items
        .extend(tools(pieces).map(|(index, tool_call)| {
            tool(shape, index, tool_call, "completed", &tool_call.argument_text())
        }));
    Value::Array(items)
}

/// Encodes the events of one stream and numbers them from 0. The value is the next number.
#[derive(Default)]
struct Writer(u64);

impl Writer {
    fn write(&mut self, mut event: Value) -> String {
        if let Some(fields) = event.as_object_mut() {
            fields.insert(String::from("sequence_number"), json!(self.0));
        }
        self.0 += 1;
        sse::event(&event)
    }
}

pub(super) fn events(pieces: &[Piece<'_>], shape: &RequestShape) -> Events {
    let mut writer = Writer::default();
    let texts = pieces.iter().filter(|piece| matches!(piece, Piece::Text(_))).count();
    let (id, text) = (message_id(shape), text(pieces));
    let mut events = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let mut event = String::new();
        let mut emit = |value| event.push_str(&writer.write(value));
        if number == 0 {
            let begun = response(shape, "in_progress", json!([]), Value::Null);
            emit(json!({"type": "response.created", "response": begun}));
            emit(json!({"type": "response.in_progress", "response": begun}));
        }
        match piece {
            Piece::Text(delta) => {
                let at =
                    |kind: &str| json!({"type": kind, "output_index": 0, "content_index": 0, "item_id": id});
                let with = |kind: &str, key: &str, value: Value| {
                    let mut event = at(kind);
                    if let Some(fields) = event.as_object_mut() {
                        fields.insert(key.to_owned(), value);
                    }
                    event
                };
                if number == 0 {
                    let item = message(shape, "in_progress", json!([]));
                    emit(json!({"type": "response.output_item.added", "output_index": 0, "item": item}));
                    emit(with("response.content_part.added", "part", part("")));
                }
                emit(with("response.output_text.delta", "delta", json!(delta)));
                if number + 1 == texts {
                    emit(with("response.output_text.done", "text", json!(text)));
                    emit(with("response.content_part.done", "part", part(&text)));
                    let item = message(shape, "completed", json!([part(&text)]));
                    emit(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
                }
            }
            Piece::Tool(index, tool_call) => {
                let (output_index, arguments) = (usize::from(texts > 0) + index, tool_call.argument_text());
                let item = tool(shape, *index, tool_call, "in_progress", "");
                let id = format!("fc_{}_{index}", shape.number);
                emit(
                    json!({"type": "response.output_item.added", "output_index": output_index, "item": item}),
                );
                emit(json!({
                    "type": "response.function_call_arguments.delta", "output_index": output_index, "item_id": id, "delta": arguments,
                }));
                emit(json!({
                    "type": "response.function_call_arguments.done", "output_index": output_index, "item_id": id,
                    "name": tool_call.name, "arguments": arguments,
                }));
                let item = tool(shape, *index, tool_call, "completed", &arguments);
                emit(
                    json!({"type": "response.output_item.done", "output_index": output_index, "item": item}),
                );
            }
        }
        events.push(event);
    }
    let close = writer.write(json!({"type": "response.completed", "response": whole(pieces, shape)}));
    Events { pieces: events, close }
}

pub(super) fn whole(pieces: &[Piece<'_>], shape: &RequestShape) -> Value {
    response(shape, "completed", output(pieces, shape), usage(shape, pieces))
}
