//! Retry budget: limits the number of retries sent to a target to a share of the recent calls.
//!
//! # Algorithm
//!
//! Over the last ten seconds, `retries <= ratio * calls + reserve`. A retry is withdrawn when it is
//! scheduled, and refunded if it is cancelled before it is sent. Ratio and counts are exact:
//! rounding the ratio would let a setting of 60 % act as 100 %.
//!
//! Processes that share the target divide the reserve equally. Each has at least one retry of it,
//! if there is one, so that a call of a process with few calls can be repeated. Together they have
//! at most the reserve, or one retry for each process if that is more.
//!
//! # Rationale
//!
//! A limit per call is not enough. With four attempts per call, an upstream that fails under load
//! receives four times the load. A share of recent calls bounds that amplification at any load.
//! Finagle and Linkerd use the same scheme, with a ratio of 20 % and a small reserve.

use std::time::Instant;

/// Period of the budget, in seconds.
const WINDOW: u64 = 10;

/// The calls made and the retries charged within one second.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    second: u64,
    calls: u32,
    retries: u32,
}

/// The charge of one retry. Pass it to [`RetryBudget::refund`] if the retry is not sent.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a charge that is neither used nor given back is lost for ten seconds"]
pub struct RetryToken {
    second: u64,
}

/// The retry budget of one target.
///
/// # Examples
///
/// ```
/// use std::time::Instant;
/// use tidegate_policy::budget::RetryBudget;
///
/// let now = Instant::now();
/// let mut budget = RetryBudget::new(0.2, 1, now);
/// (0..5).for_each(|_| budget.deposit(now));
/// let first = budget.withdraw(now);
/// let second = budget.withdraw(now);
/// assert!(first.is_some() && second.is_some(), "one from the reserve, one earned by five calls");
/// assert!(budget.withdraw(now).is_none());
/// ```
#[derive(Debug)]
pub struct RetryBudget {
    ratio: f64,
    reserve: u32,
    /// The number of processes that divide the reserve, at least 1.
    processes: u32,
    origin: Instant,
    bins: [Bin; WINDOW as usize],
}

impl RetryBudget {
    /// Creates a budget that allows, within any ten seconds, `ratio` retries per call plus
    /// `reserve` retries.
    pub fn new(ratio: f64, reserve: u32, now: Instant) -> Self {
        Self { ratio, reserve, processes: 1, origin: now, bins: Default::default() }
    }

    /// Sets the number of processes that share the target, and so divide the reserve. 0 counts as
    /// 1.
    pub fn divide(&mut self, processes: usize) {
        self.processes = u32::try_from(processes).unwrap_or(u32::MAX).max(1);
    }

    /// Records a call, which allows `ratio` more retries within the next ten seconds.
    pub fn deposit(&mut self, now: Instant) {
        let bin = self.bin_mut(self.second(now));
        bin.calls = bin.calls.saturating_add(1);
    }

    /// Charges one retry. Returns `None`, and charges nothing, if the budget is used up.
    pub fn withdraw(&mut self, now: Instant) -> Option<RetryToken> {
        if self.balance(now) < 1.0 {
            return None;
        }
        let second = self.second(now);
        self.bin_mut(second).retries += 1;
        Some(RetryToken { second })
    }

    /// Takes back the charge of a retry that was not sent. Does nothing if the charge is older than
    /// ten seconds.
    pub fn refund(&mut self, token: RetryToken) {
        if let Some(bin) = self.bins.iter_mut().find(|bin| bin.second == token.second) {
            bin.retries = bin.retries.saturating_sub(1);
        }
    }

    /// Returns the number of retries that are allowed now, including a fraction. May be negative.
    pub fn balance(&self, now: Instant) -> f64 {
        let second = self.second(now);
        let recent = self.bins.iter().filter(|bin| bin.second + WINDOW > second);
        let (calls, retries) = recent.fold((0u64, 0u64), |(calls, retries), bin| {
            (calls + u64::from(bin.calls), retries + u64::from(bin.retries))
        });
        let reserve = f64::from(self.reserve);
        let part = (reserve / f64::from(self.processes)).max(reserve.min(1.0));
        self.ratio * calls as f64 + part - retries as f64
    }

    /// Returns the seconds since the budget was created, plus [`WINDOW`] so that unused bins count
    /// as expired.
    fn second(&self, now: Instant) -> u64 {
        WINDOW + now.saturating_duration_since(self.origin).as_secs()
    }

    /// Returns the bin that counts the calls and retries of `second`. If the array entry still
    /// counts an older second, its counts are set to zero first.
    fn bin_mut(&mut self, second: u64) -> &mut Bin {
        let bin = &mut self.bins[(second % WINDOW) as usize];
        if bin.second != second {
            *bin = Bin { second, ..Bin::default() };
        }
        bin
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::epoch;
    use proptest::prelude::*;

    #[test]
    fn reserve_allows_retries_without_calls() {
        let now = epoch();
        let mut budget = RetryBudget::new(0.2, 10, now);
        let granted = (0..100).filter(|_| budget.withdraw(now).is_some()).count();
        assert_eq!(granted, 10);
        assert!(budget.withdraw(now + Duration::from_secs(WINDOW)).is_some(), "and fills again");
    }

    #[test]
    fn processes_divide_reserve_and_each_has_one_retry() {
        let now = epoch();
        for (reserve, processes, want) in [(10, 1, 10), (10, 3, 3), (10, 64, 1), (0, 64, 0), (10, 0, 10)] {
            let mut budget = RetryBudget::new(0.0, reserve, now);
            budget.divide(processes);
            let granted = (0..100).filter(|_| budget.withdraw(now).is_some()).count();
            assert_eq!(granted, want, "{reserve} of {processes} processes");
        }
        let mut budget = RetryBudget::new(0.5, 10, now);
        (0..10).for_each(|_| budget.deposit(now));
        budget.divide(5);
        assert!((budget.balance(now) - 7.0).abs() < 1e-9, "what own calls allow is not divided");
    }

    #[test]
    fn ratio_is_not_rounded() {
        for (ratio, want) in [(0.6, 600), (0.34, 340), (0.2, 200)] {
            let now = epoch();
            let mut budget = RetryBudget::new(ratio, 0, now);
            (0..1000).for_each(|_| budget.deposit(now));
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
        /// Within any ten seconds, the number of retries does not exceed `ratio * calls + reserve`.
        #[test]
        fn retries_never_exceed_ratio_plus_reserve(events in prop::collection::vec((0u64..3_000, 0u8..3), 1..400), ratio in 0.0f64..2.0, reserve in 0u32..20) {
            let start = epoch();
            let mut budget = RetryBudget::new(ratio, reserve, start);
            let (mut at, mut calls, mut retries) = (0u64, Vec::new(), Vec::new());
            for (step, kind) in events {
                at += step;
                let now = start + Duration::from_millis(at);
                if kind == 0 {
                    budget.deposit(now);
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
