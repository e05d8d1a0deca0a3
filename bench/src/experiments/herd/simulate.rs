//! Simulates two waves of calls: the clients, their prompts, and the number of calls at each
//! replica.

use tidegate::policy::placement::{EngineMetrics, Work};

use super::peers::{Client, Peer};

pub(crate) const CLIENTS: usize = 64;
pub(crate) const REPLICAS: usize = 8;
/// The number of prefix hashes of a prompt.
const PREFIXES: u64 = 10;
/// The number of prefix hashes that all prompts have in common, if prompts share a prefix.
const SHARED: u64 = 8;
/// The length of each call: the input is 256 prompt tokens for each prefix hash.
const WORK: Work = Work { input: 2_560, output: 200 };

/// Whether prompts have a prefix in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prompts {
    Distinct,
    Shared,
}

impl Prompts {
    /// Returns the name of the kind of prompts in figures and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Distinct => "distinct prefixes",
            Self::Shared => "one shared prefix",
        }
    }

    fn of(self, call: u64, seed: u64) -> Vec<u64> {
        let shared = if self == Self::Shared { SHARED } else { 0 };
        (0..PREFIXES)
            .map(|at| if at < shared { hash(!seed, at) } else { hash(seed, call * PREFIXES + at) })
            .collect()
    }
}

fn hash(seed: u64, what: u64) -> u64 {
    fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ what).u64(..)
}

/// Simulates both waves on one seed, with `calls` calls per client and wave. Returns the number of
/// calls at the fullest replica after the first wave, and after the second.
pub(crate) fn play(seed: u64, calls: usize, prompts: Prompts, peer: Peer) -> [usize; 2] {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::new(peer, rng.u64(..))).collect();
    let mut counts = [0; REPLICAS];
    let mut number = 0;
    [0, 1].map(|wave| {
        for _ in 0..calls {
            for client in &mut clients {
                number += 1;
                let at = client.choose(&prompts.of(number, seed), WORK);
                if let Some(count) = counts.get_mut(at) {
                    *count += 1;
                }
            }
        }
        if wave == 0 {
            let stand = |count: usize| EngineMetrics { running: count as f64, ..EngineMetrics::default() };
            clients.iter_mut().for_each(|client| client.poll(&counts.map(stand)));
        }
        counts.into_iter().max().unwrap_or_default()
    })
}
