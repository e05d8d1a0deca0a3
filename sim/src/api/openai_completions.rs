//! OpenAI's `POST /v1/completions`: stream chunks and whole answers.

use serde_json::{Value, json};

use super::{Encoder, openai_chat, sse};

fn answer(e: &Encoder, choices: Value) -> Value {
    json!({
        "id": format!("cmpl-{}", e.id),
        "object": "text_completion",
        "created": e.created,
        "model": e.request.model,
        "choices": choices,
    })
}

fn choice(text: &str, finish: Option<&str>) -> Value {
    json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish, "stop_reason": null}])
}

fn with_usage(e: &Encoder, choices: Value, tokens: u32) -> Value {
    let mut value = answer(e, choices);
    if let Value::Object(fields) = &mut value {
        fields.insert("usage".to_owned(), openai_chat::usage(e, tokens));
    }
    openai_chat::with_fingerprint(e, value)
}

/// Appends the stream chunk of the token at `index`. The chunk of the last token also has the
/// finish reason.
pub(super) fn token(e: &Encoder, index: u32, out: &mut String) {
    let finish = (index + 1 == e.request.output_tokens).then(|| e.request.finish.as_str());
    sse::data(out, &answer(e, choice(e.request.answer.token_text(index), finish)));
}

pub(super) fn close(e: &Encoder, tokens: u32, out: &mut String) {
    if e.request.include_usage {
        sse::data(out, &with_usage(e, json!([]), tokens));
    }
    out.push_str(sse::DONE);
}

pub(super) fn full(e: &Encoder, tokens: u32) -> Value {
    with_usage(e, choice(&e.request.answer.text(tokens), Some(e.request.finish.as_str())), tokens)
}
