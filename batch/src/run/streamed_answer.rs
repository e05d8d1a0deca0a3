//! Requests an answer as a stream, and joins the stream to the answer without streaming.
//!
//! Only a stream shows the time to first token, which the adaptive limit keeps to an objective. The
//! output of a run contains the same answer either way.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tidegate::protocol::{Dialect, Scanner, choice_error};

/// Top-level keys of requests that can be streamed: with these keys alone, the events of the stream
/// contain everything that an answer without streaming contains. `logprobs`, for example, has
/// another form in the streams of some servers.
const STREAMABLE_KEYS: [&str; 38] = [
    "add_generation_prompt",
    "chat_template_kwargs",
    "frequency_penalty",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "logit_bias",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "min_p",
    "min_tokens",
    "model",
    "parallel_tool_calls",
    "presence_penalty",
    "priority",
    "prompt",
    "prompt_cache_key",
    "reasoning_effort",
    "repetition_penalty",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "skip_special_tokens",
    "stop",
    "stop_token_ids",
    "stream",
    "structured_outputs",
    "temperature",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
    "user",
];
/// Keys of the strings that arrive in parts: answers, thoughts, and the inputs of tools. `input` is
/// that of a custom tool, `summary` is in the `reasoning_details` of OpenRouter, and `thinking` is
/// in the blocks of gateways to Anthropic.
const TEXT_KEYS: [&str; 10] = [
    "arguments",
    "content",
    "input",
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "refusal",
    "summary",
    "text",
    "thinking",
];
/// Keys of the strings of choices whose last value counts, because some servers change them from
/// event to event. A string with another key must not change; see [`Merge::Choice`].
const REPLACED_KEYS: [&str; 5] = ["finish_reason", "id", "native_finish_reason", "role", "stop_reason"];
/// Maximum size of one event of a stream, in bytes. A larger one makes the stream unreadable.
const MAX_EVENT: usize = 16 << 20;

/// Returns the request `body` with streaming and the usage of tokens requested. Returns `None` if
/// the answer could not be joined exactly: for endpoints other than chat completions and
/// completions, and for requests with keys that are not known.
pub(super) fn streamed_request(dialect: Dialect, body: &[u8]) -> Option<Bytes> {
    if !matches!(dialect, Dialect::OpenAiChat | Dialect::OpenAiCompletions) {
        return None;
    }
    let mut request: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(body).ok()?;
    if !request.keys().all(|key| STREAMABLE_KEYS.contains(&&**key)) {
        return None;
    }
    let [on, usage] =
        ["true", r#"{"include_usage":true}"#].map(|text| RawValue::from_string(text.to_owned()));
    let (on, usage) = (on.ok()?, usage.ok()?);
    request.insert("stream".into(), &on);
    request.insert("stream_options".into(), &usage);
    serde_json::to_vec(&request).ok().map(Bytes::from)
}

/// Joins the events of a stream of chat completions or completions.
#[derive(Debug)]
pub(super) struct StreamedAnswer {
    scanner: Scanner,
    events: Events,
}

/// The fields of the answer so far, its choices by index, and the first problem.
#[derive(Debug, Default)]
struct Events {
    fields: Map<String, Value>,
    choices: BTreeMap<u64, Map<String, Value>>,
    problem: Option<String>,
}

impl StreamedAnswer {
    pub(super) fn new() -> Self {
        Self { scanner: Scanner::with_limit(MAX_EVENT), events: Events::default() }
    }

    /// Adds the next bytes of the response.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.scanner.push(chunk, |event| self.events.push(event.data, event.oversized));
    }

    /// Returns the answer in the form that it has without streaming.
    ///
    /// # Errors
    ///
    /// Returns what is wrong if the stream contains an error or is incomplete.
    pub(super) fn finish(mut self) -> Result<Bytes, String> {
        self.scanner.finish(|event| self.events.push(event.data, event.oversized));
        self.events.into_answer()
    }
}

