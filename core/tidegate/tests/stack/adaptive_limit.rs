//! Tests through the whole client of the adaptive limit: what changes it, which calls it delays,
//! and what it reports.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tidegate::config::{LimitSettings, Mode, Pool, Target, Tenant, Tool};
use tidegate::snapshot::{LimitSnapshot, TargetSnapshot};
use tidegate::{CallStatus, Context, Gate, ResponseBody, Timeouts};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::*;

const MS: Duration = Duration::from_millis(1);

/// Returns the settings of an adaptive limit that starts at `start` slots.
fn adaptive(start: usize) -> LimitSettings {
    LimitSettings::new().start(start)
}

fn target(gate: &Gate) -> TargetSnapshot {
    gate.snapshot().targets["llm"].clone()
}

fn limit(gate: &Gate) -> LimitSnapshot {
    target(gate).adaptive.expect("it is found")
}

/// Returns a stream whose first token arrives after `first`, and whose end arrives `rest` after the
/// first token.
fn answer(exchange: Exchange, first: Duration, rest: Duration) -> Response<ResponseBody> {
    sse(exchange, vec![(first, Some(TOKEN)), (rest, Some(STOP)), (Duration::ZERO, Some(DONE))])
}

fn start(gate: &Gate, stream: bool) -> JoinHandle<Result<Bytes, tidegate::Error>> {
    let client = gate.client();
    tokio::spawn(async move { read(client.call(chat(stream)).await?).await })
}

/// Keeps `callers` concurrent callers busy for `time`: each makes its next call as soon as its
/// previous response has ended.
async fn load(gate: &Gate, callers: usize, time: Duration) {
    let end = Instant::now() + time;
    let caller = || {
        let client = gate.client();
        async move {
            while Instant::now() < end {
                if let Ok(response) = client.call(chat(true)).await {
                    let _ = read(response).await;
                }
            }
        }
    };
    let callers: Vec<_> = (0..callers).map(|_| tokio::spawn(caller())).collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn limit_rises_under_demand_while_responses_are_in_time() {
    let (transport, seen) =
        upstream(|_, _, exchange| async move { Ok(answer(exchange, 100 * MS, 400 * MS)) });
    let gate = gate(transport, |t| t.ttft(2 * SECOND).cap(40).limit(adaptive(4)));
    assert_eq!((target(&gate).limit, limit(&gate).ceiling), (4, 40));
    assert_eq!(limit(&gate).objective, Some(1.0), "half of it is the queue's");
    load(&gate, 60, 30 * SECOND).await;
    let found = limit(&gate);
    assert!(found.limit > 20 && found.limit <= 40, "{found:?}");
    assert!(seen.peak() <= 40);
    assert!(found.raises > 0 && !found.saturated, "{found:?}");
    let last = found.decisions.last().expect("it says why");
    assert!(last.to == found.limit && last.from < last.to && last.ago <= 60.0, "{last:?}");
    assert!(["slow_start", "headroom"].contains(&last.cause), "{last:?}");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn limit_is_unchanged_without_demand() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(answer(exchange, 100 * MS, 400 * MS)) });
    let gate = gate(transport, |t| t.ttft(2 * SECOND).limit(adaptive(8)));
    load(&gate, 3, 30 * SECOND).await;
    assert_eq!((limit(&gate).limit, limit(&gate).raises), (8, 0));
}

