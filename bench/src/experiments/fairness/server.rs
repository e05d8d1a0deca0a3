//! A server with slots, simulated event by event under one policy. It reads no clock and uses no
//! random numbers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::fairness_records::Accounts;
use crate::schedulers::{Call, Policy};

/// A server on which each call has a constant speed at any concurrency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) slots: usize,
    /// The speed at which a call's input is processed, in tokens per second.
    pub(super) prefill: f64,
    /// The speed at which a call's output is produced, in tokens per second.
    pub(super) decode: f64,
}

/// A call that has a slot.
#[derive(Debug)]
struct Running {
    id: usize,
    began: Duration,
    /// The number of output tokens that have been reported to the policy.
    reported: f64,
}

impl Server {
    pub(super) fn service(&self, input: f64, output: f64) -> f64 {
        input / self.prefill + output / self.decode
    }

    fn duration(&self, call: &Call) -> Duration {
        Duration::from_secs_f64(self.service(call.input, call.output))
    }

    /// Returns the number of output tokens that the call has produced `ago` after its dispatch.
    fn produced(&self, call: &Call, ago: Duration) -> f64 {
        let decoding = ago.as_secs_f64() - call.input / self.prefill;
        (decoding.max(0.0) * self.decode).min(call.output)
    }

    /// Simulates the server until `horizon`, and records each event in `accounts`. `policy` chooses
    /// the next call. `calls` are in order of arrival.
    pub(super) fn serve(
        &self,
        calls: &[Call],
        horizon: Duration,
        policy: &mut dyn Policy,
        accounts: &mut Accounts,
    ) {
        let mut coming = calls.iter().enumerate().peekable();
        let mut running: Vec<Running> = Vec::with_capacity(self.slots);
        let mut ends: BinaryHeap<Reverse<(Duration, usize)>> = BinaryHeap::new();
        loop {
            let arrival = coming.peek().map(|(_, call)| call.arrives);
            let end = ends.peek().map(|Reverse((at, _))| *at);
            let Some(now) = arrival.into_iter().chain(end).min().filter(|now| *now <= horizon) else { break };
            for one in &mut running {
                let Some(call) = calls.get(one.id) else { continue };
                let produced = self.produced(call, now.saturating_sub(one.began));
                let news = produced - one.reported;
                if news > 0.0 {
                    one.reported = produced;
                    policy.produced(call, news);
                    accounts.produced(call, news);
                }
            }
            while let Some(Reverse((_, id))) = ends.peek().copied().filter(|Reverse((at, _))| *at == now) {
                ends.pop();
                running.retain(|one| one.id != id);
                let Some(call) = calls.get(id) else { continue };
                accounts.ended(call);
                policy.ended(now, id, call);
            }
            accounts.compare();
            // Calls arrive one at a time: the first ones find a slot, the others wait.
            loop {
                while running.len() < self.slots {
                    let Some(id) = policy.next(now) else { break };
                    let Some(call) = calls.get(id) else { break };
                    running.push(Running { id, began: now, reported: 0.0 });
                    ends.push(Reverse((now + self.duration(call), id)));
                    accounts.dispatched(now, call);
                }
                let Some((id, call)) = coming.next_if(|(_, call)| call.arrives == now) else { break };
                let accepted = policy.arrive(now, id, call);
                accounts.arrived(call, accepted);
            }
            accounts.busy(now, running.len());
        }
        accounts.close(horizon);
    }
}
