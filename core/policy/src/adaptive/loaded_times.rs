//! The quiet time of first tokens if calls always overlap, estimated from calls under load.
//!
//! The *load* of a call is the work of all calls that await their first token when it is sent, as a
//! multiple of its own work. The times of first tokens are taken to lie on a line over the load.
//! The quiet time is the value of this line at a load of 1, that is, for a call that is alone:
//!
//! - If the upstream reads one prompt after the other, the time is in proportion to the load.
//! - If it reads the prompts of all calls at the same time, the time does not depend on the load.
//!
//! While the loads are about equal, the line is not known, and the first of both is assumed. For
//! other upstreams, the estimate is then too low, and so is the capacity that follows from it. This
//! corrects itself: tenants are held for the capacity, so fewer calls await their first token, and
//! the loads are no longer equal.

/// Number of calls from which the quiet time is estimated.
const MIN_SAMPLES: u32 = 4;
/// Sum of the squared deviations of the load from which the line is known, as a multiple of the
/// squared mean load. The first five calls of a burst, or some calls after the load has halved,
/// suffice.
const MIN_SPREAD: f64 = 1.0;

/// Statistics of the times to first token of one class under load, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadedTimes {
    samples: u32,
    /// Mean load, at least 1.
    load: f64,
    /// Mean time.
    time: f64,
    /// Sum of the squared deviations of the load from its mean.
    spread: f64,
    /// Sum of the products of the deviations of load and time from their means.
    covariation: f64,
}

impl LoadedTimes {
    /// Records a first token that took `seconds` under `load`.
    pub(super) fn observe(&mut self, load: f64, seconds: f64) {
        self.samples = self.samples.saturating_add(1);
        let (weight, deviation) = (1.0 / f64::from(self.samples), load - self.load);
        self.load += weight * deviation;
        self.time += weight * (seconds - self.time);
        self.spread += deviation * (load - self.load);
        self.covariation += deviation * (seconds - self.time);
    }

    /// Returns the estimated quiet time in seconds, or `None` if there are too few samples.
    pub(super) fn quiet(&self) -> Option<f64> {
        if self.samples < MIN_SAMPLES {
            return None;
        }
        let proportional = self.time / self.load;
        let is_known = self.spread >= MIN_SPREAD * self.load.powi(2);
        let found = (self.covariation / self.spread).max(0.0).min(proportional);
        let slope = if is_known { found } else { proportional };
        Some((self.time - slope * (self.load - 1.0)).max(f64::MIN_POSITIVE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the estimate after calls with these loads, where `took` returns the time of a first
    /// token.
    fn quiet(loads: impl IntoIterator<Item = u32>, took: impl Fn(f64) -> f64) -> Option<f64> {
        let mut times = LoadedTimes::default();
        loads.into_iter().map(f64::from).for_each(|load| times.observe(load, took(load)));
        times.quiet()
    }

    #[test]
    fn quiet_time_is_that_of_a_call_alone() {
        type Upstream = (&'static str, fn(f64) -> f64);
        let upstreams: [Upstream; 3] = [
            ("serial", |load| 0.2 * load),
            ("parallel", |_| 0.2),
            ("with a fixed time", |load| 0.15 + 0.05 * load),
        ];
        for (name, took) in upstreams {
            for loads in [vec![1, 2, 3, 4, 5, 6, 7, 8], [8; 20].into_iter().chain([2; 4]).collect()] {
                let quiet = quiet(loads, took).unwrap();
                assert!((quiet - 0.2).abs() < 1e-9, "{name}: {quiet}");
            }
        }
    }

    #[test]
    fn equal_loads_are_taken_to_be_read_one_after_the_other() {
        assert_eq!(quiet([8; 3], |_| 1.6), None);
        let quiet = quiet([8; 100], |_| 1.6).unwrap();
        assert!((quiet - 0.2).abs() < 1e-9, "{quiet}");
    }

    #[test]
    fn quiet_time_is_positive() {
        let quiet = quiet((1..=20).chain([1; 50]), |load| if load > 1.0 { 9.0 } else { 0.0 }).unwrap();
        assert!(quiet > 0.0 && quiet < 1.0, "{quiet}");
    }
}
