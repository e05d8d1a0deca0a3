//! The affinity key of a call: the prefix of its prompt that stands for its conversation.
//! Independent clients send calls with the same key to the same replica.
//!
//! A prefix that is too short is shared by all calls (a system prompt) and would send all of them
//! to one replica. A prefix that is too long is not shared by the next turn. The key is the
//! shortest prefix whose share of the traffic is at most half of what one replica should carry,
//! learned from decayed counts. Shorter prefixes are *common*. A session that the caller names is
//! preferred to all prefixes, under the same rule.
//!
//! A new client has no counts, and if all of its calls start alike, their common prefix looks like
//! one conversation. A key is therefore used only if its share of the calls so far is at most
//! [`MAX_UNPROVEN_SHARE`] (or half of a replica's share, if that is larger), that is, after three
//! calls that started differently. Otherwise, 64 clients that start at the same time with one
//! system prompt would all use the same replica.

use super::prefix_cache::HashLru;
use tidegate_protocol::request::Affinity;

/// Minimum decayed number of calls with a prefix for the prefix to count as common.
const COMMON_COUNT: f64 = 3.0;
/// Maximum share of the calls so far, from 0 to 1, for a prefix to be used as a key while few calls
/// have been counted.
const MAX_UNPROVEN_SHARE: f64 = 0.25;
/// Maximum number of hashes counted per call: the session and the shortest prefixes.
const MAX_DEPTH: usize = 64;
/// Number of calls per replica after which the weight of a call has decayed to about a third.
const DECAY_CALLS: f64 = 32.0;
/// Maximum number of prefixes and sessions with a count. The least recently used ones are dropped.
const MAX_COUNTED: usize = 16_384;

/// Decayed counts of calls and of their prefixes, from which the affinity key of a call is chosen.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    /// Number of calls, times `scale`.
    calls: f64,
    /// Weight with which the last call was counted. It grows with each call, which has the same
    /// effect as decaying all earlier counts.
    scale: f64,
    /// Number of calls with each prefix or session, by hash, times `scale`.
    counts: HashLru<f64>,
}

impl Counts {
    pub(super) fn new() -> Self {
        Self { calls: 0.0, scale: 1.0, counts: HashLru::unbounded_with_hasher(Default::default()) }
    }

    /// Returns the key of a call in a pool of `replicas` replicas: the first hash that is not
    /// common, where the session is checked before the prefixes, and short prefixes before long
    /// ones. Returns `None` if all are common or too few calls were counted.
    pub(super) fn key(&self, affinity: &Affinity, replicas: usize) -> Option<u64> {
        // Half of the share that one replica should carry.
        let rare = 0.5 / replicas.max(1) as f64;
        let calls = self.calls / self.scale;
        let count = |hash| self.counts.peek(&hash).map_or(0.0, |count| count / self.scale);
        let mut counted = hashes(affinity).map(|hash| (hash, count(hash)));
        let (hash, count) = counted.find(|(_, count)| !(*count >= COMMON_COUNT && *count > rare * calls))?;
        ((count + 1.0) / (calls + 1.0) <= rare.max(MAX_UNPROVEN_SHARE)).then_some(hash)
    }

    /// Counts a call that is sent to a pool of `replicas` replicas.
    pub(super) fn on_sent(&mut self, affinity: &Affinity, replicas: usize) {
        self.scale *= 1.0 + 1.0 / (DECAY_CALLS * replicas.max(1) as f64);
        if self.scale > 1e100 {
            self.counts.iter_mut().for_each(|(_, count)| *count /= self.scale);
            self.calls /= self.scale;
            self.scale = 1.0;
        }
        self.calls += self.scale;
        for hash in hashes(affinity) {
            *self.counts.get_or_insert_mut(hash, || 0.0) += self.scale;
        }
        while self.counts.len() > MAX_COUNTED {
            self.counts.pop_lru();
        }
    }
}

/// Returns the hashes that may become the key: the session, then the prefixes, the shortest first.
fn hashes(affinity: &Affinity) -> impl Iterator<Item = u64> + '_ {
    affinity.session.into_iter().chain(affinity.prefixes.iter().copied()).take(MAX_DEPTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(prefixes: &[u64]) -> Affinity {
        Affinity { prefixes: prefixes.into(), ..Affinity::default() }
    }

    #[test]
    fn common_prefix_is_split_by_the_next_chunk() {
        let mut counts = Counts::new();
        assert_eq!(counts.key(&of(&[1, 10]), 8), None, "nothing is known yet");
        for session in 0..200 {
            counts.on_sent(&of(&[1, 2, 100 + session % 100]), 8);
        }
        assert_eq!(counts.key(&of(&[1, 2, 150, 7]), 8), Some(150));
        assert_eq!(counts.key(&of(&[1, 2]), 8), None, "all of its prefixes are common");
        assert_eq!(counts.key(&of(&[5, 2]), 8), Some(5));
        assert_eq!(counts.key(&of(&[]), 8), None);
        let named = Affinity { session: Some(9), ..of(&[1, 2, 150]) };
        assert_eq!(counts.key(&named, 8), Some(9));
        // Common prefixes are forgotten.
        for session in 0..4_000 {
            counts.on_sent(&of(&[10_000 + session]), 8);
        }
        assert_eq!(counts.key(&of(&[1, 2, 150]), 8), Some(1));
    }

    #[test]
    fn counts_stay_finite_and_bounded() {
        let mut counts = Counts::new();
        for call in 0..100_000 {
            counts.on_sent(&of(&[call % 20_000]), 1);
        }
        assert!(counts.scale.is_finite() && counts.calls.is_finite());
        assert!(counts.counts.len() <= MAX_COUNTED);
        assert!((counts.calls / counts.scale - DECAY_CALLS).abs() < 2.0);
    }
}
