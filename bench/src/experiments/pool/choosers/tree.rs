//! Longest prefix match, as in SGLang's router.
//!
//! A client remembers which prefixes it sent to which replica. If loads are balanced, a call is
//! sent to the replica with the longest match if that exceeds a share of the prompt, and otherwise
//! to the replica that was sent the least. If loads are unbalanced, the call is sent to the replica
//! with the fewest requests.

use std::collections::HashSet;
use std::time::Duration;

use super::{Ask, Chooser};
use crate::experiments::pool::replicas::REPLICAS;

/// The minimum matched share of a prompt.
const MATCHED: f64 = 0.3;
/// Loads are unbalanced if the maximum exceeds the minimum by this number of calls and by the
/// factor [`TIMES`].
const APART: f64 = 64.0;
const TIMES: f64 = 1.5;

/// The chooser. See the [module documentation](self).
pub(crate) struct LongestMatch {
    sent: [HashSet<u64>; REPLICAS],
    own: [f64; REPLICAS],
    apart: f64,
}

impl LongestMatch {
    /// Creates a chooser with its threshold divided by the number of clients, because each has that
    /// much less in flight.
    pub(crate) fn new(clients: usize) -> Self {
        Self { sent: Default::default(), own: [0.0; REPLICAS], apart: APART / clients as f64 }
    }

    fn load(&self, at: usize) -> f64 {
        self.own.get(at).copied().unwrap_or_default()
    }

    fn matched(&self, at: usize, beginnings: &[u64]) -> usize {
        let known = |sent: &HashSet<u64>| beginnings.iter().take_while(|hash| sent.contains(hash)).count();
        self.sent.get(at).map_or(0, known)
    }
}

impl Chooser for LongestMatch {
    fn choose(&mut self, ask: &Ask) -> usize {
        let open = ask.open();
        let beginnings = &ask.call.beginnings;
        let fewest =
            open.iter().copied().min_by(|a, b| self.load(*a).total_cmp(&self.load(*b))).unwrap_or_default();
        let most = open.iter().map(|at| self.load(*at)).fold(0.0, f64::max);
        let least = self.load(fewest);
        let at = if most - least > self.apart && most > TIMES * least {
            fewest
        } else {
            let best =
                open.iter().copied().max_by_key(|at| self.matched(*at, beginnings)).unwrap_or_default();
            if self.matched(best, beginnings) as f64 > MATCHED * beginnings.len().max(1) as f64 {
                best
            } else {
                open.into_iter()
                    .min_by_key(|at| self.sent.get(*at).map_or(0, HashSet::len))
                    .unwrap_or_default()
            }
        };
        if let Some((sent, own)) = self.sent.get_mut(at).zip(self.own.get_mut(at)) {
            sent.extend(beginnings.iter());
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
