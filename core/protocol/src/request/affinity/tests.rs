use http::{Method, Uri};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn of(body: &Value) -> Affinity {
    read("/v1/chat/completions", &[], body)
}

fn read(path: &str, headers: &[(&'static str, &str)], body: &Value) -> Affinity {
    let text = body.to_string();
    raw(path, headers, text.as_bytes())
}

fn raw(path: &str, named: &[(&'static str, &str)], body: &[u8]) -> Affinity {
    let mut headers = HeaderMap::new();
    for (name, value) in named {
        headers.insert(*name, value.parse().unwrap());
    }
    let uri: Uri = path.parse().unwrap();
    let facts = RequestFacts::read(&Method::POST, &uri, &headers, Some(body));
    affinity(&facts, &headers, Some(body), Some(&HeaderName::from_static("x-session-id")))
}

fn chat(messages: Value) -> Value {
    json!({"model": "m", "messages": messages})
}

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn long(seed: &str, bytes: usize) -> String {
    seed.repeat(bytes / seed.len() + 1)[..bytes].to_owned()
}

/// Returns how many leading prefixes two prompts share.
fn common(one: &Affinity, other: &Affinity) -> usize {
    one.prefixes.iter().zip(&*other.prefixes).take_while(|(one, other)| one == other).count()
}

#[test]
fn next_turn_extends_the_prefixes_of_the_previous_one() {
    let system = long("You are terse. ", 3_000);
    let mut messages = vec![said("system", &system), said("user", "hello")];
    let mut before = of(&chat(json!(messages)));
    assert_eq!(before.prefixes.len(), 3, "two chunks, and where the user's first message ends");
    for turn in 0..5 {
        messages.push(said("assistant", &long("well, ", 900 + turn)));
        messages.push(said("user", &long("and then? ", 500)));
        let next = of(&chat(json!(messages)));
        assert_eq!(common(&before, &next), before.prefixes.len());
        assert!(next.prefixes.len() > before.prefixes.len());
        before = next;
    }
}

#[test]
fn conversations_with_one_system_prompt_differ_after_it() {
    let system = long("You are terse. ", 5_000);
    let [one, other] =
        ["hello", "hi"].map(|text| of(&chat(json!([said("system", &system), said("user", text)]))));
    assert_eq!(one.prefixes.len(), 5);
    assert_eq!(common(&one, &other), 4);
}

#[test]
fn every_prompt_has_a_prefix() {
    for (path, body) in [
        ("/v1/chat/completions", chat(json!([said("user", "x")]))),
        ("/v1/chat/completions", chat(json!([said("system", "x")]))),
        ("/v1/completions", json!({"prompt": "x"})),
        ("/v1/completions", json!({"prompt": [1, 2, 3]})),
        ("/v1/completions", json!({"prompt": ["x", "y"]})),
        ("/v1/responses", json!({"input": "x", "instructions": "y"})),
        (
            "/v1/responses",
            json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]}),
        ),
        ("/v1/messages", json!({"system": "y", "messages": [said("user", "x")]})),
        (
            "/v1beta/models/m:generateContent",
            json!({"contents": [{"role": "user", "parts": [{"text": "x"}]}]}),
        ),
    ] {
        assert_eq!(read(path, &[], &body).prefixes.len(), 1, "{body}");
    }
    for body in [json!({}), json!([]), json!({"messages": []}), json!({"prompt": null})] {
        assert!(of(&body).prefixes.is_empty(), "{body}");
    }
    assert!(raw("/v1/completions", &[], b"no json").prefixes.is_empty());
    assert!(raw("/v1/completions", &[], br#"{"prompt": "\ud800"}"#).prefixes.is_empty());
}

#[test]
fn equivalent_prompts_have_equal_prefixes() {
    let plain = of(&chat(json!([said("user", &long("abc", 2_000))])));
    let cut = json!({"type": "text", "text": long("abc", 2_000), "cache_control": {"type": "ephemeral"}});
    assert_eq!(plain, of(&chat(json!([{"role": "user", "content": [cut]}]))));
    // The order of the members does not matter.
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"a": 1}}}]);
    let first = json!({"tools": tools, "model": "m", "messages": [said("user", "x")]});
    let last = json!({"messages": [said("user", "x")], "model": "m", "temperature": 0.5, "tools": tools});
    assert_eq!(of(&first), of(&last));
    assert_ne!(of(&first), of(&chat(json!([said("user", "x")]))));
}

