//! OpenAI's `POST /v1/responses`: stream events and whole answers.

use serde_json::{Value, json};

use super::answer_content::Answer;
use super::{Encoder, sse};

fn response(e: &Encoder, status: &str, output: Value, usage: Value) -> Value {
    let mut response = json!({
        "id": format!("resp_{}", e.id),
        "object": "response",
        "created_at": e.created,
        "status": status,
        "model": e.request.model,
        "output": output,
        "usage": usage,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "metadata": null,
        "parallel_tool_calls": true,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    });
    if let (Value::Object(fields), Some(text)) = (&mut response, &e.request.text) {
        fields.insert("text".to_owned(), text.clone());
    }
    response
}

fn usage(e: &Encoder, tokens: u32) -> Value {
    json!({
        "input_tokens": e.request.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": u64::from(e.request.prompt_tokens) + u64::from(tokens),
    })
}

fn is_call(e: &Encoder) -> bool {
    matches!(e.request.answer, Answer::ToolCall { .. })
}

fn item_id(e: &Encoder) -> String {
    format!("{}_{}", if is_call(e) { "fc" } else { "msg" }, e.id)
}

/// Returns the message, or the tool call with `text` as arguments. `None` is a message without
/// content.
fn item(e: &Encoder, status: &str, text: Option<&str>) -> Value {
    if let Answer::ToolCall { name, .. } = &e.request.answer {
        return json!({
            "id": item_id(e), "type": "function_call", "call_id": format!("call_{}", e.id), "name": name,
            "arguments": text.unwrap_or_default(), "status": status,
        });
    }
    let content: Vec<_> = text.into_iter().map(part).collect();
    json!({"id": item_id(e), "type": "message", "role": "assistant", "status": status, "content": content})
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": null})
}

fn emit(e: &mut Encoder, out: &mut String, mut event: Value) {
    if let Value::Object(fields) = &mut event {
        fields.insert("sequence_number".to_owned(), json!(e.sent));
    }
    e.sent += 1;
    sse::event(out, &event);
}

pub(super) fn open(e: &mut Encoder, out: &mut String) {
    let begun = response(e, "in_progress", json!([]), Value::Null);
    emit(e, out, json!({"type": "response.created", "response": begun}));
    emit(e, out, json!({"type": "response.in_progress", "response": begun}));
}

pub(super) fn token(e: &mut Encoder, index: u32, out: &mut String) {
    let id = item_id(e);
    if index == 0 {
        let added = item(e, "in_progress", None);
        emit(e, out, json!({"type": "response.output_item.added", "output_index": 0, "item": added}));
        if !is_call(e) {
            let at = json!({
                "type": "response.content_part.added", "output_index": 0, "content_index": 0, "item_id": id, "part": part(""),
            });
            emit(e, out, at);
        }
    }
    let text = e.request.answer.token_text(index);
    let delta = if is_call(e) {
        json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": id, "delta": text})
    } else {
        json!({
            "type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": id,
            "delta": text, "logprobs": [],
        })
    };
    emit(e, out, delta);
}

pub(super) fn close(e: &mut Encoder, tokens: u32, out: &mut String) {
    let (id, text) = (item_id(e), e.request.answer.text(tokens));
    let whole = item(e, "completed", Some(&text));
    if let Answer::ToolCall { name, .. } = &e.request.answer {
        let done = json!({
            "type": "response.function_call_arguments.done", "output_index": 0, "item_id": id, "name": name,
            "arguments": text,
        });
        emit(e, out, done);
    } else {
        let done = json!({
            "type": "response.output_text.done", "output_index": 0, "content_index": 0, "item_id": id, "text": text, "logprobs": [],
        });
        emit(e, out, done);
        let done = json!({
            "type": "response.content_part.done", "output_index": 0, "content_index": 0, "item_id": id, "part": part(&text),
        });
        emit(e, out, done);
    }
    emit(e, out, json!({"type": "response.output_item.done", "output_index": 0, "item": whole}));
    let completed = response(e, "completed", json!([whole]), usage(e, tokens));
    emit(e, out, json!({"type": "response.completed", "response": completed}));
}

pub(super) fn full(e: &Encoder, tokens: u32) -> Value {
    let whole = item(e, "completed", Some(&e.request.answer.text(tokens)));
    response(e, "completed", json!([whole]), usage(e, tokens))
}
