//! Replica selection policies: ours and those of others.

mod counts;
mod hashing;
mod oracle;
mod ours;
mod polls;
mod simple;
mod tree;

use std::time::Duration;

use tidegate::policy::placement::ReplicaSet;

pub(crate) use self::counts::{Argmin, TwoChoices};
pub(crate) use self::hashing::BoundedHashing;
pub(crate) use self::oracle::Oracle;
pub(crate) use self::ours::{Ours, Without};
pub(crate) use self::polls::Polled;
pub(crate) use self::simple::{Random, RoundRobin};
pub(crate) use self::tree::LongestMatch;

use super::replicas::Replicas;
use super::workload::Call;

/// A call that needs a replica.
pub(crate) struct Ask<'a> {
    pub(crate) now: Duration,
    pub(crate) id: u64,
    pub(crate) call: &'a Call,
    /// The replicas that were tried already.
    pub(crate) tried: ReplicaSet,
    /// The true state, which only the oracle may read, except through [`Ask::open`].
    pub(crate) replicas: &'a Replicas,
}

impl Ask<'_> {
    /// Returns the replicas that choosers other than ours may use. They learn at once which
    /// replicas are down or back, which is at least as good as any health check.
    pub(crate) fn open(&self) -> Vec<usize> {
        let open = self.replicas.up().less(self.tried);
        let open = if open.is_empty() { self.replicas.up() } else { open };
        open.iter().collect()
    }
}

/// A client's selection policy. It knows its own calls at once, and other calls from its looks.
pub(crate) trait Chooser {
    /// Returns the replica for a call. The call counts as sent there.
    fn choose(&mut self, ask: &Ask) -> usize;
    /// Reports the first token of a call.
    fn first_token(&mut self, _now: Duration, _id: u64, _at: usize) {}
    /// Reports the end of a call, successful or not.
    fn ended(&mut self, _now: Duration, _id: u64, _at: usize) {}
    /// Reports that a replica refused a connection, or that an open call broke.
    fn failed(&mut self, _now: Duration, _id: u64, _at: usize) {}
    /// Returns the time of the next [`Chooser::look`], if any.
    fn next_look(&self) -> Option<Duration> {
        None
    }
    /// Looks at the replicas.
    fn look(&mut self, _now: Duration, _replicas: &Replicas) {}
}
