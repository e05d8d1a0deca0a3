//! Figures of the calls at the upstream over time.

use std::time::{Duration, Instant};

use super::upstream::Call;

/// The number of calls in flight over time.
pub(super) struct Timeline {
    /// The number after each change.
    steps: Vec<(Instant, usize)>,
}

impl Timeline {
    /// Counts `calls`. Calls of closed connections end earlier by `noticed_after`.
    pub(super) fn new(calls: &[Call], noticed_after: Duration) -> Self {
        let mut changes = Vec::with_capacity(2 * calls.len());
        for call in calls {
            changes.push((call.began, 1_isize));
            if let Some(ended) = call.ended {
                let earlier = if call.aborted { noticed_after } else { Duration::ZERO };
                changes.push(((ended - earlier).max(call.began), -1));
            }
        }
        // At the same time, calls end before others begin.
        changes.sort_unstable();
        let mut in_flight = 0_usize;
        let step = |(at, change)| {
            in_flight = in_flight.saturating_add_signed(change);
            (at, in_flight)
        };
        Self { steps: changes.into_iter().map(step).collect() }
    }

    /// Returns the maximum from `from` to `until`.
    pub(super) fn peak(&self, from: Instant, until: Instant) -> usize {
        self.between(from, until).map(|(_, _, in_flight)| in_flight).max().unwrap_or(0)
    }

    /// Returns the mean from `from` to `until`, where more than `cap` count as `cap`.
    pub(super) fn mean(&self, from: Instant, until: Instant, cap: usize) -> f64 {
        let slot_time: f64 = self
            .between(from, until)
            .map(|(from, until, n)| n.min(cap) as f64 * (until - from).as_secs_f64())
            .sum();
        slot_time / (until - from).as_secs_f64()
    }

    /// Returns the periods from `from` to `until` with their numbers.
    fn between(&self, from: Instant, until: Instant) -> impl Iterator<Item = (Instant, Instant, usize)> + '_ {
        let first = self.steps.partition_point(|(at, _)| *at < from).saturating_sub(1);
        let steps = self.steps.get(first..).unwrap_or_default();
        let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([until]);
        let cut = move |at: Instant| at.clamp(from, until);
        steps
            .iter()
            .zip(ends)
            .map(move |(&(at, n), end)| (cut(at), cut(end), n))
            .filter(|(from, until, _)| from < until)
    }
}

/// Returns the total time from `from` to `until` in which slots were used by the calls of `member`,
/// in seconds.
pub(super) fn slot_time(calls: &[Call], member: usize, from: Instant, until: Instant) -> f64 {
    let used = |call: &Call| {
        let ended = call.ended.unwrap_or(until).clamp(from, until);
        (ended - call.began.clamp(from, until)).as_secs_f64()
    };
    calls.iter().filter(|call| call.member == member).map(used).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::hot_path::std_now;

    #[test]
    fn timeline_counts_calls_and_cuts_them_at_the_bounds() {
        let start = std_now();
        let at = |ms| start + Duration::from_millis(ms);
        let call = |began, ended, aborted| Call {
            member: 0,
            began: at(began),
            ended,
            aborted,
            output: 0,
            limited: false,
        };
        let calls = [call(0, Some(at(100)), false), call(50, Some(at(150)), true), call(140, None, false)];
        let timeline = Timeline::new(&calls, Duration::ZERO);
        assert_eq!(timeline.peak(at(0), at(200)), 2);
        assert!((timeline.mean(at(0), at(200), 2) - 260.0 / 200.0).abs() < 1e-9);
        assert!((timeline.mean(at(75), at(125), 1) - 1.0).abs() < 1e-9);
        assert!((slot_time(&calls, 0, at(100), at(200)) - 0.11).abs() < 1e-9);
        let earlier = Timeline::new(&calls, Duration::from_millis(20));
        assert_eq!(earlier.peak(at(130), at(145)), 1);
    }
}
