//! Tests that a sweep sends no request that could exceed a ceiling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tidegate::Transport;
use tidegate_sim::Faults;
use tidegate_sweep::spend::{Ceiling, TokenPrices};
use tidegate_sweep::{Sweep, SweepCeilings, SweepEnd, SweepOptions};
use tokio::sync::watch;
use tower::{ServiceExt, service_fn};

use crate::upstream::Upstream;
use crate::{options, run, run_paused_seeded, sweep};

fn limited() -> Upstream {
    Upstream::new(Faults { concurrency_limit: Some(10), ..Faults::default() })
}

fn within(ceilings: SweepCeilings) -> SweepOptions {
    SweepOptions { ceilings, prices: Some(TokenPrices { input: 2.0, output: 10.0 }), ..options() }
}

/// Returns the input and output tokens that the server counted: one per four bytes of the prompts,
/// and the maximum length of each answer.
fn counted(upstream: &Upstream) -> (u64, u64) {
    let (mut input, mut output) = (0, 0);
    for body in upstream.log.bodies.lock().iter() {
        let body: Value = serde_json::from_slice(body).unwrap();
        input += body["messages"][0]["content"].as_str().unwrap().len().div_ceil(4) as u64;
        output += body["max_tokens"].as_u64().unwrap();
    }
    (input, output)
}

#[test]
fn request_ceiling_ends_the_sweep() {
    for max in [1, 2, 50, 151] {
        let upstream = limited();
        let outcome =
            sweep(within(SweepCeilings { calls: Some(max), ..SweepCeilings::default() }), &upstream);
        assert_eq!(outcome.ended, SweepEnd::Ceiling(Ceiling::Calls));
        assert!(upstream.log.requests() <= max, "{} of {max}", upstream.log.requests());
        assert!(upstream.log.requests() + 12 >= max, "{} of {max}", upstream.log.requests());
    }
}

#[test]
fn token_and_cost_ceilings_are_not_exceeded() {
    for max in [500, 5_000, 20_000] {
        let upstream = limited();
        let outcome =
            sweep(within(SweepCeilings { tokens: Some(max), ..SweepCeilings::default() }), &upstream);
        let (input, output) = counted(&upstream);
        assert_eq!(outcome.ended, SweepEnd::Ceiling(Ceiling::Tokens));
        assert!(input + output <= max, "{input} + {output} of {max}");
        assert!(outcome.spend.input_tokens + outcome.spend.output_tokens <= max, "{:?}", outcome.spend);
    }
    let upstream = limited();
    let outcome = sweep(within(SweepCeilings { cost: Some(0.02), ..SweepCeilings::default() }), &upstream);
    let (input, output) = counted(&upstream);
    let cost = (2.0 * input as f64 + 10.0 * output as f64) / 1e6;
    assert_eq!(outcome.ended, SweepEnd::Ceiling(Ceiling::Cost));
    assert!(cost <= 0.02 && cost > 0.015, "{cost}");
    assert!(outcome.spend.money.unwrap() <= 0.02);
}

#[test]
fn time_ceiling_ends_the_sweep() {
    let upstream = limited();
    let (outcome, took) = run_paused_seeded(async {
        let began = tokio::time::Instant::now();
        let sweep =
            Sweep::new(within(SweepCeilings { seconds: Some(3.0), ..SweepCeilings::default() })).unwrap();
        (run(sweep, &upstream).await.unwrap(), began.elapsed())
    });
    assert_eq!(outcome.ended, SweepEnd::Ceiling(Ceiling::Time));
    assert!(took.as_secs_f64() <= 3.01, "{took:?}");
    assert_eq!(upstream.log.open(), 0);
}

#[test]
fn slow_preflight_call_leaves_time_for_steps() {
    let upstream = limited();
    let (server, is_cold) = (upstream.transport(), Arc::new(AtomicBool::new(true)));
    let transport = Transport::new(service_fn(move |request| {
        let (server, is_cold) = (server.clone(), is_cold.clone());
        async move {
            if is_cold.swap(false, Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
            server.oneshot(request).await
        }
    }));
    let sweep =
        Sweep::new(within(SweepCeilings { seconds: Some(40.0), ..SweepCeilings::default() })).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let outcome = run_paused_seeded(sweep.run(transport, |_| {}, stopped)).unwrap();
    assert!(!outcome.steps.is_empty(), "{:?}", outcome.ended);
}

#[test]
fn ceiling_below_one_call_sends_nothing() {
    let upstream = limited();
    let sweep = Sweep::new(within(SweepCeilings { tokens: Some(20), ..SweepCeilings::default() })).unwrap();
    let error = run_paused_seeded(run(sweep, &upstream)).unwrap_err().to_string();
    assert!(error.contains("--max-tokens"), "{error}");
    assert_eq!(upstream.log.requests(), 0);
}
