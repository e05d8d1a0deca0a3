//! First-token limit: bounds the calls that await their first token.
//!
//! # Rationale
//!
//! A stream keeps its slot until it ends, so fewer slots take the lifetime of a stream to act.
//! Calls that await their first token are the upstream's own queue. By Little's law their number is
//! the rate of first tokens times the time that each call waits, so bounding the number bounds the
//! time.

/// A cut leaves at most this factor of the limit.
const MAX_CUT_FACTOR: f64 = 0.7;

/// The first-token limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirstTokenLimit {
    /// No limit besides the slots.
    Off,
    /// A configured number.
    Fixed(usize),
    /// A learned number.
    Adaptive {
        /// The limit, at least 1.
        value: f64,
        /// Whether each call in time raises the limit by one. After the first cut, a round of calls
        /// does.
        slow_start: bool,
    },
}

impl FirstTokenLimit {
    /// Creates a learned limit with this start value.
    pub(super) fn adaptive(start: usize) -> Self {
        FirstTokenLimit::Adaptive { value: start.max(1) as f64, slow_start: true }
    }

    /// Returns the maximum number of calls that may await their first token.
    pub(super) fn limit(&self) -> usize {
        match *self {
            FirstTokenLimit::Off => usize::MAX,
            FirstTokenLimit::Fixed(most) => most,
            FirstTokenLimit::Adaptive { value, .. } => value as usize,
        }
    }

    /// Raises a learned limit after a call in time, if the limit was reached while the call was in
    /// flight. `ceiling` is the maximum number of calls in flight.
    pub(super) fn on_in_time(&mut self, ceiling: usize) {
        if let FirstTokenLimit::Adaptive { value, slow_start } = self {
            *value = (*value + if *slow_start { 1.0 } else { 1.0 / *value }).min(ceiling as f64);
        }
    }

    /// Restarts slow start, because the last cut was not caused by congestion.
    pub(super) fn restart_slow_start(&mut self) {
        if let FirstTokenLimit::Adaptive { slow_start, .. } = self {
            *slow_start = true;
        }
    }

    /// Lowers a learned limit after late calls. `sustainable` is the number of calls that can await
    /// their first token and get it in time.
    ///
    /// Returns `true` if the limit alone cannot help: it is not learned, it is already at its
    /// minimum, or even one awaiting call is too many.
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
        assert_eq!(bound.limit(), 11, "no cut is none");
        (0..11).for_each(|_| bound.on_in_time(256));
        assert_eq!(bound.limit(), 12);
        assert!(!bound.on_late(3.0), "down to what can be in time");
        assert_eq!(bound.limit(), 3);
    }

    #[test]
    fn on_late_reports_when_lowering_cannot_help() {
        let mut bound = FirstTokenLimit::adaptive(8);
        assert!(bound.on_late(0.3), "even one that waits is too many");
        assert_eq!(bound.limit(), 1);
        assert!(bound.on_late(5.0), "it is at its least");
        assert!(FirstTokenLimit::Fixed(4).on_late(5.0));
        assert!(FirstTokenLimit::Off.on_late(5.0));
    }
}
