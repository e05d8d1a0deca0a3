//! Longest prefix match, as in SGLang's router.
//!
//! A client remembers which prefixes it sent to which replica. If loads are unbalanced, a call is
//! sent to the replica with the fewest requests. If loads are balanced and the longest match
//! exceeds a share of the prompt, the call is sent to the replica with that match. Otherwise it is
//! sent to the replica to which the client has sent the fewest prefixes.

use std::collections::HashSet;
use std::time::Duration;

use super::{Ask, Chooser};
use crate::experiments::pool::replicas::REPLICAS;

/// A call is sent to the replica with the longest match if more than this share of its prompt
/// matches there.
const MATCHED: f64 = 0.3;
/// Loads are unbalanced if the highest exceeds the lowest by more than this number of calls, and by
/// more than the factor [`TIMES`].
const APART: f64 = 64.0;
const TIMES: f64 = 1.5;

/// Longest prefix match with a load threshold.
pub(crate) struct LongestMatch {
    sent: [HashSet<u64>; REPLICAS],
    own: [f64; REPLICAS],
    apart: f64,
}

impl LongestMatch {
    /// Creates the chooser of one of `clients` clients. The threshold of 64 calls is divided by
    /// their number, because each client sees only its own calls.
    pub(crate) fn new(clients: usize) -> Self {
        Self { sent: Default::default(), own: [0.0; REPLICAS], apart: APART / clients as f64 }
    }

    fn load(&self, at: usize) -> f64 {
        self.own.get(at).copied().unwrap_or_default()
    }

    fn matched(&self, at: usize, prefixes: &[u64]) -> usize {
        let known = |sent: &HashSet<u64>| prefixes.iter().take_while(|hash| sent.contains(hash)).count();
        self.sent.get(at).map_or(0, known)
    }
}

impl Chooser for LongestMatch {
    fn choose(&mut self, ask: &Ask) -> usize {
        let open = ask.open();
        let prefixes = &ask.call.prefixes;
        let fewest =
            open.iter().copied().min_by(|a, b| self.load(*a).total_cmp(&self.load(*b))).unwrap_or_default();
        let most = open.iter().map(|at| self.load(*at)).fold(0.0, f64::max);
        let least = self.load(fewest);
        let at = if most - least > self.apart && most > TIMES * least {
            fewest
        } else {
            let best = open.iter().copied().max_by_key(|at| self.matched(*at, prefixes)).unwrap_or_default();
            if self.matched(best, prefixes) as f64 > MATCHED * prefixes.len().max(1) as f64 {
                best
            } else {
                open.into_iter()
                    .min_by_key(|at| self.sent.get(*at).map_or(0, HashSet::len))
                    .unwrap_or_default()
            }
        };
        if let Some((sent, own)) = self.sent.get_mut(at).zip(self.own.get_mut(at)) {
            sent.extend(prefixes.iter());
            *own += 1.0;
        }
        at
    }

    fn ended(&mut self, _: Duration, _: u64, at: usize) {
        if let Some(own) = self.own.get_mut(at) {
            *own -= 1.0;
        }
    }
}
