//! The virtual token counter (Sheng et al., *Fairness in Serving Large Language Models*, OSDI
//! 2024), in its weighted form.
//!
//! Each tenant has a counter. A dispatched call adds `w_p` per input token, and `w_q` per output
//! token when the token is produced, both divided by the tenant's weight. The next call is one of
//! the waiting tenant with the lowest counter. When a call of a tenant without waiting calls
//! arrives, the tenant's counter is raised to the lowest counter of the waiting tenants or, if none
//! waits, to the counter of the last tenant whose queue became empty. The policy needs no
//! estimates. Here `w_p = w_q = 1`.

use std::time::Duration;

use super::{Call, Policy, Queues};

#[derive(Debug)]
pub(crate) struct Vtc {
    queues: Queues,
    weights: Vec<f64>,
    counters: Vec<f64>,
    inputs: Vec<f64>,
    last_left: Option<usize>,
}

impl Vtc {
    /// Creates the policy. `inputs` has the input tokens of each call of the workload, by index,
    /// and `bounds` the maximum queue length of each tenant.
    pub(crate) fn new(weights: Vec<f64>, bounds: Vec<usize>, inputs: Vec<f64>) -> Self {
        Self {
            queues: Queues::new(bounds),
            counters: vec![0.0; weights.len()],
            weights,
            inputs,
            last_left: None,
        }
    }

    fn counter(&self, tenant: usize) -> f64 {
        self.counters.get(tenant).copied().unwrap_or_default()
    }

    fn least(&self) -> Option<usize> {
        (0..self.queues.tenants())
            .filter(|tenant| self.queues.waiting(*tenant) > 0)
            .min_by(|a, b| self.counter(*a).total_cmp(&self.counter(*b)))
    }

    fn count(&mut self, tenant: usize, tokens: f64) {
        if let (Some(counter), Some(weight)) = (self.counters.get_mut(tenant), self.weights.get(tenant)) {
            *counter += tokens / weight;
        }
    }
}

impl Policy for Vtc {
    fn arrive(&mut self, _: Duration, id: usize, call: &Call) -> bool {
        if self.queues.waiting(call.tenant) == 0 {
            let level = self.least().or(self.last_left).map_or(0.0, |other| self.counter(other));
            if let Some(counter) = self.counters.get_mut(call.tenant) {
                *counter = counter.max(level);
            }
        }
        self.queues.push(call.tenant, id)
    }

    fn next(&mut self, _: Duration) -> Option<usize> {
        let tenant = self.least()?;
        let id = self.queues.pop(tenant)?;
        self.count(tenant, self.inputs.get(id).copied().unwrap_or_default());
        if self.queues.waiting(tenant) == 0 {
            self.last_left = Some(tenant);
        }
        Some(id)
    }

    fn produced(&mut self, call: &Call, tokens: f64) {
        self.count(call.tenant, tokens);
    }
}
