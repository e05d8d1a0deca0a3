//! Tests of the call log, snapshots and metrics. All metric series exist from the start, except
//! histograms by tenant and lane.

use std::time::Duration;

use tidegate::config::{LaneSettings, Target, Tenant};
use tidegate::{Context, Gate, Lane};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn each_attempt_has_five_timestamps() {
    let (transport, _) = upstream(|n, _, exchange| async move {
        tokio::time::sleep(SECOND).await;
        Ok(if n == 0 {
            status(429, &[("retry-after", "10")], "{}")
        } else {
            sse(
                exchange,
                vec![(SECOND, Some(ROLE)), (SECOND, Some(TOKEN)), (SECOND, Some(STOP)), (SECOND, Some(DONE))],
            )
        })
    });
    let gate = gate(transport, |t| t.ttft(60 * SECOND));
    read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    let record = gate.calls().records().pop().unwrap();
    assert_eq!((record.outcome, record.attempts.len()), ("completed", 2));
    let [first, second] = &record.attempts[..] else { panic!() };
    assert_eq!((first.queued_at, first.admitted_at, first.sent_at), (0.0, Some(0.0), Some(0.0)));
    assert_eq!((first.status, first.first_token_at, first.released_at), (Some(429), None, Some(1.0)));
    assert_eq!(second.queued_at, 1.0);
    let admitted = second.admitted_at.unwrap();
    assert!((11.0..12.1).contains(&admitted), "{admitted}");
    let since = |at: Option<f64>| (at.unwrap() - admitted).round();
    assert_eq!(
        (since(second.sent_at), since(second.first_token_at), since(second.released_at)),
        (0.0, 3.0, 5.0)
    );
    assert_eq!(gate.snapshot().targets["llm"].tenants["default"].objective_met, 1);
}

#[tokio::test(start_paused = true)]
async fn objective_of_a_lane_decides_whether_its_calls_met_the_objective() {
    let cases = [(None, 3 * SECOND, 1), (Some(SECOND), 3 * SECOND, 1), (Some(10 * SECOND), SECOND, 0)];
    for (of_target, of_lane, expected) in cases {
        let (transport, _) = upstream(|_, _, exchange| async move {
            Ok(sse(exchange, vec![(2 * SECOND, Some(TOKEN)), (SECOND, Some(STOP)), (SECOND, Some(DONE))]))
        });
        let lane = LaneSettings::new().ttft(of_lane);
        let gate = gate(transport, |t| t.ttft(of_target).lane(Lane::Interactive, lane));
        let mut request = chat(true);
        request.extensions_mut().insert(Context { lane: Lane::Interactive, ..Context::default() });
        read(gate.client().call(request).await.unwrap()).await.unwrap();
        let met = gate.snapshot().targets["llm"].tenants["default"].objective_met;
        assert_eq!(met, expected, "target {of_target:?}, lane {of_lane:?}");
    }
}

/// Returns the number of bytes that each further target adds to the Prometheus text. `shape`
/// changes the settings of the targets.
fn bytes_a_target(shape: impl Fn(Target) -> Target) -> usize {
    let text = |count: usize| {
        let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
        let target = |n: usize| shape(Target::new(format!("target-{n:06}")).url(format!("http://host-{n}")));
        let gate = (0..count).fold(Gate::builder(), |gate, n| gate.target(target(n)));
        gate.build_over(transport).unwrap().prometheus().len()
    };
    (text(21) - text(1)) / 20
}

#[tokio::test(start_paused = true)]
async fn uncalled_target_adds_at_most_16_kib() {
    for (bytes, what) in [(bytes_a_target(|t| t), "adaptive"), (bytes_a_target(|t| t.cap(8)), "fixed")] {
        assert!(bytes <= 16 * 1024, "{what}: {bytes} bytes");
    }
    let tenant = bytes_a_target(|t| t.tenant("acme", Tenant::new())) - bytes_a_target(|t| t);
    assert!(tenant <= 4 * 1024, "a tenant: {tenant} bytes");
}

#[tokio::test(start_paused = true)]
async fn used_lane_adds_complete_histograms() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(SECOND, Some(TOKEN)), (SECOND, Some(STOP)), (SECOND, Some(DONE))]))
    });
    let gate = gate(transport, |t| t);
    let before = gate.prometheus();
    read(gate.client().call(chat(true)).await.unwrap()).await.unwrap();
    let after = gate.prometheus();
    for family in ["queue_wait_seconds", "ttft_seconds", "call_seconds"] {
        let of = format!("tidegate_{family}_bucket{{lane=\"standard\",target=\"llm\",tenant=\"default\"");
        let buckets = after.lines().filter(|line| line.starts_with(&of)).count();
        assert_eq!(buckets, 27, "{family}: as many as ever, the one without a bound included");
        assert!(!before.contains(&of));
    }
    assert!(after.len() - before.len() <= 10 * 1024, "{} bytes", after.len() - before.len());
}

