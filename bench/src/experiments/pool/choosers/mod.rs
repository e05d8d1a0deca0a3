//! The replica selection policies ("choosers") that `pool` compares.

mod call_counts;
mod hashing;
mod load_blind;
mod longest_match;
mod oracle;
mod polls;
mod tidegate_placement;

use std::time::Duration;

use tidegate::policy::placement::ReplicaSet;

pub(crate) use self::call_counts::{Argmin, TwoChoices};
pub(crate) use self::hashing::BoundedHashing;
pub(crate) use self::load_blind::{Random, RoundRobin};
pub(crate) use self::longest_match::LongestMatch;
pub(crate) use self::oracle::Oracle;
pub(crate) use self::polls::Polled;
pub(crate) use self::tidegate_placement::{Ours, Without};

use super::replicas::Replicas;
use super::workload::Call;

/// A call that needs a replica.
pub(crate) struct Ask<'a> {
    pub(crate) now: Duration,
    pub(crate) id: u64,
    pub(crate) call: &'a Call,
    /// The replicas that have already refused the call.
    pub(crate) tried: ReplicaSet,
    /// The true state of all replicas. Only the oracle may read it. Other choosers use
    /// [`Ask::open`].
    pub(crate) replicas: &'a Replicas,
}

impl Ask<'_> {
    /// Returns the indices of the replicas that are up and have not refused the call. If all of
    /// these have refused it, returns all replicas that are up.
    ///
    /// All choosers except Tidegate's use this function. Therefore they know immediately which
    /// replicas are down, which is at least as good as any health check.
    pub(crate) fn open(&self) -> Vec<usize> {
        let open = self.replicas.up().less(self.tried);
        let open = if open.is_empty() { self.replicas.up() } else { open };
        open.iter().collect()
    }
}

/// A client's replica selection policy. The client's own calls are reported to it immediately. It
/// learns about the calls of other clients by polls, or because they tell it.
pub(crate) trait Chooser {
    /// Chooses the replica for a call, and returns its index. The chooser counts the call as sent.
    fn choose(&mut self, ask: &Ask) -> usize;
    /// Reports that the replica `at` has sent the first token of a call.
    fn first_token(&mut self, _now: Duration, _id: u64, _at: usize) {}
    /// Reports that a call at the replica `at` has ended, successfully or not.
    fn ended(&mut self, _now: Duration, _id: u64, _at: usize) {}
    /// Reports that the replica `at` refused a connection, or that a call there broke.
    fn failed(&mut self, _now: Duration, _id: u64, _at: usize) {}
    /// Returns the time of the next [`Chooser::poll`]. `None` if the chooser does not poll.
    fn next_poll(&self) -> Option<Duration> {
        None
    }
    /// Polls the replicas: updates what the client knows of them from their metrics.
    fn poll(&mut self, _now: Duration, _replicas: &Replicas) {}
}
