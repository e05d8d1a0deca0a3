//! What the load itself makes of a server: limits that it has to earn, penalties, changes in mid-run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config_error::{ConfigError, require};

/// [`concurrency_limit`](super::Faults::concurrency_limit) is lower at first, as where machines are added once there is load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitRamp {
    /// The limit at the start; it rises linearly.
    pub from: usize,
    /// Until all of the limit is there.
    pub over_s: f64,
}

/// 429 for load that rises too quickly: calls in flight are taken up to a level which follows them, `at_once` above, by `per_s` a second upwards, and a tenth of
/// that downwards.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadGrowth {
    /// So many more than there were are taken at once; above 0.
    pub at_once: usize,
    /// So many more are taken each second; above 0.
    pub per_s: f64,
}

/// A server that once overloaded stays worse for a while.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overload {
    /// It is overloaded by each call that finds this many in flight, taken or refused.
    pub above: usize,
    /// It stays worse for so long after the last of them.
    pub for_s: f64,
    /// Steps take so many times as long meanwhile; 1 to 1,000. Default 1.
    #[serde(default = "one")]
    pub factor: f64,
    /// The most in flight meanwhile. Default: as without.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// A server that changes once, for good: after `after_s` or `after_calls`, whichever is first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    /// So late.
    #[serde(default)]
    pub after_s: Option<f64>,
    /// After so many calls were taken.
    #[serde(default)]
    pub after_calls: Option<u64>,
    /// Steps take so many times as long from then on; .001 to 1,000. Default 1.
    #[serde(default = "one")]
    pub factor: f64,
    /// The most in flight from then on. Default: as before.
    #[serde(default)]
    pub limit: Option<usize>,
}

fn one() -> f64 {
    1.0
}

/// Those of one [`Faults`](super::Faults).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) limit: Option<usize>,
    pub(super) ramp: Option<LimitRamp>,
    pub(super) growth: Option<LoadGrowth>,
    pub(super) overload: Option<Overload>,
    pub(super) drift: Option<Drift>,
}

impl Load {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let time = |s: f64| (0.0..=1e9).contains(&s);
        if let Some(ramp) = self.ramp {
            let limited = self.limit.is_some_and(|limit| ramp.from <= limit);
            require("faults.limit_ramp.from", "must be at most `concurrency_limit`", limited)?;
            require("faults.limit_ramp.over_s", "must be 0 to 1e9", time(ramp.over_s))?;
        }
        if let Some(growth) = self.growth {
            require("faults.load_growth.at_once", "must be above 0", growth.at_once > 0)?;
            let per_s = growth.per_s > 0.0 && growth.per_s <= 1e9;
            require("faults.load_growth.per_s", "must be above 0, at most 1e9", per_s)?;
        }
        if let Some(overload) = self.overload {
            require("faults.overload.for_s", "must be 0 to 1e9", time(overload.for_s))?;
            let factor = (1.0..=1000.0).contains(&overload.factor);
            require("faults.overload.factor", "must be 1 to 1000", factor)?;
        }
        if let Some(drift) = self.drift {
            let told = drift.after_s.is_some() || drift.after_calls.is_some();
            require("faults.drift", "needs `after_s` or `after_calls`", told)?;
            require("faults.drift.after_s", "must be 0 to 1e9", drift.after_s.is_none_or(time))?;
            let factor = (0.001..=1000.0).contains(&drift.factor);
            require("faults.drift.factor", "must be 0.001 to 1000", factor)?;
        }
        Ok(())
    }
}

/// What a server made of its load so far. Times count from when the faults were set.
#[derive(Debug)]
pub(super) struct LoadState {
    load: Load,
    /// What [`LoadGrowth`] takes, when it was that, and how many there were then.
    level: f64,
    at: Duration,
    last_in_flight: usize,
    overloaded_until: Option<Duration>,
    taken: u64,
}

impl LoadState {
    pub(super) fn new(load: Load) -> Self {
        let level = load.growth.map_or(0.0, |growth| growth.at_once as f64);
        Self { load, level, at: Duration::ZERO, last_in_flight: 0, overloaded_until: None, taken: 0 }
    }

    /// A call arrives and finds so many in flight: the limit that refuses it, if one does.
    pub(super) fn arrive(&mut self, now: Duration, in_flight: usize) -> Result<(), usize> {
        if let Some(overload) = self.load.overload.filter(|overload| in_flight >= overload.above) {
            self.overloaded_until = Some(now.saturating_add(seconds(overload.for_s)));
        }
        let limit = self.limit(now);
        let grown = self.grow(now, in_flight);
        match [limit, grown].into_iter().flatten().min() {
            Some(limit) if in_flight >= limit => Err(limit),
            _ => Ok(()),
        }
    }

    /// It was taken.
    pub(super) fn take(&mut self) {
        self.taken += 1;
    }

    /// What a step begun now is slowed by.
    pub(super) fn slowdown(&self, now: Duration) -> f64 {
        let overloaded = self.overload(now).map_or(1.0, |overload| overload.factor);
        overloaded * self.drift(now).map_or(1.0, |drift| drift.factor)
    }