impl Events {
    fn push(&mut self, data: &[u8], oversized: bool) {
        if self.problem.is_some() || data == b"[DONE]" || data.is_empty() && !oversized {
            return;
        }
        if choice_error(data).is_some() {
            let event = String::from_utf8_lossy(data);
            self.problem = Some(format!("the stream ended with the error of a choice: {event}"));
            return;
        }
        let Ok(Value::Object(mut event)) = serde_json::from_slice(data) else {
            self.problem = Some("the stream contains an event that is not a JSON object".to_owned());
            return;
        };
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            self.problem = Some(format!("the stream ended with an error: {error}"));
            return;
        }
        if let Some(Value::Array(choices)) = event.remove("choices") {
            for choice in choices {
                let Value::Object(choice) = choice else { continue };
                let index = choice.get("index").and_then(Value::as_u64).unwrap_or_default();
                let merged = merge(self.choices.entry(index).or_default(), choice, Merge::Choice);
                if let Err(problem) = merged {
                    self.problem = Some(problem);
                    return;
                }
            }
        }
        self.problem = merge(&mut self.fields, event, Merge::Fields).err();
    }

    fn into_answer(self) -> Result<Bytes, String> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let is_complete =
            |choice: &Map<String, Value>| choice.get("finish_reason").is_some_and(Value::is_string);
        if self.choices.is_empty() || !self.choices.values().all(is_complete) {
            return Err("the stream ended before the answer was complete".to_owned());
        }
        let mut answer = self.fields;
        if answer.get("object").is_some_and(|object| object == "chat.completion.chunk") {
            answer.insert("object".to_owned(), "chat.completion".into());
        }
        let choices: Vec<_> = self.choices.into_values().map(whole_choice).collect();
        answer.insert("choices".to_owned(), choices.into());
        serde_json::to_vec(&answer).map(Bytes::from).map_err(|error| error.to_string())
    }
}

/// Returns a choice with its `delta` as the `message` of a complete answer. A choice of a legacy
/// completion stays as it is.
fn whole_choice(mut choice: Map<String, Value>) -> Value {
    if let Some(Value::Object(delta)) = choice.remove("delta") {
        let mut message =
            Map::from_iter([("role".to_owned(), json!("assistant")), ("content".to_owned(), Value::Null)]);
        message.extend(delta);
        for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            call.as_object_mut().map(|call| call.shift_remove("index"));
        }
        choice.insert("message".to_owned(), message.into());
    }
    choice.into()
}

/// How the values of a key in two events are merged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merge {
    /// The later value replaces the earlier one, except for texts in parts, objects and arrays.
    Fields,
    /// As [`Merge::Fields`], but a text with an unknown key must not change, because it may have
    /// arrived in parts: its last part alone would be a wrong answer.
    Choice,
}

/// Adds the fields of an event, or of a part of it, to those of the events before.
///
/// # Errors
///
/// Returns what prevents the parts of a choice from being joined.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>, how: Merge) -> Result<(), String> {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(_), Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if TEXT_KEYS.contains(&&*key) => {
                text.push_str(&more)
            }
            // Some servers repeat the keys of the first event with empty values.
            (Some(Value::String(text)), Value::String(more)) if !text.is_empty() && more.is_empty() => {}
            (Some(Value::Object(fields)), Value::Object(more)) => merge(fields, more, how)?,
            (Some(Value::Array(items)), Value::Array(more)) => {
                more.into_iter().try_for_each(|item| merge_item(items, item, how))?;
            }
            (Some(known), value) if how == Merge::Choice && is_other_text(&key, known, &value) => {
                return Err(format!("the stream contains several values of {key:?}, which cannot be joined"));
            }
            (_, value) => _ = into.insert(key, value),
        }
    }
    Ok(())
}

/// Returns `true` if `value`, the next value of `key`, and the value before it, `known`, may be
/// parts of a text.
fn is_other_text(key: &str, known: &Value, value: &Value) -> bool {
    let is_content = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
        _ => false,
    };
    known != value && is_content(known) && is_content(value) && !REPLACED_KEYS.contains(&key)
}

/// Merges an item into the last item with the same `index`, or appends it.
///
/// # Errors
///
/// Returns an error if the item is an object of a choice that has no `index` and is not the first:
/// it may be the next part of the item before.
fn merge_item(items: &mut Vec<Value>, item: Value, how: Merge) -> Result<(), String> {
    let index = item.get("index").and_then(Value::as_u64);
    if how == Merge::Choice && index.is_none() && item.is_object() && !items.is_empty() {
        return Err(
            "the stream contains a list whose items have no index, so they cannot be joined".to_owned()
        );
    }
    let same = items
        .iter_mut()
        .rfind(|known| index.is_some() && known.get("index").and_then(Value::as_u64) == index)
        .filter(|known| !is_another_call(known, &item));
    match (same, item) {
        (Some(Value::Object(known)), Value::Object(item)) => merge(known, item, how)?,
        (_, item) => items.push(item),
    }
    Ok(())
}

