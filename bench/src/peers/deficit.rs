//! Deficit round robin as a published multi-tenant vLLM gateway runs it: each round adds a tenant's weight to its credit, each call
//! takes one from it, and an empty queue loses it.

use std::time::Duration;

use super::{Call, Policy, Queues};

#[derive(Debug)]
pub(crate) struct Deficit {
    queues: Queues,
    weights: Vec<f64>,
    /// Whose turn it is.
    turn: usize,
    /// What that tenant may still send in this round; the others' is kept while they have calls.
    credit: Vec<f64>,
}

impl Deficit {
    pub(crate) fn new(weights: Vec<f64>, bounds: Vec<usize>) -> Self {
        Self { queues: Queues::new(bounds), credit: vec![0.0; weights.len()], weights, turn: 0 }
    }
}

impl Policy for Deficit {
    fn arrive(&mut self, _: Duration, id: usize, call: &Call) -> bool {
        self.queues.push(call.tenant, id)
    }

    fn next(&mut self, _: Duration) -> Option<usize> {
        if self.queues.calls.iter().all(|calls| calls.is_empty()) {
            return None;
        }
        loop {
            let waits = self.queues.waiting(self.turn) > 0;
            let credit = self.credit.get_mut(self.turn)?;
            if waits && *credit >= 1.0 {
                *credit -= 1.0;
                return self.queues.pop(self.turn);
            }
            if !waits {
                *credit = 0.0;
            }
            self.turn = (self.turn + 1) % self.queues.tenants();
            if let (Some(credit), Some(weight)) =
                (self.credit.get_mut(self.turn), self.weights.get(self.turn))
            {
                *credit += weight;
            }
        }
    }
}
