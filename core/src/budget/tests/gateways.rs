//! A gateway in front of several backends, each of which announces a limit of its own.

use std::time::Duration;

use fastrand::Rng;

use super::provider::{Policy, Provider, Rule};
use crate::budget::RateBudgets;
use crate::config::{Counting, RateConfig};
use crate::estimate::Demand;
use crate::testing::epoch;
use crate::wire::observe::Usage;
use crate::wire::rate::{RateHeaders, Window};

/// What the gateway lets in, in tokens a minute, whatever its backends announce.
const TRUTH: f64 = 50_000.0;
const MINUTES: usize = 120;

/// Which of the announced limits an answer carries, by the second that it comes in.
#[derive(Clone, Copy, Debug)]
enum Routing {
    Random,
    /// Each backend for so many seconds.
    Slow(f64),
}

/// Sends that gateway calls of random sizes, always more than fit. Returns the 429s of each minute, the
/// share of the truth that was let in, and the budgets as they are at the end.
fn play(
    limits: &[u64],
    routing: Routing,
    tells_remaining: bool,
    seed: u64,
) -> (Vec<usize>, f64, RateBudgets) {
    let mut rng = Rng::with_seed(seed);
    let start = epoch();
    let config = RateConfig { counting: Counting::Actual, ..RateConfig::default() };
    let mut budgets = RateBudgets::new(&config, start);
    let mut gateway = Provider::new(Policy::Bucket(2.0), Rule::Actual, TRUTH, 0.0);
    let (mut refused, mut taken, mut cooled) = (vec![0; MINUTES], 0.0, 0.0);
    for step in 0..MINUTES * 600 {
        let seconds = step as f64 / 10.0;
        let now = start + Duration::from_millis(100 * step as u64);
        let input = rng.u64(100..600);
        let demand = Demand { input, output: 0, max_output: Some(0), ..Demand::default() };
        let need = budgets.need(&demand);
        if seconds < cooled || !need.fits(&budgets.room(now)) {
            continue;
        }
        let mut charge = budgets.charge(now, &demand);
        let cost = gateway.cost(&demand, input as f64, 0.0);
        let limited = !gateway.arrive(seconds, cost);
        let backend = match routing {
            Routing::Random => rng.usize(..limits.len()),
            Routing::Slow(each) => (seconds / each) as usize % limits.len(),
        };
        let limit = limits[backend];
        let remaining = tells_remaining.then_some(limit * 9 / 10);
        let tokens = Window { limit: Some(limit), remaining, ..Window::default() };
        budgets.heard(now, &charge, now, &RateHeaders { tokens, ..RateHeaders::default() }, limited);
        if limited {
            refused[step / 600] += 1;
            cooled = seconds + 1.0;
        } else {
            taken += cost;
            budgets.settle(now, &mut charge, &Usage { input, ..Usage::default() });
        }
    }
    (refused, taken / (TRUTH * MINUTES as f64), budgets)
}

/// Returns the 429s a minute in the last hour, and the share of the truth that was used.
fn settled(limits: &[u64], routing: Routing, tells_remaining: bool) -> (f64, f64) {
    let (refused, used, _) = play(limits, routing, tells_remaining, 1);
    (refused[MINUTES / 2..].iter().sum::<usize>() as f64 / (MINUTES / 2) as f64, used)
}

#[test]
fn limits_that_take_turns_are_learned_from_as_one_that_stays() {
    for tells in [false, true] {
        let (steady, _) = settled(&[100_000], Routing::Random, tells);
        for limits in [&[100_000, 60_000][..], &[100_000, 80_000, 60_000]] {
            for routing in [Routing::Random, Routing::Slow(20.0), Routing::Slow(180.0)] {
                let (last, used) = settled(limits, routing, tells);
                assert!(last <= steady + 0.2, "{limits:?}, {routing:?}: {last} 429s a minute, not {steady}");
                assert!(used > 0.8, "{limits:?}, {routing:?}: {used}");
            }
        }
    }
}

#[test]
fn a_limit_that_was_not_announced_of_late_is_used_whole() {
    let now = epoch() + Duration::from_secs(60 * MINUTES as u64);
    // Of two higher ones running the lower is believed, and one may have been said before.
    for (limit, answers) in [(200_000, 3), (40_000, 1)] {
        let (.., mut budgets) = play(&[100_000, 60_000], Routing::Random, false, 1);
        for _ in 0..answers {
            let charge = budgets.charge(now, &Demand::default());
            let tokens = Window { limit: Some(limit), ..Window::default() };
            budgets.heard(now, &charge, now, &RateHeaders { tokens, ..RateHeaders::default() }, false);
        }
        let minute = Demand { input: limit, output: 0, ..Demand::default() };
        let takes = budgets.time_for(1, &budgets.need(&minute)).as_secs_f64();
        assert!((60.0..62.0).contains(&takes), "{limit}: a minute's worth takes {takes} s");
    }
}
