//! Deficit round robin as in a published multi-tenant vLLM gateway.
//!
//! The tenants take turns. A turn adds the tenant's weight to its credit, and each call that is
//! dispatched in the turn costs a credit of 1. A tenant whose queue is empty loses its credit.

use std::time::Duration;

use super::{Call, Policy, Queues};

#[derive(Debug)]
pub(crate) struct Deficit {
    queues: Queues,
    weights: Vec<f64>,
    /// The index of the tenant whose turn it is.
    turn: usize,
    /// For each tenant, its credit: the number of waiting calls, possibly fractional, that may
    /// still be dispatched in its turn. A tenant without waiting calls loses its credit.
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
