//! Tests that no duration from a caller or a builder causes a panic, however long or short it is.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use proptest::prelude::*;
use tidegate::config::{Pool, Target, Tool};
use tidegate::limit::AdaptiveLimitLayer;
use tidegate::{Context, Gate, Timeouts, duration};
use tokio::time::Instant;

use crate::support::*;

/// Generates durations, most of which are too long to be added to the current time.
fn any_duration() -> impl Strategy<Value = Duration> {
    let any = (any::<u64>(), 0u32..1_000_000_000).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos));
    let ends = [Duration::ZERO, Duration::from_nanos(1), duration::MAX, Duration::MAX];
    prop_oneof![any, prop::sample::select(ends.to_vec())]
}

/// Returns the latest instant that the clock can represent, to the second.
fn last_moment() -> Instant {
    let now = Instant::now();
    let seconds = (0..64).rev().fold(0, |sum, bit| {
        let more = sum + (1u64 << bit);
        if now.checked_add(Duration::from_secs(more)).is_some() { more } else { sum }
    });
    now + Duration::from_secs(seconds)
}

fn on_virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(run)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_timeout_of_a_client_is_used(
        silence in prop::option::of(any_duration()),
        wait in prop::option::of(any_duration()),
        stream in any::<bool>(),
    ) {
        on_virtual_time(async {
            let (transport, _) = upstream(|_, _, exchange| async move {
                Ok(sse(exchange, vec![(SECOND, Some(TOKEN)), (SECOND, Some(STOP))]))
            });
            let gate = gate(transport, |t| t.cap(1).idle(30 * 24 * 3600 * SECOND));
            let call = || {
                let mut request = chat(stream);
                request.extensions_mut().insert(Timeouts { read: silence, pool: wait });
                let client = gate.client();
                async move {
                    if let Ok(response) = client.call(request).await {
                        let _ = read(response).await;
                    }
                }
            };
            // The second call waits for the first.
            tokio::join!(call(), call());
            assert_idle(&gate);
        });
    }

    #[test]
    fn any_retry_after_of_a_slot_is_accepted(after in any_duration(), patience in any_duration()) {
        on_virtual_time(async {
            let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
            let gate = Gate::builder()
                .target(Target::new("bedrock").slots_only())
                .target(Target::new("llama").pool(Pool::new(["http://a"])))
                .build_over(transport)
                .unwrap();
            for (target, status) in [("bedrock", None), ("bedrock", Some(429)), ("llama", Some(429)), ("llama", Some(503))] {
                let context = Context { deadline: Some(Instant::now() + SECOND), ..Context::default() };
                if let Ok(mut slot) = gate.acquire_slot(target, &context).await {
                    slot.failed(status.map(|status| StatusCode::from_u16(status).unwrap()), Some(after));
                }
            }
            prop_assert_eq!(gate.drain(patience).await, 0);
            Ok(())
        })?;
    }

    #[test]
    fn any_duration_is_built_or_rejected(span in any_duration()) {
        on_virtual_time(async {
            let gate = Gate::builder()
                .target(Target::new("llm").url("http://llm").deadline(span).idle(span).aging(span).ttft(span))
                .tool("db", Tool::new(1).wait(span))
                .build();
            prop_assert_eq!(gate.is_ok(), (Duration::from_millis(1)..=30 * 24 * 3600 * SECOND).contains(&span));
            AdaptiveLimitLayer::new(span);
            prop_assert!(AdaptiveLimitLayer::builder("llm").latency(span).build().is_ok());
            Ok(())
        })?;
    }
}

/// The fields of a [`tidegate::Config`] are public, so a program may set them to any value after
/// the configuration was validated.
#[tokio::test(start_paused = true)]
async fn unchecked_settings_are_limited() {
    let (transport, _) = upstream(|_, _, exchange| async move {
        Ok(sse(exchange, vec![(SECOND, Some(TOKEN)), (SECOND, Some(STOP))]))
    });
    let mut config = tidegate::Config::builder()
        .target(Target::new("llm").pool(Pool::new(["http://a", "http://b"])))
        .build()
        .unwrap();
    let longest = Some(Duration::MAX);
    let target = &mut config.targets[0];
    (target.deadline, target.idle, target.first_token) = (Duration::MAX, longest, longest);
    (target.stall, target.wait, target.ttft, target.aging) = (longest, longest, longest, Duration::MAX);
    let pool = target.pool.as_mut().unwrap();
    (pool.poll, pool.hedge, pool.slow_start) = (longest, longest, longest);
    (pool.down_after, pool.cut_after) = (Duration::MAX, Duration::MAX);
    let gate = Gate::over(config, transport).unwrap();
    for _ in 0..2 {
        let mut request = chat(true);
        *request.uri_mut() = "http://llm/v1/chat/completions".parse().unwrap();
        read(gate.client().call(request).await.unwrap()).await.unwrap();
        tokio::time::sleep(60 * SECOND).await;
    }
    assert_idle(&gate);
}

#[tokio::test(start_paused = true)]
async fn deadline_at_the_last_instant_does_not_panic() {
    let (transport, _) = upstream(|_, _, exchange| async move { Ok(json(exchange, ANSWER)) });
    let gate = Gate::builder()
        .target(Target::new("llm").url("http://llm").cap(1))
        .tool("db", 1)
        .build_over(transport);
    let gate = gate.unwrap();
    let context = Context { deadline: Some(last_moment()), ..Context::default() };
    let (slot, tool) =
        (gate.acquire_slot("llm", &context).await.unwrap(), gate.acquire_tool("db", &context).await.unwrap());
    let gate = Arc::new(gate);
    let waiting = tokio::spawn({
        let (gate, context) = (gate.clone(), context.clone());
        async move { tokio::join!(gate.acquire_slot("llm", &context), gate.acquire_tool("db", &context)) }
    });
    tokio::time::sleep(60 * SECOND).await;
    drop((slot, tool));
    let (slot, tool) = waiting.await.unwrap();
    assert!(slot.is_ok() && tool.is_ok());
}