/// Returns `true` if `item` begins another tool call than `known`: it has another id, and a name.
/// Some servers send each call with the same `index`.
fn is_another_call(known: &Value, item: &Value) -> bool {
    let [before, id, name] = [known.get("id"), item.get("id"), item.pointer("/function/name")]
        .map(|value| value.and_then(Value::as_str).filter(|text| !text.is_empty()));
    before.is_some() && id.is_some() && before != id && name.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(events: &str) -> Result<Value, String> {
        let mut answer = StreamedAnswer::new();
        events.as_bytes().chunks(7).for_each(|chunk| answer.push(chunk));
        answer.finish().map(|body| serde_json::from_slice(&body).unwrap())
    }

    fn events(events: &[Value]) -> String {
        events
            .iter()
            .map(|event| format!("data: {event}\n\n"))
            .chain(["data: [DONE]\n\n".to_owned()])
            .collect()
    }

    fn chunk(choices: &Value) -> Value {
        json!({"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": choices, "usage": null})
    }

    #[test]
    fn chat_stream_becomes_the_answer_without_streaming() {
        let stream = events(&[
            chunk(
                &json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]),
            ),
            chunk(
                &json!([{"index": 0, "delta": {"reasoning_content": "Hm"}}, {"index": 1, "delta": {"content": "B"}}]),
            ),
            chunk(&json!([{"index": 0, "delta": {"content": "Grü"}}])),
            chunk(
                &json!([{"index": 0, "delta": {"content": "ße"}, "finish_reason": "stop", "stop_reason": null}]),
            ),
            chunk(&json!([{"index": 1, "delta": {}, "finish_reason": "length"}])),
            json!({"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [],
                "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}),
        ]);
        let expected = json!({
            "id": "c1", "object": "chat.completion", "created": 7, "model": "m",
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
            "choices": [
                {"index": 0, "finish_reason": "stop", "stop_reason": null,
                    "message": {"role": "assistant", "content": "Grüße", "reasoning_content": "Hm"}},
                {"index": 1, "finish_reason": "length", "message": {"role": "assistant", "content": "B"}},
            ],
        });
        assert_eq!(joined(&stream), Ok(expected));
    }

    #[test]
    fn tool_calls_with_one_index_stay_apart() {
        let part = |call: Value| chunk(&json!([{"index": 0, "delta": {"tool_calls": [call]}}]));
        let stream = events(&[
            part(
                json!({"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":"}}),
            ),
            part(json!({"index": 0, "function": {"arguments": "1}"}})),
            part(
                json!({"index": 0, "id": "b", "type": "function", "function": {"name": "f", "arguments": "{"}}),
            ),
            part(json!({"index": 0, "id": "b", "function": {"arguments": "}"}})),
            chunk(&json!([{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])),
        ]);
        let calls = &joined(&stream).unwrap()["choices"][0]["message"]["tool_calls"];
        let expected = json!([
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}},
            {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ]);
        assert_eq!(calls, &expected);
    }

    #[test]
    fn tool_calls_are_joined_by_index() {
        let call = |index: u64, rest: Value| {
            let mut call = json!({"index": index});
            call.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            chunk(&json!([{"index": 0, "delta": {"tool_calls": [call]}}]))
        };
        let named =
            |id: &str| json!({"id": id, "type": "function", "function": {"name": "add", "arguments": ""}});
        let stream = events(&[
            call(0, named("a")),
            call(0, json!({"function": {"arguments": "{\"x\""}})),
            call(1, named("b")),
            call(0, json!({"id": "a", "function": {"name": "add", "arguments": ":1}"}})),
            call(1, json!({"function": {"arguments": "{}"}})),
            chunk(&json!([{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])),
        ]);
        let answer = joined(&stream).unwrap();
        let expected = json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{\"x\":1}"}},
            {"id": "b", "type": "function", "function": {"name": "add", "arguments": "{}"}},
        ]});
        assert_eq!(answer["choices"][0]["message"], expected);
    }

    /// Returns the stream of one choice with these deltas.
    fn deltas(deltas: &[Value]) -> String {
        let parts = deltas.iter().map(|delta| chunk(&json!([{"index": 0, "delta": delta}])));
        let end = chunk(&json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]));
        events(&parts.chain([end]).collect::<Vec<_>>())
    }

    #[test]
    fn custom_tools_and_reasoning_are_joined() {
        let stream = deltas(&[
            json!({"tool_calls": [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "sh", "input": "l"}}]}),
            json!({"tool_calls": [{"index": 0, "id": "", "custom": {"name": "", "input": "s"}}]}),
            json!({"reasoning_details": [{"index": 0, "type": "reasoning.summary", "summary": "I "}]}),
            json!({"reasoning_details": [{"index": 0, "type": "reasoning.summary", "summary": "think"}]}),
            json!({"thinking_blocks": [{"index": 0, "type": "thinking", "thinking": "Hm", "signature": ""}]}),
            json!({"thinking_blocks": [{"index": 0, "type": "thinking", "thinking": ".", "signature": "xyz"}]}),
        ]);
        let message = &joined(&stream).unwrap()["choices"][0]["message"];
        assert_eq!(
            message["tool_calls"],
            json!([{"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}])
        );
        assert_eq!(message["reasoning_details"][0]["summary"], "I think");
        assert_eq!(message["thinking_blocks"][0]["thinking"], "Hm.");
        assert_eq!(message["thinking_blocks"][0]["signature"], "xyz");
    }

    #[test]
    fn stream_whose_parts_may_be_lost_is_an_error() {
        let block = |thinking: &str| json!({"thinking_blocks": [{"type": "thinking", "thinking": thinking}]});
        let data = |data: &str| json!({"reasoning_details": [{"index": 0, "data": data}]});
        let name = |name: &str| json!({"tool_calls": [{"index": 0, "function": {"name": name}}]});
        for (first, second) in [
            (block("a"), block("b")),
            (data("a"), data("b")),
            (name("get_"), name("weather")),
            (json!({"new_key": "a"}), json!({"new_key": "b"})),
            (json!({"content": "a"}), json!({"content": [{"type": "text", "text": "b"}]})),
        ] {
            let problem = joined(&deltas(&[first.clone(), second])).unwrap_err();
            assert!(problem.contains("joined"), "{problem}");
            assert!(joined(&deltas(&[first])).is_ok());
        }
        let repeated = |value: &str| json!({"role": "assistant", "new_key": value});
        assert!(joined(&deltas(&[repeated("a"), repeated("a"), repeated("")])).is_ok());
    }

    #[test]
    fn error_of_a_choice_is_an_error() {
        for choice in [
            json!({"index": 0, "delta": {"content": ""}, "finish_reason": "error",
                "error": {"message": "provider died", "code": 502}}),
            json!({"index": 0, "delta": {}, "finish_reason": "error"}),
            json!({"index": 0, "delta": {}, "finish_reason": "stop", "error": {"message": "provider died"}}),
        ] {
            let first = chunk(&json!([{"index": 0, "delta": {"content": "a"}}]));
            let problem = joined(&events(&[first, chunk(&json!([choice]))])).unwrap_err();
            assert!(problem.contains("error of a choice"), "{problem}");
        }
    }

    #[test]
    fn incomplete_or_failed_stream_is_an_error() {
        let first = chunk(&json!([{"index": 0, "delta": {"content": "a"}}]));
        assert!(joined(&events(std::slice::from_ref(&first))).unwrap_err().contains("before the answer"));
        let failed = events(&[first, json!({"error": {"message": "out of memory"}})]);
        assert!(joined(&failed).unwrap_err().contains("out of memory"));
        assert!(joined("data: {\"choices\"\n\n").unwrap_err().contains("not a JSON object"));
        assert!(joined("").is_err());
    }

    #[test]
    fn only_requests_whose_answer_can_be_joined_are_streamed() {
        let streamed = |text: &str| streamed_request(Dialect::OpenAiChat, text.as_bytes());
        let body = streamed(
            r#"{"model":"m","stream":false,"messages":[{"content":"\u00e9"}],"seed":12345678901234567890}"#,
        );
        let text = String::from_utf8(body.unwrap().to_vec()).unwrap();
        assert!(text.contains(r#""stream":true,"stream_options":{"include_usage":true}"#), "{text}");
        assert!(
            text.contains("12345678901234567890") && text.contains(r"\u00e9") && !text.contains("false"),
            "{text}"
        );
        for text in [r#"{"model":"m","messages":[],"logprobs":true}"#, r#"{"messages":[],"new_key":1}"#, "[]"]
        {
            assert_eq!(streamed(text), None, "{text}");
        }
        assert_eq!(streamed_request(Dialect::OpenAiResponses, br#"{"model":"m"}"#), None);
    }
}
