//! Which beginning of a prompt stands for the conversation that it is part of: what clients that know nothing of one another send to one replica.
//!
//! Too short a beginning is shared by all (a system prompt), and would send everything to one replica; too long a one is no longer shared by the next turn. So it is
//! the shortest that is not more of the traffic than half of what one replica should carry, learned from decayed counts; one that is more is split by what follows
//! it. A session that the caller names comes before all beginnings, and is held to the same.
//!
//! A client that has just begun cannot know that. While it sees what others' load is, it takes a beginning for rare until it has seen it [`SEEN`] times: should
//! all do so with a common one, the bound stops them at the next look. Where nobody's load is to be seen only a key that is *known* to be rare is followed.

use std::hash::BuildHasherDefault;

use lru::LruCache;

use super::memory::Already;
use super::words::Affinity;

/// How often a beginning must have been seen to be common.
const SEEN: f64 = 3.0;
/// Calls after which one counts less than half as much, for each replica.
const SPAN: f64 = 32.0;
/// The most beginnings that are counted.
const MOST: usize = 8_192;

/// What a call is known by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) hash: u64,
    /// Whether enough was seen to say that it is rare.
    pub(super) sure: bool,
}

/// Decayed counts of calls, and of their beginnings as far down as they are common.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    calls: f64,
    /// How much the count has decayed since it began: what is counted later counts this much more.
    scale: f64,
    of: LruCache<u64, f64, BuildHasherDefault<Already>>,
}

impl Counts {
    pub(super) fn new() -> Self {
        Self { calls: 0.0, scale: 1.0, of: LruCache::unbounded_with_hasher(BuildHasherDefault::default()) }
    }

    /// The key of a call, in a pool of so many replicas. `None`: it has none that is not common.
    pub(super) fn key(&self, affinity: &Affinity, replicas: usize) -> Option<Key> {
        let rare = rare(replicas);
        let calls = self.calls / self.scale;
        let key = candidates(affinity).map(|hash| (hash, self.count(hash)));
        let (hash, count) = key.into_iter().find(|(_, count)| !common(*count, calls, rare))?;
        Some(Key { hash, sure: (count + 1.0) / (calls + 1.0) <= rare })
    }

    /// A call was sent.
    pub(super) fn sent(&mut self, affinity: &Affinity, replicas: usize) {
        let rare = rare(replicas);
        // Rather than decay all that was counted, what is counted from now on counts more.
        self.scale *= 1.0 + 1.0 / (SPAN * replicas.max(1) as f64);
        if self.scale > 1e100 {
            self.forget();
        }
        self.calls += self.scale;
        let calls = self.calls / self.scale;
        for hash in candidates(affinity) {
            let count = self.of.get_or_insert_mut(hash, || 0.0);
            *count += self.scale;
            if !common(*count / self.scale - 1.0, calls, rare) {
                break;
            }
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
    affinity.session.into_iter().chain(affinity.beginnings.iter().copied())
}

/// Half of what one replica should carry.
fn rare(replicas: usize) -> f64 {
    0.5 / replicas.max(1) as f64
}

fn common(count: f64, calls: f64, rare: f64) -> bool {
    count >= SEEN && count > rare * calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(beginnings: &[u64]) -> Affinity {
        Affinity { session: None, beginnings: beginnings.into() }
    }

    #[test]
    fn a_common_beginning_is_split_by_what_follows_it() {
        let mut counts = Counts::new();
        assert_eq!(counts.key(&of(&[1, 10]), 8), Some(Key { hash: 1, sure: false }), "nothing is known yet");
        for session in 0..200 {
            counts.sent(&of(&[1, 2, 100 + session % 100]), 8);
        }
        assert_eq!(counts.key(&of(&[1, 2, 150, 7]), 8), Some(Key { hash: 150, sure: true }));
        assert_eq!(counts.key(&of(&[1, 2]), 8), None, "nothing in it tells it from the others");
        assert_eq!(counts.key(&of(&[5, 2]), 8), Some(Key { hash: 5, sure: true }));
        assert_eq!(counts.key(&of(&[]), 8), None);
        let named = Affinity { session: Some(9), ..of(&[1, 2, 150]) };
        assert_eq!(counts.key(&named, 8).map(|key| key.hash), Some(9));
        // What was common is forgotten.
        for session in 0..4_000 {
            counts.sent(&of(&[10_000 + session]), 8);
        }
        assert_eq!(counts.key(&of(&[1, 2, 150]), 8).map(|key| key.hash), Some(1));
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
