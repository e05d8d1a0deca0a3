//! Tests of how much memory requests with common prompt prefixes share.

use http::{HeaderMap, Method, Uri};
use serde_json::{Value, json};

use super::*;
use tidegate_protocol::request::affinity;

fn prefix(body: &Value) -> Prefix {
    let (body, headers) = (body.to_string(), HeaderMap::new());
    let uri = Uri::from_static("/v1/chat/completions");
    let facts = RequestFacts::read(&Method::POST, &uri, &headers, Some(body.as_bytes()));
    affinity(&facts, &headers, Some(body.as_bytes()), None).prefix
}

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn long(seed: &str, bytes: usize) -> String {
    seed.repeat(bytes / seed.len() + 1)[..bytes].to_owned()
}

/// Returns the memory, in tokens, of calls with these requests that run at the same time.
fn held(requests: &[Value]) -> u64 {
    let mut kv = Kv::new(1 << 20, 0.0);
    let demand = Demand { input: 4_096, ..Demand::default() };
    for request in requests {
        let prefix = prefix(request);
        // Never released: all calls are in flight.
        let _ = kv.admit(&demand, Forecast::exact(1), prefix, Progress::default());
    }
    kv.view().held
}

#[test]
fn memory_counts_tools_once_only_under_the_same_instructions() {
    let request = |system: &[&str], user: &str| {
        let mut messages: Vec<_> = system.iter().map(|text| said("system", text)).collect();
        messages.push(said("user", user));
        json!({"model": "m", "messages": messages, "tools": [{"name": "f", "description": long("does. ", 14_000)}]})
    };
    let [terse, kind] = ["Be terse. ", "Be kind. "].map(|text| long(text, 300));
    let alone = held(&[request(&[&terse], "hello")]);
    let same = held(&[request(&[&terse], "hello"), request(&[&terse], "goodbye")]);
    assert!(same < alone + alone / 2, "{same} of {alone}");
    for (one, other) in
        [(&[&*terse][..], &[&*kind][..]), (&[&terse, &terse], &[&terse, &kind]), (&[], &[&kind])]
    {
        let different = held(&[request(one, "hello"), request(other, "hello")]);
        assert_eq!(different, 2 * alone);
    }
    let field = |system: &str| {
        json!({"model": "m", "system": system, "messages": [said("user", "hello")],
        "tools": [{"name": "f", "description": long("does. ", 14_000)}]})
    };
    assert_eq!(held(&[field(&terse), field(&kind)]), 2 * held(&[field(&terse)]));
}
