//! Tests of how the burst, the usable share of a limit and the counting rule recover after 429s.

use std::time::{Duration, Instant};

use crate::budget::{BudgetKind, RateBudgets};
use crate::testing::epoch;
use tidegate_config::{Counting, HeaderPolicy, RateConfig};
use tidegate_protocol::rate::{RateHeaders, RateWindow};
use tidegate_tokens::Demand;

/// A call that takes 1 % of the quota per minute.
const CALL: Demand = Demand {
    input: 500,
    output: 100,
    max_output: Some(100),
    media: 0,
    cached: 0,
    exact: true,
    dialect: None,
};

/// Returns a configuration with a limit of tokens per minute, for a provider without headers.
fn silent() -> RateConfig {
    RateConfig { tpm: Some(60_000), headers: HeaderPolicy::Follow, ..RateConfig::default() }
}

/// Makes all calls that fit, ten times per second for `seconds`. The responses have no headers, and
/// all are 429s if `limited` is `true`. Returns the tokens charged.
fn drive(budgets: &mut RateBudgets, from: Instant, seconds: u64, limited: bool) -> f64 {
    let mut used = 0;
    for tenth in 0..10 * seconds {
        let now = from + Duration::from_millis(100 * tenth);
        let need = budgets.need(&CALL);
        while need.fits(&budgets.available(now)) {
            let charge = budgets.charge(now, &CALL);
            budgets.on_response(now, &charge, now, &RateHeaders::default(), limited);
            used += need.tokens;
        }
    }
    f64::from(used)
}

#[test]
fn cut_share_recovers_within_an_hour() {
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

#[test]
fn burst_recovery_delay_doubles_after_each_mistake() {
    let start = epoch();
    let minutes = |n: u64| start + Duration::from_secs(60 * n);
    let mut budgets = RateBudgets::new(&silent(), start);
    let mut call = |at: u64, limited: bool| {
        let charge = budgets.charge(minutes(at), &CALL);
        budgets.on_response(minutes(at), &charge, minutes(at), &RateHeaders::default(), limited);
        budgets.view(minutes(at)).first().map(|view| view.burst.as_millis())
    };
    // A refusal with a full bucket was not caused by the burst.
    call(0, false);
    assert_eq!(call(0, true), Some(3_000));
    assert_eq!(call(14, false), Some(3_000));
    assert_eq!(call(15, false), Some(6_000));
    call(16, false);
    assert_eq!(call(16, true), Some(3_000), "it was a mistake");
    assert_eq!(call(45, false), Some(3_000));
    assert_eq!(call(46, false), Some(6_000), "so half an hour, this time");
    call(170, false);
    call(171, false);
    assert_eq!(call(171, true), Some(3_000));
    assert_eq!(call(186, false), Some(6_000), "it had held for long: as at first");
}

/// A client that makes a call every two seconds, and a simulated provider that counts actual usage.
/// From the `remaining` values of the nearly full budget, the client learns the rule `Actual`.
struct Learning {
    budgets: RateBudgets,
    left: u64,
    now: Instant,
}

impl Learning {
    const LIMIT: u64 = 1_000_000;

    fn new() -> Self {
        let config = RateConfig { tpm: Some(Self::LIMIT), ..RateConfig::default() };
        Self { budgets: RateBudgets::new(&config, epoch()), left: Self::LIMIT, now: epoch() }
    }

    /// Makes calls until the rule `Actual` is learned. Returns the number of calls before the one
    /// that taught it, or `None` if 3,000 calls do not suffice.
    fn learn(&mut self) -> Option<usize> {
        (0..3_000)
            .find(|n| {
                self.now += Duration::from_secs(2);
                let demand =
                    Demand { input: 1_000, output: 1_000, max_output: Some(30_000 + 100 * (*n % 7)), ..CALL };
                self.left = (self.left + Self::LIMIT / 30).min(Self::LIMIT) - demand.total();
                let charge = self.budgets.charge(self.now, &demand);
                self.budgets.on_response(self.now, &charge, self.now, &self.headers(None), false);
                self.rule() == Some(Counting::Actual)
            })
            .map(|n| n as usize)
    }

    fn headers(&self, requests: Option<u64>) -> RateHeaders {
        let window = |limit, remaining| RateWindow {
            limit: Some(limit),
            remaining: Some(remaining),
            reset: Some(Duration::from_secs(1)),
            period: None,
        };
        let requests = requests.map(|left| window(100, left)).unwrap_or_default();
        RateHeaders { tokens: window(Self::LIMIT, self.left), requests, ..RateHeaders::default() }
    }

    fn refuse(&mut self, requests: Option<u64>) {
        let charge = self.budgets.charge(self.now, &CALL);
        self.budgets.on_response(self.now, &charge, self.now, &self.headers(requests), true);
    }

    fn rule(&mut self) -> Option<Counting> {
        let views = self.budgets.view(self.now);
        views.into_iter().find(|view| view.kind == BudgetKind::Tokens).map(|view| view.counting)
    }
}

#[test]
fn learned_rule_is_dropped_after_unexplained_token_refusal() {
    let mut learning = Learning::new();
    let first = learning.learn().expect("it shows");
    learning.refuse(Some(0));
    assert_eq!(learning.rule(), Some(Counting::Actual), "there were no requests left");
    learning.refuse(None);
    assert_eq!(learning.rule(), Some(Counting::Sum), "nothing else explains it");
    let second = learning.learn().expect("it shows again");
    assert!(second > first, "{first} {second}");
    // More than an hour without refusals is followed by one that nothing explains.
    learning.now += Duration::from_secs(7_200);
    learning.learn();
    learning.refuse(None);
    let third = learning.learn().expect("and again");
    assert!(third <= second, "{second} {third}: it does not get harder each time");
}
