//! Tests that a run uses almost the whole quota of a provider's rate limit.

#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write;

use support::{config, never, options, paused, play, simulator, transport};
use tidegate_batch::{AnsweredLines, Batch};
use tidegate_sim::Faults;
use tidegate_sim::faults::TokenRate;

const DEPTH_S: f64 = 60.0;

struct Took {
    seconds: f64,
    least: f64,
    refused: u64,
    failed: u64,
}

/// Sends `lines` requests of various sizes to a simulated provider with the rate limit `rate`,
/// whose unused quota accumulates for up to one minute. Returns the duration of the run and the
/// minimum duration that the quota allows.
fn run(lines: usize, rate: TokenRate) -> Took {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut text = String::new();
    for n in 0..lines {
        let words = "tide ".repeat(rng.usize(10..400));
        let max_open = rng.u32(8..64);
        writeln!(text, r#"{{"custom_id":"{n}","url":"/v1/chat/completions","body":{{"model":"sim","max_tokens":{max_open},"messages":[{{"role":"user","content":"{n} {words}"}}]}}}}"#).unwrap();
    }
    paused(async move {
        let simulator = simulator(Faults { token_rate: Some(rate), ..Faults::default() });
        let batch = Batch::over(config(|target| target.cap(512)), transport(&simulator)).unwrap();
        let result = play(&batch, options(), text, AnsweredLines::default(), never()).await;
        let stats = simulator.stats();
        let cost: u64 = stats
            .attempts
            .iter()
            .filter(|a| a.status == Some(200))
            .map(|a| u64::from(a.prompt_tokens + a.output_tokens))
            .sum();
        let refused = stats.attempts.iter().filter(|a| a.status == Some(429)).count() as u64;
        let least = |work: f64, rate: Option<f64>| rate.map_or(0.0, |rate| work / rate * 60.0 - DEPTH_S);
        let tokens = least(cost as f64, rate.tokens_per_minute);
        let requests = least(lines as f64, rate.requests_per_minute);
        let failed = result.progress().failed;
        Took { seconds: result.seconds, least: tokens.max(requests), refused, failed }
    })
}

/// A run also uses the quota that accumulated before it started. It takes at most 5 % longer than
/// the minimum duration, which is the work divided by the rate, minus one minute, because the quota
/// of one minute has accumulated.
#[test]
fn saved_quota_is_used_too() {
    for (rpm, tpm) in [(Some(1_200.0), Some(300_000.0)), (Some(1_200.0), None), (None, Some(280_000.0))] {
        let rate = TokenRate {
            tokens_per_minute: tpm,
            requests_per_minute: rpm,
            burst_s: DEPTH_S,
            ..TokenRate::default()
        };
        let took = run(4_000, rate);
        assert_eq!((took.failed, took.refused), (0, 0));
        assert!(took.seconds <= 1.05 * took.least, "{rpm:?} {tpm:?}: {} of {}", took.seconds, took.least);
    }
}
