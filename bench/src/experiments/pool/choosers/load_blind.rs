//! Choosers that use no knowledge of the replicas' load.

use fastrand::Rng;

use super::{Ask, Chooser};

/// Chooses a replica at random.
pub(crate) struct Random(pub(crate) Rng);

impl Chooser for Random {
    fn choose(&mut self, ask: &Ask) -> usize {
        self.0.choice(ask.open()).unwrap_or_default()
    }
}

/// Chooses the replicas in turn. The field counts the calls from an initial offset.
pub(crate) struct RoundRobin(pub(crate) usize);

impl Chooser for RoundRobin {
    fn choose(&mut self, ask: &Ask) -> usize {
        let open = ask.open();
        self.0 = self.0.wrapping_add(1);
        open.get(self.0 % open.len().max(1)).copied().unwrap_or_default()
    }
}
