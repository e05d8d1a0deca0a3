//! The retry budget: how many retries the recent calls have earned.
//!
//! Why a budget and not only a bound per call: with four attempts a call, an upstream that fails under load is sent four times the load. A
//! share of the recent calls bounds that amplification whatever the load is (Finagle and Linkerd do the same: 20 % and a small reserve).
//!
//! Over the last ten seconds: `retries <= ratio * calls + reserve`. A retry is charged when it is scheduled and given back when it is
//! cancelled before it was made. Ratio and counts are kept exactly: rounding the ratio is how others let 60 % act as 100 %.

use std::time::{Duration, Instant};

const WINDOW: u64 = 10;

/// Calls made and retries charged in one second.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    second: u64,
    calls: u32,
    retries: u32,
}

/// One retry's charge. Say [`RetryBudget::refund`] where it was not made.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a charge that is neither used nor given back is lost for ten seconds"]
pub struct RetryToken {
    second: u64,
}

/// The budget of one target.
#[derive(Debug)]
pub struct RetryBudget {
    ratio: f64,
    reserve: u32,
    origin: Instant,
    bins: [Bin; WINDOW as usize],
}

impl RetryBudget {
    /// `ratio` retries a call, and `reserve` on top, over any ten seconds.
    pub fn new(ratio: f64, reserve: u32, now: Instant) -> Self {
        Self { ratio, reserve, origin: now, bins: Default::default() }
    }

    /// A call was made: it earns `ratio` of a retry.
    pub fn earn(&mut self, now: Instant) {
        let second = self.second(now);
        if let Some(bin) = self.bin(second) {
            bin.calls = bin.calls.saturating_add(1);
        }
    }

    /// Charges one retry, where the recent calls have earned it.
    pub fn withdraw(&mut self, now: Instant) -> Option<RetryToken> {
        if self.balance(now) < 1.0 {
            return None;
        }
        let second = self.second(now);
        self.bin(second)?.retries += 1;
        Some(RetryToken { second })
    }

    /// The retry was not made after all.
    pub fn refund(&mut self, token: RetryToken) {
        if let Some(bin) = self.bins.iter_mut().find(|bin| bin.second == token.second) {
            bin.retries = bin.retries.saturating_sub(1);
        }
    }

    /// How many retries may be scheduled now.
    pub fn balance(&self, now: Instant) -> f64 {
        let second = self.second(now);
        let recent = self.bins.iter().filter(|bin| bin.second + WINDOW > second);
        let (calls, retries) = recent.fold((0u64, 0u64), |(calls, retries), bin| {
            (calls + u64::from(bin.calls), retries + u64::from(bin.retries))
        });
        self.ratio * calls as f64 + f64::from(self.reserve) - retries as f64
    }

    /// Seconds since the budget began, counted from `WINDOW` so that empty bins lie outside the window.
    fn second(&self, now: Instant) -> u64 {
        WINDOW + now.saturating_duration_since(self.origin).as_secs()
    }

    fn bin(&mut self, second: u64) -> Option<&mut Bin> {
        let bin = self.bins.get_mut((second % WINDOW) as usize)?;
        if bin.second != second {
            *bin = Bin { second, ..Bin::default() };
        }
        Some(bin)
    }

    /// How long a retry stays charged.
    pub const WINDOW: Duration = Duration::from_secs(WINDOW);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;
    use proptest::prelude::*;

    #[test]
    fn reserve_allows_retries_without_calls() {
        let now = epoch();
        let mut budget = RetryBudget::new(0.2, 10, now);
        let granted = (0..100).filter(|_| budget.withdraw(now).is_some()).count();
        assert_eq!(granted, 10);
        assert!(budget.withdraw(now + RetryBudget::WINDOW).is_some(), "and fills again");
    }

    #[test]
    fn ratio_is_not_rounded() {
        for (ratio, want) in [(0.6, 600), (0.34, 340), (0.2, 200)] {
            let now = epoch();
            let mut budget = RetryBudget::new(ratio, 0, now);
            (0..1000).for_each(|_| budget.earn(now));
            let granted = (0..5000).filter(|_| budget.withdraw(now).is_some()).count();
            assert_eq!(granted, want);
        }
    }

    #[test]
    fn refunded_token_can_be_withdrawn_again() {
        let now = epoch();
        let mut budget = RetryBudget::new(0.0, 1, now);
        let token = budget.withdraw(now).expect("the reserve");
        assert_eq!(budget.withdraw(now), None);
        budget.refund(token);
        assert!(budget.withdraw(now).is_some());
    }

    proptest! {
        /// Over any window of ten seconds, and any history, retries stay within what was earned in it.
        #[test]
        fn retries_never_exceed_ratio_plus_reserve(events in prop::collection::vec((0u64..3_000, 0u8..3), 1..400), ratio in 0.0f64..2.0, reserve in 0u32..20) {
            let start = epoch();
            let mut budget = RetryBudget::new(ratio, reserve, start);
            let (mut at, mut calls, mut retries) = (0u64, Vec::new(), Vec::new());
            for (step, kind) in events {
                at += step;
                let now = start + Duration::from_millis(at);
                if kind == 0 {
                    budget.earn(now);
                    calls.push(at / 1000);
                } else if budget.withdraw(now).is_some() {
                    retries.push(at / 1000);
                    let since = (at / 1000 + 1).saturating_sub(WINDOW);
                    let made = retries.iter().filter(|s| **s >= since).count() as f64;
                    let earned = ratio * calls.iter().filter(|s| **s >= since).count() as f64 + f64::from(reserve);
                    prop_assert!(made <= earned + 1e-9, "{made} retries for {earned}");
                }
            }
        }
    }
}
