//! Round robin: one call of each tenant in turn, regardless of weights and lengths.

use std::time::Duration;

use super::{Call, Policy, Queues};

#[derive(Debug)]
pub(crate) struct RoundRobin {
    queues: Queues,
    last: usize,
}

impl RoundRobin {
    pub(crate) fn new(bounds: Vec<usize>) -> Self {
        Self { queues: Queues::new(bounds), last: 0 }
    }
}

impl Policy for RoundRobin {
    fn arrive(&mut self, _: Duration, id: usize, call: &Call) -> bool {
        self.queues.push(call.tenant, id)
    }

    fn next(&mut self, _: Duration) -> Option<usize> {
        let tenants = self.queues.tenants();
        let turn = (1..=tenants)
            .map(|step| (self.last + step) % tenants)
            .find(|tenant| self.queues.waiting(*tenant) > 0)?;
        self.last = turn;
        self.queues.pop(turn)
    }
}