#[tokio::test(start_paused = true)]
async fn every_configured_series_exists_before_the_first_call() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = gate(transport, |t| t.tenant("acme", tidegate::config::Tenant::new().cap(3)));
    let before = gate.prometheus();
    for series in [
        r#"tidegate_refused_total{reason="wait_budget",target="llm",tenant="acme"} 0"#,
        r#"tidegate_calls_total{outcome="truncated",target="llm",tenant="other"} 0"#,
        r#"tidegate_retries_total{cause="rate_limited",target="llm"} 0"#,
        r#"tidegate_limit{target="llm"} 8"#,
        r#"tidegate_target_state{state="open",target="llm"} 1"#,
        r#"tidegate_target_state{state="ramping",target="llm"} 0"#,
        r#"tidegate_limit_moves_total{cause="late",target="llm"} 0"#,
        r#"tidegate_limit_saturated{target="llm"} 0"#,
        r#"tidegate_awaiting_first_token{target="llm"} 0"#,
        r#"tidegate_awaiting_first_token_limit{target="llm"} 8"#,
        r#"tidegate_upstream_ttft_seconds_count{target="llm"} 0"#,
    ] {
        assert!(before.contains(series), "{series} is missing from\n{before}");
    }
    for tenant in ["acme", "nobody", "somebody"] {
        read(gate.client().call(of(tenant)).await.unwrap()).await.unwrap();
    }
    let after = gate.prometheus();
    assert!(
        after.contains(r#"tidegate_calls_total{outcome="completed",target="llm",tenant="other"} 2"#),
        "{after}"
    );
    assert!(after.contains(r#"tidegate_tokens_total{direction="input",target="llm",tenant="acme"} 3"#));
    let later = added(&before, &after);
    assert!(later.iter().all(|name| is_by_lane(name)), "no other series appears later: {later:?}");
    assert!(after.contains(r#"tidegate_call_seconds_count{lane="standard",target="llm",tenant="acme"} 1"#));
    assert!(!after.contains(r#"lane="batch""#), "nothing came by that lane");
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_before_its_first_token_is_no_latency_sample() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(SECOND, Some(ROLE)), (1000 * SECOND, Some(TOKEN))]))
    });
    let gate = gate(transport, |t| t);
    let _ = tokio::time::timeout(Duration::from_secs(5), async {
        read(gate.client().call(chat(true)).await?).await
    })
    .await;
    let tenant = &gate.snapshot().targets["llm"].tenants["default"];
    assert_eq!((tenant.outcomes["cancelled"], tenant.ttft.count, tenant.duration.count), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_after_its_first_token_is_a_sample_of_the_time_to_it() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(2 * SECOND, Some(TOKEN)), (1000 * SECOND, Some(STOP))]))
    });
    let gate = gate(transport, |t| t);
    let read_for_5_s =
        tokio::time::timeout(5 * SECOND, async { read(gate.client().call(chat(true)).await?).await });
    assert!(read_for_5_s.await.is_err());
    let tenant = &gate.snapshot().targets["llm"].tenants["default"];
    assert_eq!((tenant.outcomes["cancelled"], tenant.ttft.count, tenant.duration.count), (1, 1, 0));
    let metrics = gate.prometheus();
    for series in [
        r#"tidegate_ttft_seconds_sum{lane="standard",target="llm",tenant="default"} 2"#,
        r#"tidegate_upstream_ttft_seconds_sum{target="llm"} 2"#,
    ] {
        assert!(metrics.contains(series), "{series} is missing from\n{metrics}");
    }
    assert_eq!(gate.calls().records()[0].attempts[0].first_token_at, Some(2.0));
}

/// A response whose token counts are far from the estimates that a gate has before it has learned
/// anything.
const DEAR: &str = r#"{"id":"1","object":"chat.completion","choices":[],"usage":{"prompt_tokens":400,"completion_tokens":900,"total_tokens":1300}}"#;

