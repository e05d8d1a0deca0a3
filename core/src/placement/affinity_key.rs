//! Which beginning of a prompt stands for the conversation that it is part of: what clients that know nothing of one another send to one replica.
//!
//! Too short a beginning is shared by all (a system prompt), and would send everything to one replica; too long a one is no longer shared by the next turn. So it is
//! the shortest that is not more of the traffic than half of what one replica should carry, learned from decayed counts; one that is more is split by what follows
//! it. A session that the caller names comes before all beginnings, and is held to the same.
//!
//! A client that has just begun cannot know that, and neither can one all of whose calls begin alike. So a key is followed only if it is at most [`UNHEARD`] of the calls so
//! far: after three that began otherwise. Sixty-four clients that start at once with one system prompt would all be at one replica else, before anybody has seen it.

use std::hash::BuildHasherDefault;

use lru::LruCache;

use super::prefix_cache::IdentityHasher;
use crate::wire::request::Affinity;

/// How often a beginning must have been seen to be common.
const SEEN: f64 = 3.0;
/// A beginning that is at most this much of the calls, so far, is rare enough to be followed blindly: one that all share would be all of them.
const UNHEARD: f64 = 0.25;
/// How deep a beginning is counted.
const DEEP: usize = 64;
/// Calls after which one counts less than half as much, for each replica.
const SPAN: f64 = 32.0;
/// The most beginnings that are counted.
const MOST: usize = 16_384;

/// Decayed counts of calls, and of their beginnings.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    calls: f64,
    /// How much the count has decayed since it began: what is counted later counts this much more.
    scale: f64,
    of: LruCache<u64, f64, BuildHasherDefault<IdentityHasher>>,
}

impl Counts {
    pub(super) fn new() -> Self {
        Self { calls: 0.0, scale: 1.0, of: LruCache::unbounded_with_hasher(BuildHasherDefault::default()) }
    }

    /// The key of a call, in a pool of so many replicas. `None`: none that is known to be rare.
    pub(super) fn key(&self, affinity: &Affinity, replicas: usize) -> Option<u64> {
        let (rare, calls) = (rare(replicas), self.calls / self.scale);
        let mut counted = candidates(affinity).map(|hash| (hash, self.count(hash)));
        let (hash, count) = counted.find(|(_, count)| !(*count >= SEEN && *count > rare * calls))?;
        ((count + 1.0) / (calls + 1.0) <= rare.max(UNHEARD)).then_some(hash)
    }

    /// A call was sent.
    pub(super) fn sent(&mut self, affinity: &Affinity, replicas: usize) {
        // Rather than decay all that was counted, what is counted from now on counts more.
        self.scale *= 1.0 + 1.0 / (SPAN * replicas.max(1) as f64);
        if self.scale > 1e100 {
            self.forget();
        }
        self.calls += self.scale;
        for hash in candidates(affinity) {
            *self.of.get_or_insert_mut(hash, || 0.0) += self.scale;
        }
        while self.of.len() > MOST {
            self.of.pop_lru();
        }
    }

    fn count(&self, hash: u64) -> f64 {
        self.of.peek(&hash).map_or(0.0, |count| count / self.scale)
    }

    fn forget(&mut self) {
        self.of.iter_mut().for_each(|(_, count)| *count /= self.scale);
        self.calls /= self.scale;
        self.scale = 1.0;
    }
}

fn candidates(affinity: &Affinity) -> impl Iterator<Item = u64> + '_ {
    affinity.session.into_iter().chain(affinity.beginnings.iter().copied()).take(DEEP)
}

/// Half of what one replica should carry.
fn rare(replicas: usize) -> f64 {
    0.5 / replicas.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(beginnings: &[u64]) -> Affinity {
        Affinity { beginnings: beginnings.into(), ..Affinity::default() }
    }

    #[test]
    fn a_common_beginning_is_split_by_what_follows_it() {
        let mut counts = Counts::new();
        assert_eq!(counts.key(&of(&[1, 10]), 8), None, "nothing is known yet");
        for session in 0..200 {
            counts.sent(&of(&[1, 2, 100 + session % 100]), 8);
        }
        assert_eq!(counts.key(&of(&[1, 2, 150, 7]), 8), Some(150));
        assert_eq!(counts.key(&of(&[1, 2]), 8), None, "nothing in it tells it from the others");
        assert_eq!(counts.key(&of(&[5, 2]), 8), Some(5));
        assert_eq!(counts.key(&of(&[]), 8), None);
        let named = Affinity { session: Some(9), ..of(&[1, 2, 150]) };
        assert_eq!(counts.key(&named, 8), Some(9));
        // What was common is forgotten.
        for session in 0..4_000 {
            counts.sent(&of(&[10_000 + session]), 8);
        }
        assert_eq!(counts.key(&of(&[1, 2, 150]), 8), Some(1));
    }

    #[test]
    fn counts_stay_finite_and_bounded() {
        let mut counts = Counts::new();
        for call in 0..100_000 {
            counts.sent(&of(&[call % 20_000]), 1);
        }
        assert!(counts.scale.is_finite() && counts.calls.is_finite());
        assert!(counts.of.len() <= MOST);
        assert!((counts.calls / counts.scale - SPAN).abs() < 2.0);
    }
}