/// Returns an upstream whose calls get their first tokens one after the other, 0.5 s apart. If
/// several calls are in flight, the first tokens of the later ones are therefore late.
fn one_by_one() -> (tidegate::Transport, Arc<Seen>) {
    let turn = Arc::new(tokio::sync::Semaphore::new(1));
    upstream(move |_, _, exchange| {
        let turn = turn.clone();
        async move {
            let permit = turn.acquire().await.unwrap();
            sleep(500 * MS).await;
            drop(permit);
            Ok(answer(exchange, Duration::ZERO, 2 * SECOND))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn late_first_tokens_cut_the_limit_and_cancel_no_call() {
    let (transport, _) = one_by_one();
    let gate = gate(transport, |t| t.ttft(2 * SECOND).wait(300 * SECOND).limit(adaptive(24)));
    // The latency without load is learned first.
    load(&gate, 2, 5 * SECOND).await;
    load(&gate, 24, 60 * SECOND).await;
    let found = limit(&gate);
    assert!(found.limit < 24 && found.cuts > 0, "{found:?}");
    assert!(found.decisions.iter().any(|made| made.cause == "late" && made.to < made.from), "{found:?}");
    let text = gate.prometheus();
    assert!(!text.contains(r#"tidegate_limit_moves_total{cause="late",target="llm"} 0"#), "{text}");
    let outcomes = &target(&gate).tenants["default"].outcomes;
    assert_eq!(outcomes.keys().copied().collect::<Vec<_>>(), ["completed"]);
    assert_idle(&gate);
}

/// Returns an upstream whose first tokens are late after the first calls.
fn late_after_a_while() -> tidegate::Transport {
    let (transport, _) = upstream(|n, _, exchange| async move {
        Ok(answer(exchange, if n < 20 { 100 * MS } else { 5 * SECOND }, 2 * SECOND))
    });
    transport
}

/// Learns the latency at low load, and then makes more calls than the limit permits. Returns the
/// calls.
async fn saturate(gate: &Gate) -> Vec<JoinHandle<Result<Bytes, tidegate::Error>>> {
    load(gate, 1, 60 * SECOND).await;
    let calls = (0..100).map(|_| start(gate, true)).collect();
    sleep(30 * SECOND).await;
    calls
}

/// Returns `true` if the metrics of the gate contain this value of the series of the target.
fn has_metric(gate: &Gate, series: &str, value: usize) -> bool {
    let expected = format!("tidegate_{series}{{target=\"llm\"}} {value}");
    gate.prometheus().lines().any(|line| line == expected)
}

#[tokio::test(start_paused = true)]
async fn demand_after_a_cut_reports_saturation() {
    let gate = gate(late_after_a_while(), |t| t.ttft(2 * SECOND).wait(300 * SECOND).limit(adaptive(16)));
    let calls = saturate(&gate).await;
    assert!(limit(&gate).saturated, "{:?}", limit(&gate));
    assert!(has_metric(&gate, "limit_saturated", 1));
    calls.iter().for_each(JoinHandle::abort);
    sleep(SECOND).await;
    assert!(!limit(&gate).saturated, "nobody presses on it");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn pool_is_saturated_if_all_of_its_replicas_are() {
    let (first, second) = ("http://10.0.0.1:8000", "http://10.0.0.2:8000");
    let pool = Pool::new([first]).poll(None).health(None);
    let pooled = Target::new("llm").pool(pool).ttft(2 * SECOND).wait(300 * SECOND).limit(adaptive(16));
    let gate = Gate::builder().target(pooled).build_over(late_after_a_while()).unwrap();
    let saturated = || -> Vec<bool> {
        let replicas = target(&gate).replicas;
        replicas.iter().map(|replica| replica.adaptive.as_ref().unwrap().saturated).collect()
    };
    assert!(has_metric(&gate, "limit_saturated", 0));
    let calls = saturate(&gate).await;
    assert_eq!(saturated(), [true]);
    assert!(has_metric(&gate, "limit_saturated", 1));
    gate.set_replicas("llm", [first, second]).unwrap();
    assert_eq!(saturated().len(), 2);
    assert!(has_metric(&gate, "limit_saturated", 0), "the second replica has served no call");
    calls.iter().for_each(JoinHandle::abort);
    sleep(SECOND).await;
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn metrics_of_the_adaptive_limit_end_with_it() {
    let gate = gate(late_after_a_while(), |t| t.ttft(2 * SECOND).wait(300 * SECOND).limit(adaptive(16)));
    let calls = saturate(&gate).await;
    let awaiting = r#"tidegate_awaiting_first_token_limit{target="llm"}"#;
    assert!(has_metric(&gate, "limit_saturated", 1) && gate.prometheus().contains(awaiting));
    gate.set_cap("llm", 8).unwrap();
    assert!(has_metric(&gate, "limit_saturated", 0) && has_metric(&gate, "limit", 8));
    let text = gate.prometheus();
    for series in ["tidegate_awaiting_first_token", "tidegate_first_token_capacity_tokens"] {
        assert!(!text.lines().any(|line| line.starts_with(series)), "{series} is left in\n{text}");
    }
    calls.iter().for_each(JoinHandle::abort);
    sleep(SECOND).await;
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn tenant_above_its_share_is_reported_as_held() {
    let (transport, _) = one_by_one();
    let gate =
        gate(transport, |t| t.wait(300 * SECOND).tenant("a", Tenant::new()).tenant("b", Tenant::new()));
    let call = |tenant: &str| {
        let client = gate.client();
        let mut request = chat(true);
        request.extensions_mut().insert(Context { tenant: Some(tenant.into()), ..Context::default() });
        tokio::spawn(async move { read(client.call(request).await?).await })
    };
    assert_eq!(limit(&gate).first_token_capacity, None);
    for tenant in ["a", "b"].into_iter().cycle().take(12) {
        call(tenant).await.unwrap().unwrap();
    }
    let burst: Vec<_> = (0..20).map(|_| call("b")).collect();
    sleep(1200 * MS).await;
    let found = target(&gate);
    let capacity = limit(&gate).first_token_capacity.expect("first tokens were queued");
    assert!(found.tenants["b"].held_for.is_some() && found.tenants["a"].held_for.is_none(), "{found:?}");
    assert!(limit(&gate).awaiting_tokens >= 256 && limit(&gate).awaiting_tokens <= 2 * capacity, "{found:?}");
    let text = gate.prometheus();
    for (tenant, held) in [("a", 0), ("b", 1)] {
        let line = format!(r#"tidegate_tenants_held{{target="llm",tenant="{tenant}"}} {held}"#);
        assert!(text.contains(&line), "{line}: {text}");
    }
    assert!(
        text.contains(&format!(r#"tidegate_first_token_capacity_tokens{{target="llm"}} {capacity}"#)),
        "{text}"
    );
    assert_eq!(gate.explain_all(1).pop().unwrap().rule, Some("tenant_share"));
    burst.iter().for_each(JoinHandle::abort);
    sleep(SECOND).await;
    assert_eq!(target(&gate).tenants["b"].held_for, None);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn first_token_admits_the_next_call() {
    let (transport, seen) =
        upstream(|_, _, exchange| async move { Ok(answer(exchange, SECOND, 30 * SECOND)) });
    let gate = gate(transport, |t| t.limit(adaptive(8).awaiting(2)));
    let calls: Vec<_> = (0..3).map(|_| start(&gate, true)).collect();
    sleep(500 * MS).await;
    assert_eq!(seen.attempts(), 2);
    let told = gate.explain_all(1).pop().unwrap();
    assert_eq!((told.state, told.rule), (CallStatus::Waiting, Some("first_tokens")));
    assert!(told.text.contains("the maximum number of calls await their first token"), "{}", told.text);
    assert_eq!((limit(&gate).awaiting, limit(&gate).awaiting_limit), (2, 2));
    sleep(600 * MS).await;
    assert_eq!((seen.attempts(), target(&gate).in_flight), (3, 3));
    assert_eq!(limit(&gate).awaiting, 1);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(limit(&gate).awaiting, 0);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn calls_that_do_not_stream_are_not_counted_as_awaiting() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        sleep(SECOND).await;
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t.limit(adaptive(8).awaiting(1)));
    assert!(join_all((0..4).map(|_| start(&gate, false))).await.iter().all(|end| matches!(end, Ok(Ok(_)))));
    assert_eq!(seen.peak(), 4);
}

#[tokio::test(start_paused = true)]
async fn unparsable_stream_stops_counting_as_awaiting() {
    for (name, value) in
        [("content-type", "application/vnd.amazon.eventstream"), ("content-encoding", "gzip")]
    {
        let (transport, seen) = upstream(move |_, request, exchange| async move {
            sleep(SECOND).await;
            let mut response = answer(exchange, 10 * SECOND, 10 * SECOND);
            if request.uri().path().contains("invoke") || name == "content-encoding" {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            Ok(response)
        });
        let gate = gate(transport, |t| t.limit(adaptive(8).awaiting(1)));
        let call = || {
            let mut request = chat(true);
            if name == "content-type" {
                *request.uri_mut() = "http://llm/model/m/invoke-with-response-stream".parse().unwrap();
            }
            let client = gate.client();
            tokio::spawn(async move { read(client.call(request).await?).await })
        };
        let calls = [call(), call()];
        sleep(500 * MS).await;
        assert_eq!(seen.attempts(), 1);
        sleep(SECOND).await;
        assert_eq!(seen.attempts(), 2, "{name}: with the head of the first");
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!((limit(&gate).awaiting, limit(&gate).limit), (0, 8));
        assert_idle(&gate);
    }
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_at_any_moment_leaves_nothing_in_use() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        sleep(100 * MS).await;
        match n % 4 {
            0 => Ok(status(500, &[], "{}")),
            1 => Ok(json(exchange, ANSWER)),
            _ => Ok(answer(exchange, 300 * MS, 300 * MS)),
        }
    });
    let gate = gate(transport, |t| t.ttft(2 * SECOND).limit(adaptive(4).awaiting(3)));
    for wave in 0..40 {
        let calls: Vec<_> = (0..8).map(|k| start(&gate, (k + wave) % 3 > 0)).collect();
        sleep(wave as u32 * 25 * MS).await;
        calls.iter().for_each(JoinHandle::abort);
        for call in calls {
            let _ = call.await;
        }
        assert_eq!((limit(&gate).awaiting, target(&gate).in_flight), (0, 0), "wave {wave}");
    }
    assert_eq!(seen.in_flight(), 0);
    assert_idle(&gate);
}

/// Returns an upstream that serves four calls at a time, and rejects further calls with status 429
/// and `headers`.
fn four_at_once(headers: &'static [(&'static str, &'static str)]) -> (tidegate::Transport, Arc<Seen>) {
    let there = Arc::new(tokio::sync::Semaphore::new(4));
    upstream(move |_, _, exchange| {
        let there = there.clone();
        async move {
            let Ok(permit) = there.try_acquire_owned() else { return Ok(status(429, headers, "{}")) };
            sleep(200 * MS).await;
            let response = answer(exchange, Duration::ZERO, SECOND);
            Ok(response.map(|body| {
                ResponseBody::new(body.map_frame(move |frame| {
                    let _ = &permit;
                    frame
                }))
            }))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn rejections_for_concurrency_cut_the_limit_to_the_accepted_level() {
    let (transport, _) = four_at_once(&[]);
    let gate = gate(transport, |t| t.ttft(20 * SECOND).limit(adaptive(16)));
    load(&gate, 16, 30 * SECOND).await;
    let found = limit(&gate);
    assert!(found.decisions.iter().any(|made| made.cause == "refused"), "{found:?}");
    assert!(found.limit <= 6, "{found:?}");
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn rejections_for_a_rate_do_not_cut_the_limit() {
    for headers in [[("retry-after", "1")], [("x-ratelimit-remaining-requests", "0")]] {
        let (transport, _) = four_at_once(Box::leak(Box::new(headers)));
        let gate = gate(transport, |t| t.ttft(20 * SECOND).limit(adaptive(16)));
        load(&gate, 16, 10 * SECOND).await;
        let found = limit(&gate);
        assert!(found.decisions.iter().all(|made| made.cause != "refused"), "{headers:?} {found:?}");
        assert!(target(&gate).failed_attempts["rate_limited"] > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn used_up_budget_explains_a_rejection() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        if n == 2 { Ok(status(429, &[], "{}")) } else { Ok(answer(exchange, 100 * MS, SECOND)) }
    });
    let gate = gate(transport, |t| t.ttft(20 * SECOND).limit(adaptive(16)).rpm(30));
    let calls: Vec<_> = (0..3).map(|_| start(&gate, true)).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(limit(&gate).cuts, 0, "{:?}", limit(&gate));
}

#[tokio::test(start_paused = true)]
async fn deadline_before_the_first_token_is_late_and_a_slow_reader_is_not() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(SECOND, Some(ROLE)), (3000 * SECOND, None)]))
    });
    let gate = gate(transport, |t| t.deadline(5 * SECOND).limit(adaptive(16)));
    // The reader never polls for anything after the head.
    let client = gate.client();
    let unread: Vec<_> = join_all((0..8).map(|_| client.call(chat(true)))).await;
    sleep(10 * SECOND).await;
    drop(unread);
    assert_eq!(limit(&gate).cuts, 0, "{:?}", limit(&gate));
    for _ in 0..4 {
        let calls: Vec<_> = (0..16).map(|_| start(&gate, true)).collect();
        for call in calls {
            assert!(call.await.unwrap().is_err());
        }
    }
    let found = limit(&gate);
    assert!(found.decisions.iter().any(|made| made.cause == "timed_out"), "{found:?}");
    assert_idle(&gate);
}

/// Returns a stream of 20 tokens, one each 49 ms, which are produced whether or not they are read.
fn paced_by_the_engine(exchange: Exchange) -> Response<ResponseBody> {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        for frame in [TOKEN; 20].into_iter().chain([STOP, DONE]) {
            if frame == TOKEN {
                sleep(49 * MS).await;
            }
            let _ = sender.send(frame);
        }
    });
    let frames = stream::unfold((receiver, exchange), |(mut receiver, exchange)| async move {
        let frame = Ok(Frame::data(Bytes::from_static(receiver.recv().await?.as_bytes())));
        Some((frame, (receiver, exchange)))
    });
    let body = ResponseBody::new(StreamBody::new(frames));
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

/// Makes 24 concurrent calls whose readers pause for `pause` after the first frame, three times.
async fn read_with_pause(gate: &Gate, pause: Duration) {
    for _ in 0..3 {
        let calls = (0..24).map(|_| async {
            let mut body = gate.client().call(chat(true)).await.unwrap().into_body();
            body.frame().await.unwrap().unwrap();
            sleep(pause).await;
            body.collect().await.unwrap();
        });
        join_all(calls).await;
    }
}

#[tokio::test(start_paused = true)]
async fn slow_readers_are_no_slow_tokens() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(paced_by_the_engine(exchange)) });
    let gate = gate(transport, |t| t.tpot(100 * MS).wait(300 * SECOND).limit(adaptive(16)));
    read_with_pause(&gate, 4 * SECOND).await;
    assert_eq!((limit(&gate).cuts, target(&gate).tpot.count), (0, 0), "{:?}", limit(&gate));
    // These readers wait for the upstream again, soon after the pause.
    read_with_pause(&gate, 60 * MS).await;
    assert_eq!((limit(&gate).cuts, target(&gate).tpot.count), (0, 72), "{:?}", limit(&gate));
    let mean = target(&gate).tpot.mean.unwrap();
    assert!((mean - 0.049).abs() < 0.0005, "{mean}");
    assert_idle(&gate);
}

/// Returns the causes of the changes of the limit after streams without a token, which deliver a
/// comment at each `interval`. Their clients have a read timeout of `read`, and the target's
/// `first_token` is 5 s.
async fn causes_without_a_token(read: Duration, interval: Duration) -> Vec<&'static str> {
    let (transport, _) =
        upstream(
            move |_, _, exchange| async move { Ok(sse(exchange, vec![(interval, Some(": ping\n\n")); 60])) },
        );
    let gate = gate(transport, |t| t.first_token(5 * SECOND).wait(300 * SECOND).limit(adaptive(16)));
    for _ in 0..4 {
        let calls = (0..16).map(|_| async {
            let mut request = chat(true);
            request.extensions_mut().insert(Timeouts { read: Some(read), pool: None });
            gate.client().call(request).await
        });
        assert!(join_all(calls).await.iter().all(Result::is_err));
    }
    assert_idle(&gate);
    limit(&gate).decisions.iter().map(|made| made.cause).collect()
}

#[tokio::test(start_paused = true)]
async fn only_the_limits_of_the_target_show_an_overload() {
    assert_eq!(causes_without_a_token(2 * SECOND, 3 * SECOND).await, [""; 0], "the client has no patience");
    // The read timeout never passes.
    let causes = causes_without_a_token(2 * SECOND, SECOND).await;
    assert!(causes.contains(&"timed_out"), "{causes:?}");
}

#[tokio::test(start_paused = true)]
async fn retry_counts_as_awaiting_and_backoff_does_not() {
    let (transport, seen) = upstream(|n, _, exchange| async move {
        sleep(SECOND).await;
        Ok(if n == 0 { status(500, &[], "{}") } else { answer(exchange, SECOND, SECOND) })
    });
    let gate = gate(transport, |t| t.limit(adaptive(8).awaiting(1)));
    let (first, second) = (start(&gate, true), start(&gate, true));
    sleep(1050 * MS).await;
    assert_eq!((seen.attempts(), limit(&gate).awaiting), (2, 1), "the second goes while the first backs off");
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!((seen.attempts(), limit(&gate).awaiting), (3, 0));
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn deadline_before_the_head_is_late_and_in_the_queue_is_not() {
    let (transport, seen) = upstream(|_, _, exchange| async move {
        sleep(3000 * SECOND).await;
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t.deadline(5 * SECOND).limit(adaptive(4)));
    for _ in 0..4 {
        let calls: Vec<_> = (0..8).map(|k| start(&gate, k % 2 == 0)).collect();
        for call in calls {
            assert!(call.await.unwrap().is_err());
        }
    }
    let found = limit(&gate);
    assert!(found.decisions.iter().any(|made| made.cause == "timed_out"), "{found:?}");
    assert!(seen.attempts() <= 16, "those in the queue were never sent");
    assert_eq!(found.awaiting, 0);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn observe_mode_adapts_and_counts_its_decisions() {
    let (transport, seen) = one_by_one();
    let gate = Gate::builder()
        .mode(Mode::Observe)
        .target(Target::new("llm").url("http://llm").ttft(2 * SECOND).limit(adaptive(16)))
        .build_over(transport)
        .unwrap();
    load(&gate, 2, 5 * SECOND).await;
    load(&gate, 40, 30 * SECOND).await;
    assert_eq!(seen.peak(), 40, "nobody waits");
    let found = limit(&gate);
    assert!(found.limit < 16 && found.cuts > 0, "{found:?}");
    assert!(target(&gate).would["wait"] > 0);
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn acquired_slots_are_no_samples() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = gate(transport, |t| t.ttft(2 * SECOND).wait(600 * SECOND).limit(adaptive(4)));
    let slots =
        join_all((0..4).map(|_| async { gate.acquire_slot("llm", &Context::default()).await.unwrap() }))
            .await;
    let waits = start(&gate, false);
    sleep(500 * SECOND).await;
    let found = limit(&gate);
    assert_eq!((found.limit, found.cuts, found.awaiting), (4, 0, 0), "{found:?}");
    drop(slots);
    waits.await.unwrap().unwrap();
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn tool_with_a_latency_objective_adapts_its_limit() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = Gate::builder()
        .target(Target::new("llm").url("http://llm"))
        .tool("db", Tool::new(64).latency(100 * MS).limit(adaptive(32)))
        .build_over(transport)
        .unwrap();
    // Each use takes longer the more others there are.
    let use_it = |n: usize| {
        let gate = gate.clone();
        async move {
            for _ in 0..n {
                let _db = gate.acquire_tool("db", &Context::default()).await.unwrap();
                let busy = gate.snapshot().tools["db"].in_flight as u32;
                sleep(busy * 20 * MS).await;
            }
        }
    };
    use_it(20).await;
    join_all((0..40).map(|_| use_it(20))).await;
    let db = gate.snapshot().tools["db"].clone();
    let found = db.adaptive.expect("it is found");
    assert!(found.limit < 32 && found.cuts > 0, "{found:?}");
    assert_eq!((db.in_flight, db.limit, found.objective), (0, found.limit, Some(0.1)));
    assert!(!gate.prometheus().contains(r#"tidegate_tool_limit_moves_total{cause="late",tool="db"} 0"#));
}

#[tokio::test(start_paused = true)]
async fn configured_cap_without_objective_is_fixed() {
    let (transport, seen) =
        upstream(|_, _, exchange| async move { Ok(answer(exchange, 5 * SECOND, SECOND)) });
    let gate = gate(transport, |t| t.cap(20));
    load(&gate, 30, 10 * SECOND).await;
    assert_eq!((seen.peak(), target(&gate).limit), (20, 20));
    assert!(target(&gate).adaptive.is_none());
    assert!(!gate.prometheus().contains("tidegate_limit_moves_total{"));
}
