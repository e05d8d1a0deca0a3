//! The bound on calls that await their first token.
//!
//! Why beside the slots: a stream keeps its slot until it ends, so a lower number of slots takes a stream's lifetime to act, while calls that await
//! their first token are the queue before the upstream itself. By Little's law they are as many as first tokens come a second, times the seconds that
//! each takes: bounding their number bounds the time.

/// A cut leaves this at the most.
const MAX_CUT_FACTOR: f64 = 0.7;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirstTokenLimit {
    /// As many as there are slots.
    Off,
    /// A number that was set.
    Fixed(usize),
    /// It is found.
    Adaptive {
        /// Not below 1.
        value: f64,
        /// Until the first cut each call in time raises it by one; then a round of them does.
        slow_start: bool,
    },
}

impl FirstTokenLimit {
    /// One that is found, from that start.
    pub(super) fn adaptive(start: usize) -> Self {
        FirstTokenLimit::Adaptive { value: start.max(1) as f64, slow_start: true }
    }

    /// The most calls that may await their first token.
    pub(super) fn limit(&self) -> usize {
        match *self {
            FirstTokenLimit::Off => usize::MAX,
            FirstTokenLimit::Fixed(most) => most,
            FirstTokenLimit::Adaptive { value, .. } => value as usize,
        }
    }

    /// A call was in time, and the bound held others back while it was on its way. `ceiling`: more are never in flight.
    pub(super) fn on_in_time(&mut self, ceiling: usize) {
        if let FirstTokenLimit::Adaptive { value, slow_start } = self {
            *value = (*value + if *slow_start { 1.0 } else { 1.0 / *value }).min(ceiling as f64);
        }
    }

    /// What it was cut for was no congestion.
    pub(super) fn restart_slow_start(&mut self) {
        if let FirstTokenLimit::Adaptive { slow_start, .. } = self {
            *slow_start = true;
        }
    }

    /// Calls came late; `sustainable`: as many could await their first token and have it in time. Says whether the bound cannot help, or not alone: it is at its
    /// least already, or even one that waits is too many.
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
