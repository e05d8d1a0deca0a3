//! Which of the replicas that could take a call it goes to.
//!
//! # The rule
//!
//! 1. Nobody over the [bound](super::bound): what is cached somewhere is worth some waiting, and no more than that.
//! 2. Of those, some are looked at: those that hold the beginning of its prompt, as far as [we remember](super::memory); the one that all clients would send its
//!    [key](super::key) to by [rendezvous](super::rendezvous); two by chance, in proportion to their weights; and one that has just come back and has no call of ours yet.
//! 3. Of these the one at which it would begin to be answered first: [the work before it](super::load), and what of its prompt would have to be computed there, by how
//!    [fast](super::speed) and how heavy the replica is. Among equals, chance.
//!
//! # Why
//!
//! Two by chance and not the best of all, because others decide by the same poll at the same time: the best of all would be everybody's. Only where nearly all calls are
//! our own, and so nothing that we see is old, all are looked at.
//!
//! What others sent where is not known. So the owner of a key is credited with [`HINT`] of the prompt, as far as the traffic is others': enough that a conversation
//! stays together whichever client its next turn comes from, and not enough to wait behind a queue for it.

use std::time::Instant;

use super::bound;
use super::load::Others;
use super::memory::Cache;
use super::rendezvous;
use super::speed::Pooled;
use super::words::{Wants, Work};
use super::{Placement, Places};

/// The part of a prompt that is taken to be where others would have sent it.
const HINT: f64 = 0.6;
/// What a call that is being answered adds to the work before another, in prompt tokens.
const ANSWERING: f64 = 64.0;
/// What any call costs beside its prompt, in the same.
const CALL: f64 = 256.0;
/// Where others have less than this share of the calls, what we see is as it is.
const ALONE: f64 = 0.1;

/// A replica that could take the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) at: usize,
    /// Calls there, our own and others'.
    calls: f64,
    /// Its part of all that the pool can do.
    share: f64,
    /// The same of one that is not starting slowly: how many it gets is slow start's, and not how soon it would answer.
    weight: f64,
    /// Work that stands before a new call, in tokens of prompt.
    ahead: f64,
    /// How many times as long as others it takes for the same.
    slowness: f64,
    /// Tokens of the prompt that are taken to be cached there.
    pub(super) cached: u64,
}

impl Seat {
    fn cost(&self, work: Work) -> f64 {
        let own = work.input.saturating_sub(self.cached) as f64 + CALL;
        (self.ahead + own) * self.slowness / self.weight
    }

    /// Whether it may have one more, if so many are its part of all, that one included.
    fn is_within(&self, part: f64) -> bool {
        self.calls + 1.0 <= bound::most(part) || self.calls <= part
    }

    /// What the call's first token waits for there, by what is known of its own speed.
    pub(super) fn work(&self, work: Work) -> f64 {
        self.ahead + work.input.saturating_sub(self.cached) as f64 + CALL
    }
}

impl Placement {
    /// The replicas of a set as they stand to a call, with what is cached there.
    pub(super) fn seats(&self, now: Instant, wants: Option<&Wants>, work: Work, open: Places) -> Vec<Seat> {
        let known = |at: usize| Some((at, self.replicas.get(at)?.as_ref()?));
        let pooled = Pooled::of(self.replicas.iter().flatten().map(|replica| replica.load.speed));
        let mean = self.mean_of_others(now, open);
        let seat = |(at, replica): (usize, &super::replica::Replica)| {
            let load = &replica.load;
            let others = load.others(now, self.poll).unwrap_or(mean);
            Seat {
                at,
                calls: load.calls() as f64 + others.calls(),
                share: (replica.member.weight * replica.health.share(now, &self.terms)).max(1e-3),
                weight: replica.member.weight.max(1e-3),
                ahead: load.awaiting_tokens as f64
                    + (load.answering as f64 + others.running) * ANSWERING
                    + others.waiting * self.typical,
                slowness: pooled.map_or(1.0, |pooled| pooled.slowness(load.speed)),
                cached: 0,
            }
        };
        let mut seats: Vec<Seat> = open.iter().filter_map(known).map(seat).collect();
        if let Some(wants) = wants {
            self.remember(wants, work, &mut seats);
        }
        seats
    }

    /// What of the prompt is cached at each of them, by what we sent.
    fn remember(&self, wants: &Wants, work: Work, seats: &mut [Seat]) {
        let affinity = &wants.affinity;
        let cache = |seat: &Seat| self.cache(seat.at).map(|cache| (cache, 0));
        let mut caches: Vec<(Cache, u64)> = seats.iter().filter_map(cache).collect();
        let of = |index: usize| affinity.tokens(index, work.input);
        self.memory.known(&affinity.beginnings, of, &mut caches);
        for (seat, (cache, known)) in seats.iter_mut().zip(caches) {
            let session = affinity.session.map_or(0, |session| self.memory.session(session, &cache));
            seat.cached = known.max(session).min(work.input);
        }
    }

