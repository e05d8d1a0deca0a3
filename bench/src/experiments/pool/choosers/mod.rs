//! Ways to choose a replica: ours, and those of others.

mod counts;
mod hashing;
mod oracle;
mod ours;
mod polls;
mod simple;
mod tree;

use std::time::Duration;

use tidegate::placement::ReplicaSet;

pub(crate) use self::counts::{Argmin, TwoChoices};
pub(crate) use self::hashing::BoundedHashing;
pub(crate) use self::oracle::Oracle;
pub(crate) use self::ours::{Ours, Without};
pub(crate) use self::polls::Polled;
pub(crate) use self::simple::{Random, RoundRobin};
pub(crate) use self::tree::LongestMatch;

use super::replicas::Replicas;
use super::workload::Call;

/// A call that wants a place.
pub(crate) struct Ask<'a> {
    pub(crate) now: Duration,
    pub(crate) id: u64,
    pub(crate) call: &'a Call,
    /// It was there already.
    pub(crate) tried: ReplicaSet,
    /// The truth, which only the oracle may look at, but for [`Ask::open`].
    pub(crate) replicas: &'a Replicas,
}

impl Ask<'_> {
    /// Where others than ours may go: they are told at once who is down and who is back, and so have no worse a view than any health check gives.
    pub(crate) fn open(&self) -> Vec<usize> {
        let open = self.replicas.up().less(self.tried);
        let open = if open.is_empty() { self.replicas.up() } else { open };
        open.iter().collect()
    }
}

/// One client's way to choose. It knows what it sent itself at once, and of others what it sees when it looks.
pub(crate) trait Chooser {
    /// Where the call goes; it counts as sent there.
    fn choose(&mut self, ask: &Ask) -> usize;
    /// Its first token came.
    fn first_token(&mut self, _now: Duration, _id: u64, _at: usize) {}
    /// It is over, well or not.
    fn ended(&mut self, _now: Duration, _id: u64, _at: usize) {}
    /// Nobody listens there, or what was open broke.
    fn failed(&mut self, _now: Duration, _id: u64, _at: usize) {}
    /// When it wants to look around.
    fn next_look(&self) -> Option<Duration> {
        None
    }
    /// It looks around.
    fn look(&mut self, _now: Duration, _replicas: &Replicas) {}
}
