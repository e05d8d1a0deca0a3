//! Choosers (replica selection policies) that compare the numbers of calls at the replicas: the
//! client's own calls, with or without the calls of other clients at the last poll.

use std::time::Duration;

use fastrand::Rng;

use super::polls::{Polled, Polls};
use super::{Ask, Chooser};
use crate::experiments::pool::replicas::{REPLICAS, Replicas};

/// A client's knowledge of the replicas' load: its own calls exactly, and the calls of all clients
/// at the last poll.
struct Known {
    rng: Rng,
    own: [f64; REPLICAS],
    /// For each replica, the number of the client's own calls there when it was last polled, or 0
    /// if it was not polled yet. The number that the poll returned includes these calls.
    then: [f64; REPLICAS],
    polls: Option<Polls>,
}

impl Known {
    fn new(seed: u64, polled: Polled) -> Self {
        let mut rng = Rng::with_seed(seed);
        let polls = (polled == Polled::Yes).then(|| Polls::new(&mut rng));
        Self { rng, own: [0.0; REPLICAS], then: [0.0; REPLICAS], polls }
    }

    /// Returns the number of calls at the replica `at`, as far as the client knows: its own calls
    /// now, plus those of other clients at the last poll.
    fn load(&self, at: usize) -> f64 {
        let of = |counts: &[f64; REPLICAS]| counts.get(at).copied().unwrap_or_default();
        let seen = self.polls.as_ref().and_then(|polls| polls.seen(at));
        of(&self.own) + seen.map_or(0.0, |seen| (seen - of(&self.then)).max(0.0))
    }

    /// Returns the number of calls of all clients at the replica `at`, as its last poll returned.
    /// Returns 0 if no poll of the replica has returned metrics.
    fn polled(&self, at: usize) -> f64 {
        self.polls.as_ref().and_then(|polls| polls.seen(at)).unwrap_or_default()
    }

    fn count(&mut self, at: usize, by: f64) {
        if let Some(own) = self.own.get_mut(at) {
            *own += by;
        }
    }

    fn next_poll(&self) -> Option<Duration> {
        self.polls.as_ref().map(Polls::next)
    }

    fn poll(&mut self, now: Duration, replicas: &Replicas) {
        let Self { polls: Some(polls), rng, own, then } = self else { return };
        for at in polls.poll(now, rng, replicas) {
            if let Some((then, own)) = then.get_mut(at).zip(own.get(at)) {
                *then = *own;
            }
        }
    }
}

/// Chooses the replica with the fewest calls. Ties are broken at random.
pub(crate) struct Argmin {
    known: Known,
    /// Whether only the numbers of the last poll count. If `true`, the client's own calls since the
    /// poll are ignored.
    polled: bool,
}

impl Argmin {
    pub(crate) fn new(seed: u64, polled: Polled) -> Self {
        Self { known: Known::new(seed, polled), polled: polled == Polled::Yes }
    }
}

impl Chooser for Argmin {
    fn choose(&mut self, ask: &Ask) -> usize {
        let mut open = ask.open();
        self.known.rng.shuffle(&mut open);
        let load = |at: usize| if self.polled { self.known.polled(at) } else { self.known.load(at) };
        let at = open.into_iter().min_by(|a, b| load(*a).total_cmp(&load(*b))).unwrap_or_default();
        self.known.count(at, 1.0);
        at
    }

    fn ended(&mut self, _: Duration, _: u64, at: usize) {
        self.known.count(at, -1.0);
    }

    fn next_poll(&self) -> Option<Duration> {
        self.known.next_poll()
    }

    fn poll(&mut self, now: Duration, replicas: &Replicas) {
        self.known.poll(now, replicas);
    }
}

/// Draws two replicas at random, and chooses the one with fewer calls.
pub(crate) struct TwoChoices(Known);

impl TwoChoices {
    pub(crate) fn new(seed: u64, polled: Polled) -> Self {
        Self(Known::new(seed, polled))
    }
}

impl Chooser for TwoChoices {
    fn choose(&mut self, ask: &Ask) -> usize {
        let mut open = ask.open();
        self.0.rng.shuffle(&mut open);
        let two = open.into_iter().take(2);
        let at = two.min_by(|a, b| self.0.load(*a).total_cmp(&self.0.load(*b))).unwrap_or_default();
        self.0.count(at, 1.0);
        at
    }

    fn ended(&mut self, _: Duration, _: u64, at: usize) {
        self.0.count(at, -1.0);
    }

    fn next_poll(&self) -> Option<Duration> {
        self.0.next_poll()
    }

    fn poll(&mut self, now: Duration, replicas: &Replicas) {
        self.0.poll(now, replicas);
    }
}
