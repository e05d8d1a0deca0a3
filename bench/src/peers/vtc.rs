//! The virtual token counter (Sheng et al., *Fairness in Serving Large Language Models*, OSDI 2024), with its weighted form.
//!
//! A counter for each tenant: `w_p` for each input token when a call goes, `w_q` for each output token as it comes, over the weight. The
//! least counter among those that wait goes next. Who comes back is lifted to the least of those that wait, or, where nobody does, to the
//! counter of the last that left. It needs no estimate. Here `w_p = w_q = 1`, as billed tokens are.

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
    /// `inputs`: the input tokens of each call of the workload, which are known when it comes.
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
