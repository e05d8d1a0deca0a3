//! Shared vectors of calls: estimated costs, backoff delays and error messages.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{Method, Uri};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate::policy::retry::RetryPath;
use tidegate::policy::retry::{FailedAttempt, NextStep, decide};
use tidegate::protocol::RequestFacts;
use tidegate::tokens::COLD_RATIO;
use tidegate::{Config, Error, ErrorKind};

use super::{Headers, body, cases, header_map};

#[test]
fn estimate_vectors() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        #[serde(default = "chat")]
        path: String,
        body: Value,
        counted: Value,
        input: Option<u64>,
        max_output: Option<u64>,
        thinking: Option<u64>,
        #[serde(default)]
        kept: bool,
    }

    fn chat() -> String {
        "/v1/chat/completions".to_owned()
    }

    for case in cases::<Case>("estimate.json") {
        let uri: Uri = case.path.parse().expect("a path");
        let facts =
            RequestFacts::read(&Method::POST, &uri, &header_map(&Headers::new()), Some(&body(&case.body)));
        let prompt = facts.prompt;
        let counted = prompt.map(|prompt| {
            json!({
                "text_bytes": prompt.text_bytes,
                "messages": prompt.messages,
                "token_ids": prompt.token_ids,
                "media": prompt.media,
                "media_tokens": prompt.media_tokens,
            })
        });
        assert_eq!(json!(counted), case.counted, "{}", case.name);
        assert_eq!(prompt.map(|prompt| prompt.input(COLD_RATIO)), case.input, "{}", case.name);
        assert_eq!(prompt.and_then(|prompt| prompt.max_output()), case.max_output, "{}", case.name);
        assert_eq!(prompt.and_then(|prompt| prompt.thinking), case.thinking, "{}", case.name);
        assert_eq!(prompt.is_some_and(|prompt| prompt.has_stored_context), case.kept, "{}", case.name);
    }
}

#[test]
fn backoff_vectors() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        retry: Value,
        retry_after: Option<u64>,
        bounds: Vec<(u64, u64)>,
    }

    for case in cases::<Case>("backoff.json") {
        let config = Config::from_json(json!({"defaults": {"retry": case.retry}})).expect("valid settings");
        let retry = config.default_target.retry;
        let after = |attempts: u32, random: f64| {
            let failure = FailedAttempt {
                retryable: true,
                never_executed: false,
                repeatable: true,
                retry_after: case.retry_after.map(Duration::from_secs),
                retry_path: RetryPath::Backoff,
                attempts,
                left: Duration::MAX,
            };
            match decide(&retry, failure, || true, random) {
                NextStep::Backoff(sleep) => Some(sleep.as_millis()),
                NextStep::GiveUp(_) => None,
                NextStep::Requeue | NextStep::Pause(_) => panic!("{}: nothing holds it", case.name),
            }
        };
        let bounds: Vec<_> =
            (1..).map_while(|attempts| Some((after(attempts, 0.0)?, after(attempts, 1.0)?))).collect();
        let wanted: Vec<_> =
            case.bounds.iter().map(|(least, most)| (u128::from(*least), u128::from(*most))).collect();
        assert_eq!(bounds, wanted, "{}", case.name);
    }
}

#[tokio::test]
async fn error_vectors() {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        error: Parts,
        status: u16,
        retryable: bool,
        never_sent: bool,
        headers: Headers,
        body: Value,
    }

    #[derive(Deserialize)]
    struct Parts {
        kind: String,
        reason: Option<String>,
        message: String,
        target: Option<String>,
        retry_after: Option<f64>,
        queue_position: Option<usize>,
    }

    let of = |kind: &ErrorKind| (kind.as_str(), kind.reason().map(|reason| reason.as_str()));
    let mut seen = BTreeSet::new();
    for case in cases::<Case>("errors.json") {
        let wanted = (&*case.error.kind, case.error.reason.as_deref());
        let kind = ErrorKind::all().find(|kind| of(kind) == wanted).expect("a kind of error");
        seen.insert(of(&kind));

        let mut error = Error::new(kind, case.error.message);
        error = error.with_retry_after(case.error.retry_after.map(Duration::from_secs_f64));
        if let Some(target) = case.error.target {
            error = error.at(&target.into());
        }
        if let Some(position) = case.error.queue_position {
            error = error.with_queue_position(position);
        }
        assert_eq!(
            (error.retryable(), error.never_sent()),
            (case.retryable, case.never_sent),
            "{}",
            case.name
        );
        let response = error.response();
        assert_eq!(response.status(), case.status, "{}", case.name);
        assert_eq!(response.headers(), &header_map(&case.headers), "{}", case.name);
        let body = response.into_body().collect().await.expect("a whole body").to_bytes();
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(body, case.body, "{}", case.name);
    }
    assert_eq!(seen.len(), ErrorKind::all().count(), "every kind, and refusals by each reason: {seen:?}");
}
