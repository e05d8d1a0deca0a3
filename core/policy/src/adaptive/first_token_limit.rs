//! First-token limit: bounds the calls that await their first token.
//!
//! A call is *in time* if it is not late (see [`super::latency_class`]).
//!
//! # Rationale
//!
//! A stream keeps its slot until it ends, so a lower number of slots takes the lifetime of a stream
//! to have an effect. The first-token limit takes effect immediately, because the calls that await
//! their first token are the upstream's own queue. By Little's law, their number is the rate of
//! first tokens times the time that each call waits, so bounding the number bounds the time.

/// Factor by which a cut lowers a learned limit, unless the number of calls that can get their
/// first token in time is lower still.
const MAX_CUT_FACTOR: f64 = 0.7;

/// The maximum number of calls that may await their first token.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirstTokenLimit {
    /// A configured number of calls. `usize::MAX` means that only the slots bound the calls.
    Fixed(usize),
    /// A number of calls that is learned from their latencies. `value` is the limit including a
    /// fraction, at least 1. In slow start, each call that is not late raises the limit by one.
    /// After the first cut, `n` such calls raise a limit of `n` by one.
    Adaptive { value: f64, slow_start: bool },
}

impl FirstTokenLimit {
    /// Creates a learned limit in slow start, which begins at `start` calls, or at 1 if that is 0.
    pub(super) fn adaptive(start: usize) -> Self {
        FirstTokenLimit::Adaptive { value: start.max(1) as f64, slow_start: true }
    }

    /// Returns the maximum number of calls that may await their first token.
    pub(super) fn limit(&self) -> usize {
        match *self {
            FirstTokenLimit::Fixed(limit) => limit,
            FirstTokenLimit::Adaptive { value, .. } => value as usize,
        }
    }

    /// Sets a learned limit to `calls`.
    pub(super) fn set(&mut self, calls: usize) {
        if let FirstTokenLimit::Adaptive { value, slow_start } = self
            && *value as usize != calls
        {
            *value = calls.max(1) as f64;
            *slow_start = false;
        }
    }

    /// Raises a learned limit, but not above `ceiling`: by one call in slow start, otherwise by one
    /// call divided by the limit. Call this for each call that was not late if the limit was
    /// reached while that call was in flight.
    pub(super) fn on_in_time(&mut self, ceiling: usize) {
        if let FirstTokenLimit::Adaptive { value, slow_start } = self {
            *value = (*value + if *slow_start { 1.0 } else { 1.0 / *value }).min(ceiling as f64);
        }
    }

    /// Puts a learned limit back into slow start. Call this if the last cut was wrongly attributed
    /// to congestion. Does nothing for a configured limit.
    pub(super) fn restart_slow_start(&mut self) {
        if let FirstTokenLimit::Adaptive { slow_start, .. } = self {
            *slow_start = true;
        }
    }

    /// Lowers a learned limit after late calls. `sustainable` is the number of calls that can await
    /// their first token and get it in time.
    ///
    /// Returns `true` if the slots must be cut as well: the limit is not learned, it was already at
    /// its minimum, or even one awaiting call is too many (`sustainable` is below 1).
    pub(super) fn on_late(&mut self, sustainable: f64) -> bool {
        let FirstTokenLimit::Adaptive { value, slow_start } = self else { return true };
        let is_at_minimum = *value < 2.0;
        *value = sustainable.min(MAX_CUT_FACTOR * *value).max(1.0);
        *slow_start = false;
        is_at_minimum || sustainable < 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_token_limit_doubles_until_first_cut() {
        let mut bound = FirstTokenLimit::adaptive(8);
        (0..8).for_each(|_| bound.on_in_time(256));
        assert_eq!(bound.limit(), 16);
        assert!(!bound.on_late(20.0));
        assert_eq!(bound.limit(), 11, "a cut lowers the limit by at least 30 %");
        (0..11).for_each(|_| bound.on_in_time(256));
        assert_eq!(bound.limit(), 12);
        assert!(!bound.on_late(3.0), "the sustainable number is smaller");
        assert_eq!(bound.limit(), 3);
    }

    #[test]
    fn on_late_reports_when_lowering_cannot_help() {
        let mut bound = FirstTokenLimit::adaptive(8);
        assert!(bound.on_late(0.3), "even one awaiting call is too many");
        assert_eq!(bound.limit(), 1);
        assert!(bound.on_late(5.0), "the limit is at its minimum");
        assert!(FirstTokenLimit::Fixed(4).on_late(5.0));
    }
}
