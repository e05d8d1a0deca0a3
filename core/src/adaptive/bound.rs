//! The bound on calls that await their first token.
//!
//! Why beside the slots: a stream keeps its slot until it ends, so a lower number of slots takes a stream's lifetime to act, while calls that await
//! their first token are the queue before the upstream itself. By Little's law they are as many as first tokens come a second, times the seconds that
//! each takes: bounding their number bounds the time.

/// A cut leaves this at the most.
const DEEP: f64 = 0.7;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    /// As many as there are slots.
    Off,
    /// A number that was set.
    Fixed(usize),
    /// It is found.
    Found {
        /// Not below 1.
        value: f64,
        /// Until the first cut each call in time raises it by one; then a round of them does.
        doubles: bool,
    },
}

impl Bound {
    /// One that is found, from that start.
    pub(super) fn found(start: usize) -> Self {
        Bound::Found { value: start.max(1) as f64, doubles: true }
    }

    /// The most calls that may await their first token.
    pub(super) fn most(&self) -> usize {
        match *self {
            Bound::Off => usize::MAX,
            Bound::Fixed(most) => most,
            Bound::Found { value, .. } => value as usize,
        }
    }

    /// A call was in time, and the bound held others back while it was on its way. `ceiling`: more are never in flight.
    pub(super) fn in_time(&mut self, ceiling: usize) {
        if let Bound::Found { value, doubles } = self {
            *value = (*value + if *doubles { 1.0 } else { 1.0 / *value }).min(ceiling as f64);
        }
    }

    /// What it was cut for was no congestion.
    pub(super) fn doubles_again(&mut self) {
        if let Bound::Found { doubles, .. } = self {
            *doubles = true;
        }
    }

    /// Calls came late; `share`: as many could await their first token and have it in time. Says whether the bound cannot help, or not alone: it is at its
    /// least already, or even one that waits is too many.
    pub(super) fn late(&mut self, share: f64) -> bool {
        let Bound::Found { value, doubles } = self else { return true };
        let least = *value < 2.0;
        *value = share.min(DEEP * *value).max(1.0);
        *doubles = false;
        least || share < 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_until_the_first_cut() {
        let mut bound = Bound::found(8);
        (0..8).for_each(|_| bound.in_time(256));
        assert_eq!(bound.most(), 16);
        assert!(!bound.late(20.0));
        assert_eq!(bound.most(), 11, "no cut is none");
        (0..11).for_each(|_| bound.in_time(256));
        assert_eq!(bound.most(), 12);
        assert!(!bound.late(3.0), "down to what can be in time");
        assert_eq!(bound.most(), 3);
    }

    #[test]
    fn it_says_where_it_cannot_help() {
        let mut bound = Bound::found(8);
        assert!(bound.late(0.3), "even one that waits is too many");
        assert_eq!(bound.most(), 1);
        assert!(bound.late(5.0), "it is at its least");
        assert!(Bound::Fixed(4).late(5.0));
        assert!(Bound::Off.late(5.0));
    }
}