    fn limit(&self, now: Duration) -> Option<usize> {
        let ramped = self.load.limit.map(|limit| {
            let Some(ramp) = self.load.ramp else { return limit };
            let share = (now.as_secs_f64() / ramp.over_s.max(1e-9)).min(1.0);
            ramp.from + ((limit - ramp.from.min(limit)) as f64 * share) as usize
        });
        let limit = self.drift(now).and_then(|drift| drift.limit).or(ramped);
        [limit, self.overload(now).and_then(|overload| overload.limit)].into_iter().flatten().min()
    }

    /// The level moves towards a little more than there are.
    fn grow(&mut self, now: Duration, in_flight: usize) -> Option<usize> {
        let growth = self.load.growth?;
        let most = growth.per_s * now.saturating_sub(self.at).as_secs_f64();
        let aim = |last_in_flight: usize| (last_in_flight + growth.at_once) as f64 - self.level;
        // Since the last one came, as many were there as it made; how many left meanwhile shows now.
        self.level += match (aim(self.last_in_flight), aim(in_flight)) {
            (rise, _) if rise > 0.0 => rise.min(most),
            (_, fall) => fall.min(0.0).max(-0.1 * most),
        };
        self.at = self.at.max(now);
        let level = self.level as usize;
        self.last_in_flight = (in_flight + 1).min(level);
        Some(level)
    }

    fn overload(&self, now: Duration) -> Option<Overload> {
        self.load.overload.filter(|_| self.overloaded_until.is_some_and(|until| now < until))
    }

    fn drift(&self, now: Duration) -> Option<Drift> {
        self.load.drift.filter(|drift| {
            drift.after_s.is_some_and(|after| now.as_secs_f64() >= after)
                || drift.after_calls.is_some_and(|after| self.taken >= after)
        })
    }
}

fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn limit_ramp_rises_linearly() {
        let ramp = Some(LimitRamp { from: 4, over_s: 10.0 });
        let mut state = LoadState::new(Load { limit: Some(24), ramp, ..Load::default() });
        assert_eq!([0, 5, 10, 99].map(|s| state.arrive(at(s), 100)), [Err(4), Err(14), Err(24), Err(24)]);
        assert_eq!(state.arrive(at(5), 13), Ok(()));
    }

    #[test]
    fn load_growth_limits_how_fast_load_rises() {
        let growth = Some(LoadGrowth { at_once: 4, per_s: 2.0 });
        let mut state = LoadState::new(Load { growth, ..Load::default() });
        // Ten at once: four are taken, and two more after a second.
        assert_eq!((0..10).filter(|n| state.arrive(at(0), *n.min(&4)).is_ok()).count(), 4);
        assert_eq!((state.arrive(at(1), 5), state.arrive(at(1), 6)), (Ok(()), Err(6)));
        // Ten are there again and again, though all of them leave at once each time.
        for second in 2..20 {
            for in_flight in 0..10 {
                let _ = state.arrive(at(second), in_flight);
            }
        }
        // 10, and 4 at once.
        assert_eq!((state.arrive(at(19), 13), state.arrive(at(19), 14)), (Ok(()), Err(14)));
        let _ = state.arrive(at(19), 0);
        // Their places are kept for a while.
        assert_eq!((state.arrive(at(24), 0), state.arrive(at(24), 12)), (Ok(()), Ok(())));
        let _ = state.arrive(at(24), 0);
        assert_eq!((state.arrive(at(99), 0), state.arrive(at(99), 4)), (Ok(()), Err(4)));
    }

    #[test]
    fn overload_lasts_for_its_duration() {
        let overload = Some(Overload { above: 20, for_s: 30.0, factor: 3.0, limit: Some(8) });
        let mut state = LoadState::new(Load { limit: Some(16), overload, ..Load::default() });
        assert_eq!((state.arrive(at(0), 15), state.arrive(at(0), 16)), (Ok(()), Err(16)));
        assert_eq!((state.slowdown(at(1)), state.arrive(at(1), 20)), (1.0, Err(8)));
        assert_eq!((state.slowdown(at(30)), state.slowdown(at(31))), (3.0, 1.0));
        assert_eq!((state.arrive(at(30), 8), state.arrive(at(31), 15)), (Err(8), Ok(())));
    }

    #[test]
    fn drift_starts_after_a_time_or_a_number_of_calls() {
        let drift = Drift { after_s: Some(60.0), after_calls: Some(3), factor: 0.5, limit: Some(5) };
        let state = || LoadState::new(Load { limit: Some(9), drift: Some(drift), ..Load::default() });
        let mut by_time = state();
        assert_eq!((by_time.arrive(at(59), 8), by_time.arrive(at(60), 8)), (Ok(()), Err(5)));
        let mut by_calls = state();
        for _ in 0..3 {
            assert_eq!(by_calls.slowdown(at(1)), 1.0);
            by_calls.take();
        }
        assert_eq!((by_calls.slowdown(at(1)), by_calls.arrive(at(1), 5)), (0.5, Err(5)));
    }
}
