//! OpenAI's `POST /v1/chat/completions`: stream chunks and whole answers.

use serde_json::{Value, json};

use super::answer_content::Answer;
use super::{Encoder, Finish, sse};

fn chunk(e: &Encoder, choices: Value) -> Value {
    json!({
        "id": format!("chatcmpl-{}", e.id),
        "object": "chat.completion.chunk",
        "created": e.created,
        "model": e.request.model,
        "choices": choices,
    })
}

fn choice(delta: Value, finish: Option<&str>) -> Value {
    json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}])
}

pub(super) fn usage(e: &Encoder, tokens: u32) -> Value {
    let prompt = e.request.prompt_tokens;
    json!({"prompt_tokens": prompt, "total_tokens": u64::from(prompt) + u64::from(tokens), "completion_tokens": tokens})
}

/// Adds the fingerprint of the server, if it has one, to a whole answer or to the chunk of a stream
/// that has the usage.
pub(super) fn with_fingerprint(e: &Encoder, mut answer: Value) -> Value {
    if let (Some(fingerprint), Value::Object(fields)) = (&e.fingerprint, &mut answer) {
        fields.insert("system_fingerprint".to_owned(), json!(fingerprint));
    }
    answer
}

pub(super) fn token(e: &Encoder, index: u32, out: &mut String) {
    let text = e.request.answer.token_text(index);
    let (first, delta) = match &e.request.answer {
        Answer::ToolCall { name, .. } => (
            json!({"role": "assistant", "content": null, "tool_calls": [tool_call(e, name, "", true)]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
        ),
        _ => (json!({"role": "assistant", "content": ""}), json!({"content": text})),
    };
    if index == 0 {
        let mut opening = chunk(e, choice(first, None));
        if e.fingerprint.is_some()
            && let Value::Object(fields) = &mut opening
        {
            // vLLM's first chunk has this key, even if the request does not ask for the ids.
            fields.insert("prompt_token_ids".to_owned(), Value::Null);
        }
        sse::data(out, &opening);
    }
    sse::data(out, &chunk(e, choice(delta, None)));
}

fn tool_call(e: &Encoder, name: &str, arguments: &str, streamed: bool) -> Value {
    let mut call = json!({
        "id": format!("call_{}", e.id), "type": "function", "function": {"name": name, "arguments": arguments},
    });
    if streamed && let Value::Object(fields) = &mut call {
        fields.insert("index".to_owned(), json!(0));
    }
    call
}

fn finish_reason(e: &Encoder) -> &'static str {
    match (e.request.finish, &e.request.answer) {
        (Finish::Stop, Answer::ToolCall { .. }) => "tool_calls",
        (finish, _) => finish.as_str(),
    }
}

pub(super) fn close(e: &Encoder, tokens: u32, out: &mut String) {
    sse::data(out, &chunk(e, choice(json!({}), Some(finish_reason(e)))));
    if e.request.include_usage {
        let mut last = chunk(e, json!([]));
        if let Value::Object(fields) = &mut last {
            fields.insert("usage".to_owned(), usage(e, tokens));
        }
        sse::data(out, &with_fingerprint(e, last));
    }
    out.push_str(sse::DONE);
}

pub(super) fn full(e: &Encoder, tokens: u32) -> Value {
    let text = e.request.answer.text(tokens);
    let (content, calls) = match &e.request.answer {
        Answer::ToolCall { name, .. } => (Value::Null, json!([tool_call(e, name, &text, false)])),
        _ => (json!(text), json!([])),
    };
    let answer = json!({
        "id": format!("chatcmpl-{}", e.id),
        "object": "chat.completion",
        "created": e.created,
        "model": e.request.model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": content, "refusal": null, "tool_calls": calls},
            "logprobs": null,
            "finish_reason": finish_reason(e),
        }],
        "usage": usage(e, tokens),
    });
    with_fingerprint(e, answer)
}
