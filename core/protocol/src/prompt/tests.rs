//! Property tests of the tokens that are counted in a request. `tests/vectors/estimate.json` has
//! the expected counts for each API format.

use http::{HeaderMap, Method, Uri};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::RequestFacts;

/// The ratio at which the tests count text, in tokens per UTF-8 byte.
const RATIO: f64 = 0.3;

fn facts(body: &[u8]) -> RequestFacts {
    let path = Uri::from_static("https://api.openai.com/v1/chat/completions");
    RequestFacts::read(&Method::POST, &path, &HeaderMap::new(), Some(body))
}

fn input(body: &Value) -> u64 {
    facts(body.to_string().as_bytes()).prompt.expect("JSON").input(RATIO)
}

fn said(content: Value) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]})
}

/// Generates arbitrary JSON with known keys in unexpected places.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "(data:)?(image/png|audio/wav|text/plain)?(;base64)?,?[A-Za-z0-9]{0,9}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..6)
                .prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    const KNOWN: [&str; 20] = [
        "messages",
        "input",
        "tools",
        "text",
        "content",
        "type",
        "source",
        "data",
        "url",
        "image_url",
        "file_data",
        "mimeType",
        "format",
        "detail",
        "generationConfig",
        "max_tokens",
        "n",
        "images",
        "schema",
        "arguments",
    ];
    prop_oneof![prop::sample::select(&KNOWN[..]).prop_map(str::to_owned), any::<String>()]
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = facts(&bytes);
    }

    #[test]
    fn any_json_has_an_estimate(fields in prop::collection::vec((key(), anything()), 0..6)) {
        let body: Value = fields.into_iter().collect::<serde_json::Map<_, _>>().into();
        input(&body);
    }

    #[test]
    fn longer_text_never_costs_less(parts in prop::collection::vec(anything(), 0..4), text: String, more: String) {
        let with = |text: String| {
            let mut parts = parts.clone();
            parts.push(json!({"type": "text", "text": text}));
            input(&said(parts.into()))
        };
        prop_assert!(with(text.clone()) <= with(text + &more));
    }

    #[test]
    fn image_base64_is_not_counted_as_text(base64 in "[A-Za-z0-9+/]{4,4000}") {
        let url = format!("data:image/png;base64,{base64}");
        let source = json!({"media_type": "image/jpeg", "data": base64, "type": "base64"});
        for part in [
            json!({"type": "image_url", "image_url": {"url": url}}),
            json!({"image_url": url, "type": "input_image"}),
            json!({"source": source, "type": "image"}),
            json!({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": source}]}),
            json!({"inlineData": {"data": base64, "mimeType": "image/webp"}}),
            json!({"inline_data": {"mime_type": "image/webp", "data": base64}}),
            json!({"image": {"format": "png", "source": {"bytes": base64}}}),
            json!({"type": "image_generation_call", "id": "i", "result": base64}),
            json!({"type": "image_base64", "image_base64": base64}),
            json!({"type": "video", "video": [url]}),
        ] {
            prop_assert_eq!(input(&said(json!([part]))), MESSAGE_TOKENS + 1600, "{}", part);
        }
        let whole = json!({"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": url}});
        prop_assert_eq!(input(&json!({"input": [whole]})), MESSAGE_TOKENS + 1600);
        prop_assert_eq!(input(&json!({"messages": [{"content": "", "images": [base64.clone(), base64]}]})), MESSAGE_TOKENS + 3200);
    }

    #[test]
    fn audio_and_file_base64_counts_as_seconds_and_pages(kilobytes in 1u64..400) {
        let base64 = "A".repeat(kilobytes as usize * 4000 / 3 / 4 * 4);
        let sound = input(&said(json!([{"type": "input_audio", "input_audio": {"data": base64, "format": "mp3"}}])));
        prop_assert_eq!(sound, MESSAGE_TOKENS + 32 * kilobytes.div_ceil(16));
        let file = format!("data:application/pdf;base64,{base64}");
        let file = input(&said(json!([{"type": "file", "file": {"filename": "a.pdf", "file_data": file}}])));
        prop_assert_eq!(file, MESSAGE_TOKENS + 2000 * kilobytes.div_ceil(50));
    }
}

#[test]
fn uncountable_body_still_has_its_model() {
    let deep = format!(r#"{{"messages": {}{}, "model": "m"}}"#, "[".repeat(500), "]".repeat(500));
    let half_a_character = br#"{"messages": [{"content": "\ud83d"}], "model": "m"}"#;
    let no_text = b"{\"messages\": [{\"content\": \"caf\xe9\"}], \"model\": \"m\"}";
    for body in [deep.as_bytes(), half_a_character, no_text] {
        let facts = facts(body);
        assert_eq!((facts.model.as_deref(), facts.prompt), (Some("m"), None));
    }
    assert_eq!(facts(b"not JSON").prompt, None);
}

#[test]
fn sums_saturate() {
    let body = json!({"max_tokens": u64::MAX, "n": 1e300, "messages": []});
    let prompt = facts(body.to_string().as_bytes()).prompt.expect("JSON");
    assert_eq!(prompt.max_output(), Some(u64::MAX));
    assert_eq!(
        Prompt { text_bytes: u64::MAX, media_tokens: u64::MAX, ..prompt }.input(f64::INFINITY),
        u64::MAX
    );
    assert_eq!(Prompt { text_bytes: 100, ..Prompt::default() }.input(f64::NAN), 0);
}

#[test]
fn json_number_counts_by_its_text() {
    for text in ["0.125", "12.0", "-2.5e-7", "1e308", "5e-324", "1e16", "123456.5"] {
        let body = format!(r#"{{"tools":[{text}]}}"#);
        let prompt = facts(body.as_bytes()).prompt.expect("JSON");
        assert_eq!(prompt.text_bytes, "[,]".len() as u64 + text.len() as u64, "{text}");
    }
}
