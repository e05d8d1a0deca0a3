//! What refusals have cut grows back.

use std::time::{Duration, Instant};

use crate::budget::RateBudgets;
use crate::config::{Headers, RateConfig};
use crate::estimate::Demand;
use crate::testing::epoch;
use crate::wire::rate::RateHeaders;

/// A hundredth of a minute's quota.
const CALL: Demand = Demand { input: 500, output: 100, max_output: Some(100) };

/// Tokens a minute, none of it told by headers.
fn silent() -> RateConfig {
    RateConfig { tpm: Some(60_000), headers: Headers::Follow, ..RateConfig::default() }
}

/// As much as fits, ten tries a second, every answer without headers; what was used.
fn drive(budgets: &mut RateBudgets, from: Instant, seconds: u64, limited: bool) -> f64 {
    let mut used = 0;
    for tenth in 0..10 * seconds {
        let now = from + Duration::from_millis(100 * tenth);
        let need = budgets.need(&CALL);
        while need.fits(&budgets.room(now)) {
            let charge = budgets.charge(now, &CALL);
            budgets.heard(now, &charge, now, &RateHeaders::default(), limited);
            used += need.tokens;
        }
    }
    f64::from(used)
}

#[test]
fn a_share_that_was_cut_is_whole_again_within_the_hour() {
    let start = epoch();
    let minutes = |n: u64| start + Duration::from_secs(60 * n);
    let mut budgets = RateBudgets::new(&silent(), start);
    drive(&mut budgets, start, 3_600, true);
    let low = drive(&mut budgets, minutes(60), 60, false);
    assert!(low < 0.5 * 60_000.0, "an hour of refusals has cut it: {low}");
    let soon = drive(&mut budgets, minutes(61), 600, false) / 10.0;
    assert!(soon < 0.5 * 60_000.0, "it does not jump back: {soon}");
    drive(&mut budgets, minutes(71), 3_000, false);
    let whole = drive(&mut budgets, minutes(121), 600, false) / 10.0;
    assert!(whole > 0.8 * 60_000.0, "{whole}");
}
