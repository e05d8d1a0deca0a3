//! Consistent hashing with bounded loads, as in KubeAI.
//!
//! The key is the beginning of the prompt. A replica whose load exceeds 125 % of the mean is
//! skipped, and the next replica on the ring is tried. The load is the number of the client's own
//! calls.

use std::time::Duration;

use super::{Ask, Chooser};
use crate::experiments::pool::replicas::REPLICAS;

/// The number of points of each replica on the hash ring.
const COPIES: u64 = 256;

/// Consistent hashing with a load bound.
pub(crate) struct BoundedHashing {
    /// Hash and replica of each point, in order of the hashes.
    ring: Vec<(u64, usize)>,
    own: [f64; REPLICAS],
    /// The maximum load of a replica, as a multiple of the mean load of all replicas.
    bound: f64,
}

impl BoundedHashing {
    pub(crate) fn new(bound: f64) -> Self {
        let places = (0..REPLICAS as u64).flat_map(|at| (0..COPIES).map(move |copy| (at, copy)));
        let mut ring: Vec<_> = places
            .map(|(at, copy)| (fastrand::Rng::with_seed(at << 32 | copy).u64(..), at as usize))
            .collect();
        ring.sort_unstable();
        Self { ring, own: [0.0; REPLICAS], bound }
    }

    fn load(&self, at: usize) -> f64 {
        self.own.get(at).copied().unwrap_or_default()
    }
}

impl Chooser for BoundedHashing {
    fn choose(&mut self, ask: &Ask) -> usize {
        let open = ask.open();
        // A prompt shorter than one chunk shares nothing.
        let key = ask.call.prefixes.first().copied().unwrap_or(ask.call.session);
        let most =
            self.bound * (open.iter().map(|at| self.load(*at)).sum::<f64>() + 1.0) / open.len().max(1) as f64;
        let from = self.ring.partition_point(|(hash, _)| *hash < key);
        let around = self.ring.iter().cycle().skip(from).take(self.ring.len()).map(|(_, at)| *at);
        let mut around = around.filter(|at| open.contains(at));
        let at = around
            .clone()
            .find(|at| self.load(*at) + 1.0 <= most)
            .or_else(|| around.next())
            .unwrap_or_default();
        if let Some(own) = self.own.get_mut(at) {
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
