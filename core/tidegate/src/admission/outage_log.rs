//! Decides when the beginning and the end of an outage are logged.

use std::time::{Duration, Instant};

/// Minimum time between two outages of a target that are logged. A server that is overloaded may
/// reject calls and accept others many times per second.
const PAUSE: Duration = Duration::from_secs(60);

/// Which outage of a target was logged last.
#[derive(Debug, Default)]
pub(super) struct OutageLog {
    /// When the beginning of an outage was last logged, or `None` if it never was.
    last: Option<Instant>,
    /// Whether that outage has not ended.
    lasts: bool,
}

impl OutageLog {
    /// Returns `true` if the beginning of an outage is to be logged after a failure at `now`.
    /// `is_in_outage` is whether the target is in an outage.
    pub(super) fn begins(&mut self, now: Instant, is_in_outage: bool) -> bool {
        let is_due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        let begins = is_in_outage && !self.lasts && is_due;
        if begins {
            (self.last, self.lasts) = (Some(now), true);
        }
        begins
    }

    /// Returns `true` if the end of an outage is to be logged after a success. `is_in_outage` is
    /// whether the target is in an outage.
    pub(super) fn is_over(&mut self, is_in_outage: bool) -> bool {
        let is_over = self.lasts && !is_in_outage;
        self.lasts &= is_in_outage;
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn outages_that_alternate_with_successes_are_logged_once_a_minute() {
        let (mut log, start) = (OutageLog::default(), now());
        let mut lines = Vec::new();
        for second in 0..150 {
            let at = start + Duration::from_secs(second);
            if log.begins(at, true) {
                lines.push((second, "begins"));
            }
            assert!(!log.begins(at, true), "one line for each outage");
            if second % 2 == 1 && log.is_over(false) {
                lines.push((second, "over"));
            }
        }
        let expected =
            [(0, "begins"), (1, "over"), (60, "begins"), (61, "over"), (120, "begins"), (121, "over")];
        assert_eq!(lines, expected);
    }

    #[test]
    fn failures_outside_an_outage_are_not_logged() {
        let mut log = OutageLog::default();
        assert!(!log.begins(now(), false) && !log.is_over(false));
    }
}
