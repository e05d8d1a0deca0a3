//! Tests of the budgets of a client behind a gateway whose backends each announce their own limit.

use std::time::Duration;

use fastrand::Rng;

use super::provider::{Policy, Provider, Rule};
use crate::budget::RateBudgets;
use crate::testing::epoch;
use tidegate_config::{Counting, RateConfig};
use tidegate_protocol::observe::Usage;
use tidegate_protocol::rate::{RateHeaders, RateWindow};
use tidegate_tokens::Demand;

/// Tokens per minute that the gateway enforces, whatever its backends announce.
const TRUTH: f64 = 50_000.0;
const MINUTES: usize = 120;
const SEVEN: [u64; 7] = [100_000, 90_000, 80_000, 70_000, 60_000, 52_000, 110_000];

/// How the gateway chooses the backend of a call, whose limit the response announces.
#[derive(Clone, Copy, Debug)]
enum Routing {
    Random,
    /// Each backend in turn, for this many seconds at a time.
    Slow(f64),
}

/// Tokens admitted and 429s within one minute.
#[derive(Clone, Copy, Default)]
struct Minute {
    tokens: f64,
    refused: usize,
}

/// Simulates a client that always has calls waiting, of random sizes, and sends those that its
/// budgets admit. `truth` maps the limit that a backend announces to the limit that the gateway
/// enforces. If `tells_remaining` is `true`, responses also announce `remaining`.
///
/// Returns the totals of each minute, and the budgets at the end.
fn play(
    limits: &[u64],
    truth: fn(u64) -> f64,
    routing: Routing,
    tells_remaining: bool,
    seed: u64,
) -> (Vec<Minute>, RateBudgets) {
    let mut rng = Rng::with_seed(seed);
    let start = epoch();
    let config = RateConfig { counting: Counting::Actual, ..RateConfig::default() };
    let mut budgets = RateBudgets::new(&config, start);
    let mut gateway = Provider::new(Policy::Bucket(2.0), Rule::Actual, truth(limits[0]), 0.0);
    let (mut minutes, mut cooled) = (vec![Minute::default(); MINUTES], 0.0);
    for step in 0..MINUTES * 600 {
        let seconds = step as f64 / 10.0;
        let now = start + Duration::from_millis(100 * step as u64);
        let input = rng.u64(100..600);
        let demand = Demand { input, output: 0, max_output: Some(0), ..Demand::default() };
        let need = budgets.need(&demand);
        if seconds < cooled || !need.fits(&budgets.available(now)) {
            continue;
        }
        let backend = match routing {
            Routing::Random => rng.usize(..limits.len()),
            Routing::Slow(each) => (seconds / each) as usize % limits.len(),
        };
        let limit = limits[backend];
        let mut charge = budgets.charge(now, &demand);
        gateway.limit = truth(limit);
        let cost = gateway.cost(&demand, input as f64, 0.0);
        let limited = !gateway.arrive(seconds, cost);
        let remaining = tells_remaining.then_some(limit * 9 / 10);
        let tokens = RateWindow { limit: Some(limit), remaining, ..RateWindow::default() };
        budgets.on_response(now, &charge, now, &RateHeaders { tokens, ..RateHeaders::default() }, limited);
        if limited {
            minutes[step / 600].refused += 1;
            cooled = seconds + 1.0;
        } else {
            minutes[step / 600].tokens += cost;
            budgets.settle(now, &mut charge, &Usage { input, ..Usage::default() });
        }
    }
    (minutes, budgets)
}

/// Runs [`play`] for two hours with [`TRUTH`] as the enforced limit. Returns the mean number of
/// 429s per minute in the second hour, and the share of the enforced limit that was used over both
/// hours.
fn settled(limits: &[u64], routing: Routing, tells_remaining: bool) -> (f64, f64) {
    let (minutes, _) = play(limits, |_| TRUTH, routing, tells_remaining, 1);
    let late = &minutes[MINUTES / 2..];
    let refused: usize = late.iter().map(|minute| minute.refused).sum();
    let tokens: f64 = minutes.iter().map(|minute| minute.tokens).sum();
    (refused as f64 / late.len() as f64, tokens / (TRUTH * MINUTES as f64))
}

#[test]
fn alternating_limits_cause_no_more_429s_than_a_stable_one() {
    for tells in [false, true] {
        let (steady, _) = settled(&[100_000], Routing::Random, tells);
        for limits in [&[100_000, 60_000][..], &[100_000, 80_000, 60_000], &SEVEN] {
            for routing in [Routing::Random, Routing::Slow(20.0), Routing::Slow(180.0)] {
                let (last, used) = settled(limits, routing, tells);
                assert!(last <= steady + 0.2, "{limits:?}, {routing:?}: {last} 429s a minute, not {steady}");
                assert!(used > 0.8, "{limits:?}, {routing:?}: {used}");
            }
        }
    }
}

#[test]
fn new_limit_is_used_in_full() {
    let now = epoch() + Duration::from_secs(60 * MINUTES as u64);
    // A higher limit needs two responses in a row, and one may have come earlier.
    for (limit, answers) in [(200_000, 3), (40_000, 1)] {
        let (_, mut budgets) = play(&[100_000, 60_000], |_| TRUTH, Routing::Random, false, 1);
        for _ in 0..answers {
            let charge = budgets.charge(now, &Demand::default());
            let tokens = RateWindow { limit: Some(limit), ..RateWindow::default() };
            budgets.on_response(now, &charge, now, &RateHeaders { tokens, ..RateHeaders::default() }, false);
        }
        let minute = Demand { input: limit, output: 0, ..Demand::default() };
        let takes = budgets.time_for(1, &budgets.need(&minute)).as_secs_f64();
        assert!((60.0..62.0).contains(&takes), "{limit}: a minute's worth takes {takes} s");
    }
}

#[test]
fn refusals_by_small_backend_do_not_slow_large_backend() {
    const HALF_AN_HOUR: Routing = Routing::Slow(1_800.0);
    // Other clients use part of the small backend.
    let truth = |limit| if limit == 20_000 { 15_000.0 } else { limit as f64 };
    for seed in 1..=3 {
        let (minutes, _) = play(&[100_000, 20_000], truth, HALF_AN_HOUR, false, seed);
        let refused: usize = minutes[30..60].iter().map(|minute| minute.refused).sum();
        assert!(refused > 1, "seed {seed}: the small one refuses");
        let back: Vec<_> = minutes[60..70].iter().map(|minute| minute.tokens).collect();
        assert!(back.iter().sum::<f64>() > 0.8 * 10.0 * 100_000.0, "seed {seed}: {back:?}");
    }
}
