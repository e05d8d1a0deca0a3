//! Tests of pools in the modes `observe` and `off`, and of requests that bypass the queue.

use std::collections::BTreeSet;

use http::Request as HttpRequest;
use tidegate::config::Mode;

use super::*;
use crate::support::*;

fn in_mode(mode: Mode, transport: Transport) -> Gate {
    let config = Config::builder().mode(mode).target(Target::new("llm").pool(four())).build().unwrap();
    Gate::over(config, transport).unwrap()
}

#[tokio::test(start_paused = true)]
async fn mode_off_selects_replicas_in_turn() {
    let (transport, log) = replicas(|_, _, _| Act::Answer);
    let gate = in_mode(Mode::Off, transport);
    for _ in 0..8 {
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    }
    assert_eq!(log.calls(), ["a", "b", "c", "d", "a", "b", "c", "d"]);
    assert_eq!(gate.snapshot().targets["llm"].attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn mode_off_does_not_change_other_requests() {
    let (transport, log) = replicas(|_, _, _| Act::Answer);
    let gate = in_mode(Mode::Off, transport);
    let mut request = chat(false);
    *request.uri_mut() = "http://elsewhere/v1/chat/completions".parse().unwrap();
    request.headers_mut().insert("host", "elsewhere".parse().unwrap());
    gate.client().call(request).await.unwrap();
    assert_eq!(log.calls(), ["elsewhere"]);
}

#[tokio::test(start_paused = true)]
async fn observe_mode_only_selects_the_replica() {
    let (transport, log) = replicas(|at, _, _| if at == "a" { Act::Status(503, &[]) } else { Act::Answer });
    let gate = in_mode(Mode::Observe, transport);
    let mut at_a = 0;
    for _ in 0..50 {
        let response = gate.client().call(chat(false)).await.unwrap();
        at_a += usize::from(response.status() == 503);
        drop(response);
    }
    assert_eq!(log.calls().len(), 50, "nothing is repeated");
    assert_eq!(log.calls().iter().filter(|at| *at == "a").count(), at_a);
    assert!(log.calls().iter().collect::<BTreeSet<_>>().len() >= 3, "they are placed");
    assert_all_idle(&gate, &log);
}

#[tokio::test(start_paused = true)]
async fn requests_without_inference_use_an_eligible_replica() {
    let (transport, log) = replicas(|at, what, _| match what {
        RequestKind::Call if at == "a" => Act::Refuse,
        _ => Act::Answer,
    });
    let gate = pooled(transport, |p| p);
    // Until the gate has learned that `a` is down.
    for _ in 0..30 {
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    }
    log.asked.lock().clear();
    for _ in 0..20 {
        let request = HttpRequest::get("http://llm/v1/files").body(RequestBody::default()).unwrap();
        read(gate.client().call(request).await.unwrap()).await.unwrap();
    }
    let asked = log.asked.lock().clone();
    assert_eq!(
        asked.iter().filter(|(at, what)| at != "a" && *what == RequestKind::Other).count(),
        20,
        "{asked:?}"
    );
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn first_call_waits_for_the_first_dns_lookup() {
    for mode in [Mode::Off, Mode::Observe, Mode::Enforce] {
        let (transport, log) = replicas(|_, _, _| Act::Answer);
        // A name that the system's resolver knows without a DNS query.
        let pool = Pool::from_dns("http://localhost:8000").health(None).poll(None);
        let config = Config::builder().mode(mode).target(Target::new("llm").pool(pool)).build().unwrap();
        let gate = Gate::over(config, transport).unwrap();
        let request = HttpRequest::get("http://llm/v1/files").body(RequestBody::default()).unwrap();
        read(gate.client().call(request).await.unwrap()).await.unwrap();
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
        let asked: Vec<_> = log.asked.lock().iter().map(|(at, _)| at.clone()).collect();
        assert_eq!(asked, ["127.0.0.1"; 2], "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pool_without_replicas_reports_it_in_mode_off() {
    for mode in [Mode::Off, Mode::Observe, Mode::Enforce] {
        let (transport, _) = replicas(|_, _, _| Act::Answer);
        let config =
            Config::builder().mode(mode).target(Target::new("llm").pool(Pool::dynamic())).build().unwrap();
        let gate = Gate::over(config, transport).unwrap();
        let request = HttpRequest::get("http://llm/v1/files").body(RequestBody::default()).unwrap();
        let error = gate.client().call(request).await.unwrap_err();
        assert!(error.message().contains("set_replicas"), "{mode:?}: {error}");
    }
}

#[test]
fn missing_key_is_an_error_only_in_enforce_mode() {
    for (mode, opens) in [(Mode::Off, true), (Mode::Observe, true), (Mode::Enforce, false)] {
        let (transport, _) = replicas(|_, _, _| Act::Answer);
        let pool = four().key_env("TIDEGATE_TEST_NO_SUCH_KEY");
        let config = Config::builder().mode(mode).target(Target::new("llm").pool(pool)).build().unwrap();
        assert_eq!(Gate::over(config, transport).is_ok(), opens, "{mode:?}");
    }
}
