//! Who is in flight, and whether what bounds them was ever full.

use std::time::{Duration, Instant};

/// How long a highest number is remembered: between one such span and two.
const LATELY: Duration = Duration::from_secs(5);
/// What is left of the peak with each call.
const FADE: f64 = 0.9995;
/// And with each cut that wanted to go deeper than a share of it.
const GIVE: f64 = 0.75;
/// A call that was sent while so few were in flight, as a share of the peak, or so few at all, met no congestion of ours.
const LOW: f64 = 0.25;
pub(super) const FEW: usize = 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Load {
    pub(super) in_flight: usize,
    /// Those that stream, and have no token yet.
    pub(super) awaiting: usize,
    /// Streaming calls whose first token has come.
    decoding: usize,
    /// Since when somebody awaits it.
    busy: Option<Instant>,
    /// The most that were in flight, fading.
    peak: f64,
    /// The most of late; and the most that were served.
    highest: Highest,
    served: Highest,
    /// The most that were in flight when one was sent that the upstream took.
    taken: Highest,
    /// When the slots were last all taken, and the bound.
    full: Option<Instant>,
    bound_full: Option<Instant>,
}

impl Load {
    pub(super) fn sent(&mut self, now: Instant, streams: bool) {
        self.in_flight += 1;
        self.highest.saw(now, self.in_flight);
        if streams {
            self.awaiting += 1;
            self.busy.get_or_insert(now);
        }
        self.peak = (self.peak * FADE).max(self.in_flight as f64);
    }

    pub(super) fn awaits_no_more(&mut self) {
        self.awaiting -= 1;
        self.busy = self.busy.filter(|_| self.awaiting > 0);
    }

    /// A call that awaited its first token has it.
    pub(super) fn first_token(&mut self, now: Instant) {
        self.awaits_no_more();
        self.decoding += 1;
        self.served.saw(now, self.served_now().unwrap_or(0));
    }

    /// A call ended. `decoding`: after its first token.
    pub(super) fn ended(&mut self, decoding: bool) {
        self.in_flight -= 1;
        self.decoding -= usize::from(decoding);
    }

    /// A call that was sent as the `at`-th in flight was taken in by the upstream.
    pub(super) fn taken(&mut self, now: Instant, at: usize) {
        self.taken.saw(now, at);
    }

    /// To be told after each call that is sent, and before each that ends.
    pub(super) fn note(&mut self, now: Instant, slots: usize, bound: usize) {
        if self.in_flight >= slots {
            self.full = Some(now);
        }
        if self.awaiting >= bound {
            self.bound_full = Some(now);
        }
    }

    /// Whether the slots were all taken at some time after that.
    pub(super) fn was_full(&self, after: Instant) -> bool {
        self.full.is_some_and(|at| at > after)
    }

    /// Whether as many awaited their first token as may.
    pub(super) fn was_bound_full(&self, after: Instant) -> bool {
        self.bound_full.is_some_and(|at| at > after)
    }

    /// Whether a call that was sent then, as the `at`-th in flight, and is answered now, tells what such calls take when there is room.
    pub(super) fn was_calm(&self, since: Instant, at: usize) -> bool {
        let at = at.max(self.in_flight) as f64;
        at <= (FEW as f64).max(LOW * self.peak) || !(self.was_full(since) || self.was_bound_full(since))
    }

    /// How far a cut may go: to a share of the peak, so that a few calls are sent at so low a level, and teach what they take there, before the next one goes
    /// deeper.
    pub(super) fn ground(&mut self, to: f64) -> f64 {
        let least = LOW * self.peak;
        if to < least {
            self.peak *= GIVE;
        }
        to.max(least)
    }

    /// The most that were in flight of late.
    pub(super) fn highest(&mut self, now: Instant) -> usize {
        self.highest.most(now).max(self.in_flight)
    }

    /// How long somebody has been awaiting a first token without a break.
    pub(super) fn busy(&self, now: Instant) -> Duration {
        self.busy.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns how many calls the upstream serves now: those that have had their first token. Of
    /// the calls whose first token cannot be seen, the same share. `None`: none can be seen.
    pub(super) fn served_now(&self) -> Option<usize> {
        (self.in_flight * self.decoding).checked_div(self.awaiting + self.decoding)
    }

    /// Returns the most calls that the upstream was seen to serve at once of late.
    pub(super) fn served(&mut self, now: Instant) -> Option<usize> {
        let of_late = self.served.most(now);
        self.served_now().map(|served| served.max(of_late))
    }

    /// How many it was seen to take in at once of late.
    pub(super) fn taken_of_late(&mut self, now: Instant) -> usize {
        self.taken.most(now)
    }
}

/// The highest number of late.
#[derive(Clone, Copy, Debug, Default)]
struct Highest {
    since: Option<Instant>,
    before: usize,
    now: usize,
}

impl Highest {
    fn saw(&mut self, now: Instant, number: usize) {
        self.turn(now);
        self.now = self.now.max(number);
    }

    fn most(&mut self, now: Instant) -> usize {
        self.turn(now);
        self.now.max(self.before)
    }

    fn turn(&mut self, now: Instant) {
        let age = now.saturating_duration_since(*self.since.get_or_insert(now));
        if age >= LATELY {
            self.before = if age < 2 * LATELY { self.now } else { 0 };
            self.now = 0;
            self.since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    #[test]
    fn the_highest_of_late() {
        let zero = epoch();
        let at = |s| zero + Duration::from_secs(s);
        let mut highest = Highest::default();
        highest.saw(at(0), 7);
        highest.saw(at(6), 3);
        assert_eq!(highest.most(at(6)), 7);
        assert_eq!(highest.most(at(11)), 3);
        assert_eq!(highest.most(at(60)), 0);
    }
}