    /// What a replica is taken to have of others', of which that is not known: as much as those of which it is. None where nobody's is known.
    fn mean_of_others(&self, now: Instant, open: Places) -> Others {
        let known = open.iter().filter_map(|at| self.replicas.get(at)?.as_ref()?.load.others(now, self.poll));
        let (mut sum, mut count) = (Others::default(), 0.0);
        for others in known {
            sum.running += others.running;
            sum.waiting += others.waiting;
            count += 1.0;
        }
        if count == 0.0 {
            return sum;
        }
        Others { running: sum.running / count, waiting: sum.waiting / count }
    }

    /// See the module's documentation.
    pub(super) fn best(
        &mut self,
        now: Instant,
        wants: Option<&Wants>,
        work: Work,
        open: Places,
    ) -> Option<usize> {
        let mut seats = self.seats(now, wants, work, open);
        within_bound(&mut seats);
        let looked = self.looked_at(now, wants, work, &mut seats);
        let chosen = self.least(&looked, work)?;
        Some(chosen.at)
    }

    /// Those that are looked at: see the module's documentation.
    fn looked_at(
        &mut self,
        now: Instant,
        wants: Option<&Wants>,
        work: Work,
        seats: &mut [Seat],
    ) -> Vec<Seat> {
        let seen = seats.iter().filter(|seat| self.is_seen(now, seat.at)).count();
        let seen = seen == seats.len();
        let owner = wants.and_then(|wants| self.owner(wants, seats, seen));
        if let Some(seat) = owner.and_then(|owner| seats.get_mut(owner)) {
            seat.cached = seat.cached.max(self.hint(work));
        }
        if seen && self.foreign < ALONE {
            return seats.to_vec();
        }
        let mut looked: Vec<Seat> = seats.iter().filter(|seat| seat.cached > 0).copied().collect();
        looked.extend(self.two(seats));
        // By chance alone it would wait for long for its first call.
        looked.extend(seats.iter().filter(|seat| seat.share < seat.weight && seat.calls < 1.0));
        looked
    }

    fn hint(&self, work: Work) -> u64 {
        (work.input as f64 * HINT * self.foreign) as u64
    }

    /// The index of the one that every client would send it to.
    fn owner(&self, wants: &Wants, seats: &[Seat], seen: bool) -> Option<usize> {
        let key = self.counts.key(&wants.affinity, self.members()).filter(|key| key.sure || seen)?;
        let draw = |seat: &Seat| {
            let replica = self.replicas.get(seat.at)?.as_ref()?;
            Some(rendezvous::draw(key.hash, replica.name, replica.member.weight))
        };
        let draws = seats.iter().enumerate().filter_map(|(index, seat)| Some((index, draw(seat)?)));
        draws.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(index, _)| index)
    }

    /// Two by chance, in proportion to what they can take; both, of two.
    fn two(&mut self, seats: &[Seat]) -> impl Iterator<Item = Seat> + use<> {
        let first = self.one(seats, None);
        let second = self.one(seats, first.map(|first| first.at));
        first.into_iter().chain(second)
    }

    fn one(&mut self, seats: &[Seat], but: Option<usize>) -> Option<Seat> {
        let others = || seats.iter().filter(|seat| Some(seat.at) != but);
        let mut left = self.rng.f64() * others().map(|seat| seat.share).sum::<f64>();
        let drawn = others().find(|seat| {
            left -= seat.share;
            left < 0.0
        });
        // Of sums that round there may be something left.
        drawn.or(others().last()).copied()
    }

    fn least(&mut self, looked: &[Seat], work: Work) -> Option<Seat> {
        let costs = || looked.iter().map(|seat| seat.cost(work));
        let least = costs().fold(f64::INFINITY, f64::min);
        let equals = looked.iter().filter(|seat| seat.cost(work) <= least);
        let at = self.rng.usize(..equals.clone().count().max(1));
        equals.copied().nth(at)
    }
}

/// Takes out those that would have more calls than the bound lets them. Never all: one has no more than its part now.
fn within_bound(seats: &mut Vec<Seat>) {
    let calls = seats.iter().map(|seat| seat.calls).sum::<f64>() + 1.0;
    let shares = seats.iter().map(|seat| seat.share).sum::<f64>();
    seats.retain(|seat| seat.is_within(calls * seat.share / shares));
}

#[cfg(test)]
pub(super) fn is_within(seats: &[Seat], at: usize) -> bool {
    let mut within = seats.to_vec();
    within_bound(&mut within);
    within.iter().any(|seat| seat.at == at)
}