#[tokio::test(start_paused = true)]
async fn log_contains_the_estimates_of_each_call() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, DEAR)) });
    let gate = gate(transport, |t| t);
    for _ in 0..20 {
        read(gate.client().call(chat(false)).await.unwrap()).await.unwrap();
    }
    let records = gate.calls().records();
    let believed = |n: usize| (records[n].estimated_input_tokens, records[n].estimated_output_tokens);
    // The estimate for two bytes and one message, by the initial ratio. The usage of the call
    // itself is learned only afterwards.
    assert_eq!(believed(0).0, Some(5));
    let (Some(input), Some(output)) = believed(19) else { panic!("{:?}", believed(19)) };
    assert!(input > 50, "{input}: learned from what was counted");
    assert!((700..=1100).contains(&output), "{output}");
    assert_eq!((records[19].input_tokens, records[19].output_tokens), (Some(400), Some(900)));
}

#[tokio::test(start_paused = true)]
async fn snapshot_contains_floors_lanes_and_debt() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        tokio::time::sleep(SECOND).await;
        Ok(json(exchange, DEAR))
    });
    let gate = gate(transport, |t| {
        t.cap(8)
            .lane(Lane::Interactive, LaneSettings::new().floor(0.25))
            .tenant("acme", Tenant::new().floor(0.5).tpm(1200))
    });
    let target = || gate.snapshot().targets["llm"].clone();
    let idle = target();
    assert_eq!((idle.lanes["interactive"].floor, idle.lanes["batch"].floor), (2, 0));
    assert_eq!((idle.tenants["acme"].floor, idle.tenants["acme"].debt), (4, 0));
    assert_eq!(idle.held_for, None);

    let call = tokio::spawn({
        let client = gate.client();
        async move { read(client.call(of("acme")).await.unwrap()).await.unwrap() }
    });
    tokio::time::sleep(SECOND / 2).await;
    let under_way = target();
    assert_eq!((under_way.lanes["standard"].in_flight, under_way.lanes["standard"].queue_depth), (1, 0));
    call.await.unwrap();
    // 1,300 tokens, less 20 per second and the burst of 120 tokens (6 s).
    let owed = target().tenants["acme"].debt;
    assert!((1000..1300).contains(&owed), "{owed}");
    tokio::time::sleep(30 * SECOND).await;
    let later = target().tenants["acme"].debt;
    assert!((owed - 601..owed - 598).contains(&later), "{later} of {owed}: paid as the time passes");
}

#[tokio::test(start_paused = true)]
async fn snapshot_contains_how_long_capacity_is_reserved() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        tokio::time::sleep(100 * SECOND).await;
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t.cap(8).aging(10 * SECOND).kv_tokens(1000));
    let of_length = |bytes: usize| {
        let text = "x".repeat(bytes);
        let body = format!(
            r#"{{"model": "m", "max_tokens": 10, "messages": [{{"role": "user", "content": "{text}"}}]}}"#
        );
        let request = http::Request::post("http://llm/v1/chat/completions").body(body.into_bytes().into());
        let (client, request) = (gate.client(), request.unwrap());
        tokio::spawn(async move { client.call(request).await })
    };
    let small = of_length(1000);
    tokio::time::sleep(SECOND).await;
    let large = of_length(2500);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(gate.snapshot().targets["llm"].held_for, None, "it is not aged");
    tokio::time::sleep(9 * SECOND).await;
    let tiny = of_length(100);
    tokio::time::sleep(5 * SECOND).await;
    let target = gate.snapshot().targets["llm"].clone();
    let held = target.held_for.expect("room is kept");
    assert!((4.9..=5.1).contains(&held), "{held}");
    assert_eq!((target.in_flight, target.queue_depth), (1, 2), "it fits, and does not overtake");
    let memory = target.kv.expect("memory");
    assert!(memory.held > 300 && memory.held <= memory.usable, "{memory:?}");
    [small, large, tiny].iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn follower_of_the_log_gets_each_call_or_the_number_missed() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        tokio::time::sleep(SECOND).await;
        Ok(json(exchange, ANSWER))
    });
    let gate = gate(transport, |t| t.cap(3));
    let mut follower = gate.calls().follow();
    let call = || async { read(gate.client().call(chat(false)).await.unwrap()).await.unwrap() };
    futures_util::future::join_all((0..4).map(|_| call())).await;
    let mut in_flight = Vec::new();
    while let Ok(record) = follower.try_recv() {
        in_flight.extend(record.attempts.iter().filter_map(|attempt| attempt.in_flight));
    }
    in_flight.sort_unstable();
    assert_eq!(in_flight, [1, 2, 3, 3]);
    for _ in 0..tidegate::internals::LOGGED_CALLS + 7 {
        call().await;
    }
    use tokio::sync::broadcast::error::TryRecvError::Lagged;
    assert!(matches!(follower.try_recv(), Err(Lagged(7))));
}
