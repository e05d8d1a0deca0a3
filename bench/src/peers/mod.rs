//! Ways to choose who goes next, behind one door, so that each meets the same arrivals on the same server.
//!
//! None of them knows a clock. Tokens are `f64` throughout: costs are charged per weight.

mod deficit;
mod fifo;
mod ours;
mod round_robin;
mod vtc;

use std::collections::VecDeque;
use std::time::Duration;

pub(crate) use deficit::Deficit;
pub(crate) use fifo::Fifo;
pub(crate) use ours::{Charging, Ours};
pub(crate) use round_robin::RoundRobin;
pub(crate) use vtc::Vtc;

/// A call of a workload. What a policy may look at before it goes is `tenant`, `input` and `estimate`: the output is known when it has come.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) tenant: usize,
    /// Since the beginning of the run.
    pub(crate) arrives: Duration,
    pub(crate) input: f64,
    pub(crate) output: f64,
    /// What it is believed to cost in all, in tokens.
    pub(crate) estimate: f64,
}

impl Call {
    /// What it costs, in tokens.
    pub(crate) fn cost(&self) -> f64 {
        self.input + self.output
    }
}

/// Whoever decides which waiting call goes next. `id` is the call's place in the workload.
pub(crate) trait Policy {
    /// A call comes. `false`: its queue is full, and it is refused.
    fn arrive(&mut self, now: Duration, id: usize, call: &Call) -> bool;
    /// The call that goes now. Asked only while a slot is free, until it says `None`.
    fn next(&mut self, now: Duration) -> Option<usize>;
    /// Of a call that is running, so many more output tokens have come. Told before every decision.
    fn produced(&mut self, _call: &Call, _tokens: f64) {}
    /// A call has ended, and its slot is free.
    fn ended(&mut self, _now: Duration, _id: usize, _call: &Call) {}
}

/// One queue for each tenant, each with its bound: what all but the plainest share.
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

    /// `false`: it is full.
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

    /// How many of the first `count` calls are the first tenant's, where both always have calls of ten tokens waiting.
    fn share(mut policy: impl Policy, count: usize) -> usize {
        let call =
            |tenant| Call { tenant, arrives: Duration::ZERO, input: 10.0, output: 0.0, estimate: 10.0 };
        for id in 0..count * 2 {
            assert!(policy.arrive(Duration::ZERO, id, &call(usize::from(id >= count))));
        }
        (0..count).filter(|_| policy.next(Duration::ZERO).is_some_and(|id| id < count)).count()
    }

    #[test]
    fn each_shares_as_it_is_known_to() {
        let bounds = || vec![1_000; 2];
        let weights = || vec![2.0, 1.0];
        assert_eq!(share(Fifo::default(), 300), 300);
        assert_eq!(share(RoundRobin::new(bounds()), 300), 150);
        assert_eq!(share(Deficit::new(weights(), bounds()), 300), 200);
        assert_eq!(share(Vtc::new(weights(), bounds(), vec![10.0; 600]), 300), 200);
    }

    #[test]
    fn a_returning_tenant_has_no_credit_with_vtc() {
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
