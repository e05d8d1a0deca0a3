//! The replica selection policies that `herd` compares.

use std::time::Instant;
use tidegate::config::ReplicaConfig;

use fastrand::Rng;
use tidegate::config::PoolConfig;
use tidegate::policy::placement::{
    Affinity, EngineMetrics, Observation, PlacedCall, Placement, ReplicaId, ReplicaSet, Wants, Work,
};

use super::simulate::REPLICAS;
use crate::virtual_time::time_origin;

/// A replica selection policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Ours,
    Random,
    RoundRobin,
    OwnArgmin,
    PolledArgmin,
    TwoChoices,
    Rendezvous,
    BoundedHashing,
}

pub(crate) const PEERS: [Peer; 8] = [
    Peer::Ours,
    Peer::Random,
    Peer::RoundRobin,
    Peer::OwnArgmin,
    Peer::PolledArgmin,
    Peer::TwoChoices,
    Peer::Rendezvous,
    Peer::BoundedHashing,
];

impl Peer {
    /// Returns the name of the policy in figures and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Random => "random",
            Self::RoundRobin => "round robin from a random start",
            Self::OwnArgmin => "fewest own calls",
            Self::PolledArgmin => "fewest calls at the last poll",
            Self::TwoChoices => "two choices on own counts",
            Self::Rendezvous => "rendezvous hashing without a bound",
            Self::BoundedHashing => "hashing with bounded own load (KubeAI)",
        }
    }
}

/// A client with a policy, and with what the policy reads: the client's own calls per replica, and
/// the metrics of the last poll.
pub(crate) struct Client {
    peer: Peer,
    rng: Rng,
    next: usize,
    own: [usize; REPLICAS],
    seen: [f64; REPLICAS],
    ours: Placement,
    now: Instant,
    placed_calls: Vec<PlacedCall>,
}

impl Client {
    pub(crate) fn new(peer: Peer, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let now = time_origin();
        let mut ours = Placement::new(&PoolConfig::default(), seed);
        if peer == Peer::Ours {
            let members: Vec<ReplicaConfig> =
                (0..REPLICAS).map(|at| ReplicaConfig::new(&format!("http://replica-{at}"))).collect();
            ours.set_members(now, &members);
        }
        let next = rng.usize(..REPLICAS);
        Self {
            peer,
            rng,
            next,
            own: [0; REPLICAS],
            seen: [0.0; REPLICAS],
            ours,
            now,
            placed_calls: Vec::new(),
        }
    }

    /// Replaces the client's knowledge of the replicas' load with `metrics`, which include the
    /// calls of all clients.
    pub(crate) fn poll(&mut self, metrics: &[EngineMetrics; REPLICAS]) {
        self.seen = metrics.map(|standing| standing.running);
        let ids: Vec<ReplicaId> = self.ours.view(self.now).iter().map(|replica| replica.id).collect();
        for (id, standing) in ids.into_iter().zip(metrics) {
            self.ours.observe(self.now, id, Observation::Metrics(*standing));
        }
    }

    pub(crate) fn choose(&mut self, prefixes: &[u64], work: Work) -> usize {
        let at = match self.peer {
            Peer::Ours => self.ours(prefixes, work),
            Peer::Random => self.rng.usize(..REPLICAS),
            Peer::RoundRobin => {
                self.next = (self.next + 1) % REPLICAS;
                self.next
            }
            Peer::OwnArgmin => {
                let least = self.own.iter().min().copied().unwrap_or_default();
                let equals: Vec<usize> =
                    (0..REPLICAS).filter(|at| self.own.get(*at) == Some(&least)).collect();
                equals.get(self.rng.usize(..equals.len().max(1))).copied().unwrap_or_default()
            }
            Peer::PolledArgmin => {
                let seen = self.seen.iter().enumerate();
                seen.min_by(|one, other| one.1.total_cmp(other.1)).map_or(0, |(at, _)| at)
            }
            Peer::TwoChoices => {
                let one = self.rng.usize(..REPLICAS);
                let other = (one + self.rng.usize(1..REPLICAS)) % REPLICAS;
                if self.own.get(other) < self.own.get(one) { other } else { one }
            }
            Peer::Rendezvous => order(prefixes).first().copied().unwrap_or_default(),
            Peer::BoundedHashing => {
                // KubeAI: at most 125 % of the client's own mean, otherwise the next replica on the
                // ring.
                let most =
                    (1.25 * (self.own.iter().sum::<usize>() + 1) as f64 / REPLICAS as f64).ceil() as usize;
                let fits = |at: &usize| self.own.get(*at).is_some_and(|own| *own < most);
                order(prefixes).into_iter().find(fits).unwrap_or_default()
            }
        };
        if let Some(own) = self.own.get_mut(at) {
            *own += 1;
        }
        at
    }

    fn ours(&mut self, prefixes: &[u64], work: Work) -> usize {
        let affinity = Affinity { prefixes: prefixes.into(), ..Affinity::default() };
        let wants = Wants { affinity, ..Wants::default() };
        let open: ReplicaSet = self.ours.eligible(self.now);
        let at = self.ours.choose(self.now, Some(&wants), work, open).unwrap_or_default();
        self.placed_calls.extend(self.ours.on_sent(self.now, at, Some(&wants), work));
        at
    }
}

/// Returns the indices of the replicas in the rendezvous order of the prompt's first prefix hash.
fn order(prefixes: &[u64]) -> Vec<usize> {
    let first = prefixes.first().copied().unwrap_or_default();
    let draw =
        |at: &usize| Rng::with_seed(first ^ (*at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..);
    let mut order: Vec<usize> = (0..REPLICAS).collect();
    order.sort_by_key(draw);
    order
}
