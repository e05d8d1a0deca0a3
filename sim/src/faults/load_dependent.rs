//! Faults that depend on the number of calls in flight, and a permanent change of the server during
//! a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config_error::{ConfigError, require};

/// A linear rise of a [`concurrency_limit`](super::Faults::concurrency_limit) at the start, as if
/// machines were added under load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitRamp {
    /// Limit at the start; at most `concurrency_limit`, which must be set.
    pub from: usize,
    /// Time until the limit is `concurrency_limit`, in simulated seconds from 0 to 1e9.
    pub over_s: f64,
}

/// Rejects calls with a 429 if the load rises too quickly.
///
/// The fault limits the number of calls in flight by a value that follows the load, the *level*. A
/// call is accepted if fewer calls than the level are in flight. The level starts at `at_once` and
/// moves towards the number of calls in flight plus `at_once`: upwards by at most `per_s` per
/// simulated second, downwards by at most a tenth of that.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadGrowth {
    /// Number of calls above a steady load that are accepted without a delay; above 0.
    pub at_once: usize,
    /// Maximum rise of the limit (the level), in calls per simulated second; above 0, at most 1e9.
    pub per_s: f64,
}

/// A penalty for some time after an overload: longer steps, a lower limit on calls in flight, or
/// both.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overload {
    /// Number of calls in flight. An overload occurs when a call arrives while at least this number
    /// of others are in flight, even if the call is rejected.
    pub above: usize,
    /// Duration of the penalty after the latest overload, in simulated seconds from 0 to 1e9.
    pub for_s: f64,
    /// Factor on the time of steps during the penalty, from 1 to 1,000. Default 1.
    #[serde(default = "one")]
    pub factor: f64,
    /// Maximum number of calls in flight during the penalty, if no lower limit is in force. `None`,
    /// the default: no additional limit.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// A single permanent change of the server, at `after_s` or after `after_calls`, whichever comes
/// first. At least one of the two must be set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    /// Time of the change, in simulated seconds since the faults were set, from 0 to 1e9. `None`,
    /// the default: the change depends on `after_calls` only.
    #[serde(default)]
    pub after_s: Option<f64>,
    /// Number of accepted calls after which the change occurs. `None`, the default: the change
    /// depends on `after_s` only.
    #[serde(default)]
    pub after_calls: Option<u64>,
    /// Factor on the time of steps after the change, from 0.001 to 1,000. Default 1.
    #[serde(default = "one")]
    pub factor: f64,
    /// Maximum number of calls in flight after the change, instead of
    /// [`concurrency_limit`](super::Faults::concurrency_limit). `None`, the default: that limit
    /// stays.
    #[serde(default)]
    pub limit: Option<usize>,
}

fn one() -> f64 {
    1.0
}

/// The settings of the load-dependent faults in one [`Faults`](super::Faults).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoadFaults {
    pub(super) limit: Option<usize>,
    pub(super) ramp: Option<LimitRamp>,
    pub(super) growth: Option<LoadGrowth>,
    pub(super) overload: Option<Overload>,
    pub(super) drift: Option<Drift>,
}

impl LoadFaults {
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
            let has_trigger = drift.after_s.is_some() || drift.after_calls.is_some();
            require("faults.drift", "needs `after_s` or `after_calls`", has_trigger)?;
            require("faults.drift.after_s", "must be 0 to 1e9", drift.after_s.is_none_or(time))?;
            let factor = (0.001..=1000.0).contains(&drift.factor);
            require("faults.drift.factor", "must be 0.001 to 1000", factor)?;
        }
        Ok(())
    }
}

/// State of the load-dependent faults. Times are simulated and count from when the faults were set.
#[derive(Debug)]
pub(super) struct LoadState {
    load: LoadFaults,
    /// The level of [`LoadGrowth`]: its current limit on calls in flight. 0 if this fault is off.
    level: f64,
    /// Simulated time of the last update of `level`, since the faults were set.
    at: Duration,
    /// Number of calls in flight just after the last arrival, at most the level.
    last_in_flight: usize,
    /// End of the penalty of [`Overload`]. `None` if no overload has occurred.
    overloaded_until: Option<Duration>,
    accepted_calls: u64,
}

impl LoadState {
    pub(super) fn new(load: LoadFaults) -> Self {
        let level = load.growth.map_or(0.0, |growth| growth.at_once as f64);
        Self { load, level, at: Duration::ZERO, last_in_flight: 0, overloaded_until: None, accepted_calls: 0 }
    }

