//! Shared vectors of provider protocols: requests, errors, rate headers and response streams.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate::protocol::observe::{End, Observer, Signal};
use tidegate::protocol::prompt::Task;
use tidegate::protocol::request::{Dialect, Purpose, RequestFacts};
use tidegate::protocol::sse::{MAX_EVENT, Scanner};
use tidegate::protocol::{Verdict, classify, classify_event};

use super::{Headers, body, cases, header_map};

/// The wall clock of each case that does not set its own: 21 November 2025, 08:48:00 UTC.
fn wall(seconds: Option<u64>) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.unwrap_or(1_763_714_880))
}

fn milliseconds(delay: Option<Duration>) -> Option<u64> {
    delay.map(|delay| u64::try_from(delay.as_millis()).expect("at most ten years"))
}

#[test]
fn retry_after_vectors() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        wall: Option<u64>,
        #[serde(default)]
        headers: Headers,
        #[serde(default)]
        body: Value,
        delay_ms: Option<u64>,
    }

    for case in cases::<Case>("retry_after.json") {
        let headers = header_map(&case.headers);
        let verdict = classify(StatusCode::TOO_MANY_REQUESTS, &headers, &body(&case.body), wall(case.wall));
        assert_eq!(milliseconds(verdict.delay), case.delay_ms, "{}", case.name);
    }
}

fn verdict(verdict: &Verdict) -> Value {
    json!({
        "class": verdict.class.as_str(),
        "status": verdict.status,
        "retryable": verdict.retryable,
        "delay_ms": milliseconds(verdict.delay),
        "code": verdict.code,
        "never_executed": verdict.never_executed,
    })
}

#[test]
fn classify_vectors() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        /// `None` for an error event.
        status: Option<u16>,
        #[serde(default)]
        headers: Headers,
        #[serde(default)]
        body: Value,
        verdict: Value,
    }

    for case in cases::<Case>("classify.json") {
        let found = match case.status {
            Some(status) => {
                let status = StatusCode::from_u16(status).expect("a status");
                classify(status, &header_map(&case.headers), &body(&case.body), wall(None))
            }
            None => classify_event(&body(&case.body)),
        };
        assert_eq!(verdict(&found), case.verdict, "{}", case.name);
    }
}

#[test]
fn request_facts_vectors() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        #[serde(default = "post")]
        method: String,
        path: String,
        #[serde(default)]
        headers: Headers,
        #[serde(default)]
        body: Value,
        task: Option<String>,
        facts: Value,
    }

    fn post() -> String {
        "POST".to_owned()
    }

    for case in cases::<Case>("request_facts.json") {
        let method = Method::from_bytes(case.method.as_bytes()).expect("a method");
        let uri: Uri = case.path.parse().expect("a path");
        let bytes = (!case.body.is_null()).then(|| body(&case.body));
        let facts = RequestFacts::read(&method, &uri, &header_map(&case.headers), bytes.as_deref());
        let found = json!({
            "route": match facts.purpose {
                Purpose::Inference => "inference",
                Purpose::Other => "beside",
            },
            "dialect": dialect_name(facts.dialect),
            "model": facts.model,
            "stream": facts.stream,
            "repeatable": facts.repeatable,
        });
        assert_eq!(found, case.facts, "{}", case.name);
        if let Some(task) = case.task {
            assert_eq!(task_name(facts.task), task, "{}", case.name);
        }
    }
}

fn task_name(task: Task) -> &'static str {
    match task {
        Task::Text => "text",
        Task::Embed => "embed",
        Task::Rank => "rank",
        Task::Classify => "classify",
        Task::Image => "image",
        Task::Video => "video",
        Task::Speech => "speech",
        Task::Transcribe => "transcribe",
        _ => "other",
    }
}

fn dialect_name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenAiChat => "openai_chat",
        Dialect::OpenAiCompletions => "openai_completions",
        Dialect::OpenAiResponses => "openai_responses",
        Dialect::AnthropicMessages => "anthropic_messages",
        Dialect::Gemini => "gemini",
        _ => "other",
    }
}