#[test]
fn every_prefix_depends_on_model_salt_tools_and_system() {
    let text = long("abc", 3_000);
    let base = json!({"model": "m", "prompt": text});
    let others = [
        json!({"model": "adapter", "prompt": text}),
        json!({"model": "m", "prompt": text, "cache_salt": "tenant"}),
        json!({"model": "m", "prompt": text, "tools": [{"name": "f"}]}),
        json!({"model": "m", "prompt": text, "tools": [{"name": "g"}]}),
        json!({"model": "m", "prompt": text, "system": "s"}),
        json!({"model": "m", "prompt": format!("x{text}")}),
    ];
    for other in &others {
        assert_eq!(common(&of(&base), &of(other)), 0, "{other}");
    }
    assert_eq!(common(&of(&others[2]), &of(&others[3])), 0);
    // Tools are read first, and have prefixes of their own.
    let tools = json!([{"name": "f", "description": text}]);
    let [one, other] = ["x", "y"].map(|ask| of(&json!({"messages": [said("user", ask)], "tools": tools})));
    assert_eq!((one.prefixes.len(), common(&one, &other)), (3, 2));
}

#[test]
fn session_is_the_header_or_the_cache_key() {
    let keyed = json!({"model": "m", "prompt": "x", "prompt_cache_key": "a"});
    let plain = json!({"model": "m", "prompt": "x"});
    let named = |name: &str, body: &Value| read("/v1/completions", &[("x-session-id", name)], body).session;
    assert_eq!(of(&plain).session, None);
    assert_eq!(named("", &plain), None);
    assert!(of(&keyed).session.is_some());
    assert_eq!(named("a", &plain), of(&keyed).session);
    assert_eq!(named("b", &keyed), named("b", &plain));
    assert_ne!(named("a", &plain), named("b", &plain));
    assert_ne!(named("a", &plain), named("a", &json!({"model": "other", "prompt": "x"})));
}

#[test]
fn image_is_not_split_into_chunks() {
    let picture = |seed: &str| format!("data:image/png;base64,{}", long(seed, 900_000));
    let body = |seed: &str| {
        let image = json!({"type": "image_url", "image_url": {"url": picture(seed)}});
        chat(json!([{"role": "user", "content": [image, {"type": "text", "text": "what is it?"}]}]))
    };
    assert_eq!(of(&body("abcd")).prefixes.len(), 1);
    assert_ne!(of(&body("abcd")), of(&body("abce")));
}

#[test]
fn compressed_prompt_has_equal_prefixes() {
    use std::io::Write;
    let text = json!({"model": "m", "prompt": long("abc", 5_000)}).to_string();
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    coder.write_all(text.as_bytes()).unwrap();
    let coded = coder.finish().unwrap();
    let plain = raw("/v1/completions", &[], text.as_bytes());
    assert_eq!(plain.prefixes.len(), 4);
    assert_eq!(raw("/v1/completions", &[("content-encoding", "gzip")], &coded), plain);
}

#[test]
fn prefixes_are_bounded_and_stable() {
    let huge = of(&json!({"model": "m", "prompt": long("abc", 3_000_000)}));
    assert_eq!(huge.prefixes.len(), 256);
    let known = of(&json!({"model": "m", "prompt": "x"}));
    assert_eq!(known.prefixes[..], [KNOWN], "clients of other versions run beside this one");
}

/// The expected hash of the only prefix of the prompt `x` for the model `m`. It must not change,
/// because clients of different versions share replicas.
const KNOWN: u64 = 18_085_951_905_952_228_121;

proptest! {
    #[test]
    fn longer_prompts_extend_shorter(text in "\\PC{0,3000}", more in "\\PC{0,3000}") {
        let shorter = of(&json!({"prompt": text}));
        let longer = of(&json!({"prompt": format!("{text}{more}")}));
        if text.len() >= CHUNK {
            prop_assert_eq!(common(&shorter, &longer), shorter.prefixes.len());
        }
        prop_assert!(longer.prefixes.len() <= (text.len() + more.len()).div_ceil(CHUNK).max(1));
    }

    #[test]
    fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..300), json in "[\\[\\]{}\",:a-z0-9\\\\ ]{0,80}") {
        raw("/v1/chat/completions", &[], &body);
        raw("/v1/chat/completions", &[], format!("{{\"messages\":{json}}}").as_bytes());
    }
}
