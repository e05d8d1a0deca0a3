//! The scheduling policies that experiments compare, behind one trait ([`Policy`]). So each policy
//! gets the same arrivals on the same server.
//!
//! No policy reads a clock. Numbers of tokens are `f64`, because they are divided by weights.

mod deficit;
mod fifo;
mod round_robin;
mod tidegate_scheduler;
mod virtual_token_counter;

use std::collections::VecDeque;
use std::time::Duration;

pub(crate) use deficit::Deficit;
pub(crate) use fifo::Fifo;
pub(crate) use round_robin::RoundRobin;
pub(crate) use tidegate_scheduler::{Charging, Ours};
pub(crate) use virtual_token_counter::Vtc;

/// A call of a workload. Its lengths `input` and `output` are in tokens.
///
/// Before a call is dispatched, a policy may only read `tenant`, `input` and `estimate`.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) tenant: usize,
    /// Time since the start of the run.
    pub(crate) arrives: Duration,
    pub(crate) input: f64,
    pub(crate) output: f64,
    /// The cost that the client estimates before it sends the call, in tokens (input and output
    /// together).
    pub(crate) estimate: f64,
}

impl Call {
    /// Returns the true cost in tokens, input and output together.
    pub(crate) fn cost(&self) -> f64 {
        self.input + self.output
    }
}

/// A policy that decides which waiting call is dispatched next. `id` is the index of a call in the
/// workload, and `now` is the time since the start of the run.
pub(crate) trait Policy {
    /// Queues an arriving call. Returns `false` if the tenant's queue is full, in which case the
    /// call is rejected.
    fn arrive(&mut self, now: Duration, id: usize, call: &Call) -> bool;
    /// Returns the call to dispatch next, or `None` if no call can be dispatched. Called while a
    /// slot is free.
    fn next(&mut self, now: Duration) -> Option<usize>;
    /// Reports that a running call has produced `tokens` more output tokens. Called before each
    /// decision.
    fn produced(&mut self, _call: &Call, _tokens: f64) {}
    /// Reports that a call has ended and released its slot.
    fn ended(&mut self, _now: Duration, _id: usize, _call: &Call) {}
}

/// One bounded queue per tenant.
#[derive(Debug)]
struct Queues {
    calls: Vec<VecDeque<usize>>,
    bounds: Vec<usize>,
}

impl Queues {
    fn new(bounds: Vec<usize>) -> Self {
        Self { calls: bounds.iter().map(|_| VecDeque::new()).collect(), bounds }
    }

    fn tenants(&self) -> usize {
        self.calls.len()
    }

    fn waiting(&self, tenant: usize) -> usize {
        self.calls.get(tenant).map_or(0, VecDeque::len)
    }

    /// Queues a call. Returns `false` if the tenant's queue is full.
    fn push(&mut self, tenant: usize, id: usize) -> bool {
        let room = self.bounds.get(tenant).is_some_and(|bound| self.waiting(tenant) < *bound);
        if room && let Some(calls) = self.calls.get_mut(tenant) {
            calls.push_back(id);
        }
        room
    }

    fn pop(&mut self, tenant: usize) -> Option<usize> {
        self.calls.get_mut(tenant)?.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of the first `count` dispatched calls are of the first of two tenants. Both
    /// tenants always have calls of ten tokens waiting.
    fn share(mut policy: impl Policy, count: usize) -> usize {
        let call =
            |tenant| Call { tenant, arrives: Duration::ZERO, input: 10.0, output: 0.0, estimate: 10.0 };
        for id in 0..count * 2 {
            assert!(policy.arrive(Duration::ZERO, id, &call(usize::from(id >= count))));
        }
        (0..count).filter(|_| policy.next(Duration::ZERO).is_some_and(|id| id < count)).count()
    }

    #[test]
    fn each_policy_has_its_published_shares() {
        let bounds = || vec![1_000; 2];
        let weights = || vec![2.0, 1.0];
        assert_eq!(share(Fifo::default(), 300), 300);
        assert_eq!(share(RoundRobin::new(bounds()), 300), 150);
        assert_eq!(share(Deficit::new(weights(), bounds()), 300), 200);
        assert_eq!(share(Vtc::new(weights(), bounds(), vec![10.0; 600]), 300), 200);
    }

    #[test]
    fn returning_tenant_has_no_credit_with_vtc() {
        let call =
            |tenant| Call { tenant, arrives: Duration::ZERO, input: 10.0, output: 0.0, estimate: 10.0 };
        let mut vtc = Vtc::new(vec![1.0; 2], vec![1_000; 2], vec![10.0; 300]);
        (0..200).for_each(|id| assert!(vtc.arrive(Duration::ZERO, id, &call(0))));
        (0..100).for_each(|_| assert!(vtc.next(Duration::ZERO).is_some()));
        (200..300).for_each(|id| assert!(vtc.arrive(Duration::ZERO, id, &call(1))));
        let of_the_second = (0..20).filter(|_| vtc.next(Duration::ZERO) >= Some(200)).count();
        assert_eq!(of_the_second, 10);
    }
}