    /// Decides whether a call that arrives while `in_flight` others are in flight is rejected.
    ///
    /// # Errors
    ///
    /// Returns the exceeded limit on the number of calls in flight if the call is rejected.
    pub(super) fn on_arrival(&mut self, now: Duration, in_flight: usize) -> Result<(), usize> {
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

    /// Adds one to the number of accepted calls, after which [`Drift::after_calls`] takes effect.
    pub(super) fn on_accepted(&mut self) {
        self.accepted_calls += 1;
    }

    /// Returns the factor by which the time of a step is multiplied if it begins at `now`.
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

    /// Updates the level of [`LoadGrowth`] when a call arrives while `in_flight` others are in
    /// flight. Returns the level, rounded down, or `None` if this fault is off.
    fn grow(&mut self, now: Duration, in_flight: usize) -> Option<usize> {
        let growth = self.load.growth?;
        let max_change = growth.per_s * now.saturating_sub(self.at).as_secs_f64();
        let aim = |last_in_flight: usize| (last_in_flight + growth.at_once) as f64 - self.level;
        // Since the last arrival, as many calls were in flight as that arrival left; how many have
        // ended since shows in `in_flight`.
        self.level += match (aim(self.last_in_flight), aim(in_flight)) {
            (rise, _) if rise > 0.0 => rise.min(max_change),
            (_, fall) => fall.min(0.0).max(-0.1 * max_change),
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
                || drift.after_calls.is_some_and(|after| self.accepted_calls >= after)
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
        let mut state = LoadState::new(LoadFaults { limit: Some(24), ramp, ..LoadFaults::default() });
        assert_eq!([0, 5, 10, 99].map(|s| state.on_arrival(at(s), 100)), [Err(4), Err(14), Err(24), Err(24)]);
        assert_eq!(state.on_arrival(at(5), 13), Ok(()));
    }

    #[test]
    fn load_growth_limits_how_fast_load_rises() {
        let growth = Some(LoadGrowth { at_once: 4, per_s: 2.0 });
        let mut state = LoadState::new(LoadFaults { growth, ..LoadFaults::default() });
        // Ten calls at once: four are accepted, and two more after a second.
        assert_eq!((0..10).filter(|n| state.on_arrival(at(0), *n.min(&4)).is_ok()).count(), 4);
        assert_eq!((state.on_arrival(at(1), 5), state.on_arrival(at(1), 6)), (Ok(()), Err(6)));
        // Ten calls are in flight again and again, although all of them end at once each time.
        for second in 2..20 {
            for in_flight in 0..10 {
                let _ = state.on_arrival(at(second), in_flight);
            }
        }
        // The level is 10 calls and 4 at once.
        assert_eq!((state.on_arrival(at(19), 13), state.on_arrival(at(19), 14)), (Ok(()), Err(14)));
        let _ = state.on_arrival(at(19), 0);
        // The level falls slowly.
        assert_eq!((state.on_arrival(at(24), 0), state.on_arrival(at(24), 12)), (Ok(()), Ok(())));
        let _ = state.on_arrival(at(24), 0);
        assert_eq!((state.on_arrival(at(99), 0), state.on_arrival(at(99), 4)), (Ok(()), Err(4)));
    }

    #[test]
    fn overload_lasts_for_its_duration() {
        let overload = Some(Overload { above: 20, for_s: 30.0, factor: 3.0, limit: Some(8) });
        let mut state = LoadState::new(LoadFaults { limit: Some(16), overload, ..LoadFaults::default() });
        assert_eq!((state.on_arrival(at(0), 15), state.on_arrival(at(0), 16)), (Ok(()), Err(16)));
        assert_eq!((state.slowdown(at(1)), state.on_arrival(at(1), 20)), (1.0, Err(8)));
        assert_eq!((state.slowdown(at(30)), state.slowdown(at(31))), (3.0, 1.0));
        assert_eq!((state.on_arrival(at(30), 8), state.on_arrival(at(31), 15)), (Err(8), Ok(())));
    }

    #[test]
    fn drift_starts_after_a_time_or_a_number_of_calls() {
        let drift = Drift { after_s: Some(60.0), after_calls: Some(3), factor: 0.5, limit: Some(5) };
        let state =
            || LoadState::new(LoadFaults { limit: Some(9), drift: Some(drift), ..LoadFaults::default() });
        let mut by_time = state();
        assert_eq!((by_time.on_arrival(at(59), 8), by_time.on_arrival(at(60), 8)), (Ok(()), Err(5)));
        let mut by_calls = state();
        for _ in 0..3 {
            assert_eq!(by_calls.slowdown(at(1)), 1.0);
            by_calls.on_accepted();
        }
        assert_eq!((by_calls.slowdown(at(1)), by_calls.on_arrival(at(1), 5)), (0.5, Err(5)));
    }
}
