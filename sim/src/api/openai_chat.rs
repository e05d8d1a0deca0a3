//! OpenAI's `POST /v1/chat/completions`: stream chunks and whole answers.

use serde_json::{Value, json};

use super::{Encoder, sse, text, token_text};

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

pub(super) fn token(e: &Encoder, index: u32, out: &mut String) {
    if index == 0 {
        sse::data(out, &chunk(e, choice(json!({"role": "assistant", "content": ""}), None)));
    }
    sse::data(out, &chunk(e, choice(json!({"content": token_text(index)}), None)));
}

pub(super) fn close(e: &Encoder, tokens: u32, out: &mut String) {
    sse::data(out, &chunk(e, choice(json!({}), Some(e.request.finish.as_str()))));
    if e.request.include_usage {
        let mut last = chunk(e, json!([]));
        if let Value::Object(fields) = &mut last {
            fields.insert("usage".to_owned(), usage(e, tokens));
        }
        sse::data(out, &last);
    }
    out.push_str(sse::DONE);
}

pub(super) fn full(e: &Encoder, tokens: u32) -> Value {
    json!({
        "id": format!("chatcmpl-{}", e.id),
        "object": "chat.completion",
        "created": e.created,
        "model": e.request.model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": text(tokens), "refusal": null, "tool_calls": []},
            "logprobs": null,
            "finish_reason": e.request.finish.as_str(),
        }],
        "usage": usage(e, tokens),
    })
}