fn dialect(name: &str) -> Dialect {
    [
        Dialect::OpenAiChat,
        Dialect::OpenAiCompletions,
        Dialect::OpenAiResponses,
        Dialect::AnthropicMessages,
        Dialect::Gemini,
        Dialect::Other,
    ]
    .into_iter()
    .find(|dialect| dialect_name(*dialect) == name)
    .unwrap_or_else(|| panic!("no dialect {name}"))
}

/// Returns the body split once at each position, with an empty chunk between the parts, and split
/// into single bytes.
fn splits(body: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut all: Vec<Vec<&[u8]>> = (0..=body.len()).map(|at| vec![&body[..at], &[], &body[at..]]).collect();
    all.push(body.chunks(1).collect());
    all
}

#[test]
fn sse_vectors() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        /// Text. A character up to U+00FF stands for the byte of that value, so that invalid UTF-8
        /// can be written.
        bytes: String,
        limit: Option<usize>,
        events: Value,
    }

    for case in cases::<Case>("sse.json") {
        let bytes: Vec<u8> =
            case.bytes.chars().map(|c| u8::try_from(u32::from(c)).expect("Latin-1")).collect();
        for pieces in splits(&bytes) {
            let mut scanner = Scanner::with_limit(case.limit.unwrap_or(MAX_EVENT));
            let mut events = Vec::new();
            let latin = |bytes: &[u8]| bytes.iter().map(|b| char::from(*b)).collect::<String>();
            let mut on_event = |event: tidegate::protocol::Event<'_>| {
                let mut shown = json!({ "event": latin(event.name), "data": latin(event.data) });
                if event.oversized {
                    shown["oversized"] = json!(true);
                }
                events.push(shown);
            };
            for piece in &pieces {
                scanner.push(piece, &mut on_event);
            }
            scanner.finish(&mut on_event);
            assert_eq!(Value::Array(events), case.events, "{}, cut as {:?}", case.name, lengths(&pieces));
        }
    }
}

#[test]
fn stream_vectors() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        dialect: String,
        #[serde(default = "event_stream")]
        headers: Headers,
        #[serde(default = "yes")]
        stream: bool,
        body: Value,
        /// The reported signals in order. Of several usages, only the last is listed.
        signals: Value,
        deltas: u64,
        end: String,
    }

    fn event_stream() -> Headers {
        [("content-type".to_owned(), "text/event-stream; charset=utf-8".to_owned())].into()
    }

    fn yes() -> bool {
        true
    }

    for case in cases::<Case>("streams.json") {
        // A list contains the lines of the body.
        let bytes = match &case.body {
            Value::Array(lines) => lines
                .iter()
                .map(|line| format!("{}\n", line.as_str().expect("a line")))
                .collect::<String>()
                .into_bytes(),
            other => body(other),
        };
        for pieces in splits(&bytes) {
            let mut observer = Observer::new(dialect(&case.dialect), &header_map(&case.headers), case.stream);
            let mut signals = Vec::new();
            for piece in &pieces {
                observer.push(piece, |signal| signals.push(signal));
            }
            observer.finish(|signal| signals.push(signal));

            let mut shown: Vec<Value> = signals.iter().filter_map(signal).collect();
            if let Some(usage) = observer.usage() {
                shown.push(json!({
                    "usage": { "input": usage.input, "output": usage.output, "cached_input": usage.cached_input }
                }));
            }
            let cut = || format!("{}, cut as {:?}", case.name, lengths(&pieces));
            assert_eq!(Value::Array(shown), case.signals, "{}", cut());
            assert_eq!(observer.deltas(), case.deltas, "{}", cut());
            let end = match observer.end() {
                End::Complete => "complete",
                End::Failed => "failed",
                End::Truncated => "truncated",
            };
            assert_eq!(end, case.end, "{}", cut());
            assert_eq!(observer.end() == End::Complete, case.end == "complete", "{}", cut());
        }
    }
}

fn signal(signal: &Signal) -> Option<Value> {
    match signal {
        Signal::FirstToken => Some(json!("first_token")),
        Signal::Terminal => Some(json!("terminal")),
        Signal::Error(error) => Some(json!({ "error": verdict(error) })),
        Signal::Usage(_) => None,
    }
}

fn lengths(pieces: &[&[u8]]) -> Vec<usize> {
    pieces.iter().map(|piece| piece.len()).collect()
}
