//! Simulates the post's gateway in virtual time: a bounded queue per tenant, deficit round robin,
//! one budget (the maximum number of calls in flight at all workers), and calibrated workers.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tidegate_sim::SimConfig;
use tidegate_sim::engine::{EngineEvent, EventKind, SequenceId};
use tidegate_sim::pool::EnginePool;

use super::controllers::Controller;
use super::load::{Arrival, Load, TENANTS};

/// The limits of queues and waits at the gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimits {
    /// The maximum queue length of each tenant (`queue_max`). Calls that arrive at a full queue are
    /// rejected.
    pub(super) queue_max: [usize; TENANTS],
    /// The maximum wait. A call that has waited this long is rejected.
    pub(super) acquire_timeout: Duration,
}

impl QueueLimits {
    /// The limits of the first published deployment.
    pub(super) const FIRST: Self =
        Self { queue_max: [16; TENANTS], acquire_timeout: Duration::from_secs(30) };
    /// The limits that were published as "Split by tier": a queue of 8 calls for the paying tenant,
    /// and of 2 for the free tier.
    pub(super) const TIGHT: Self = Self { queue_max: [8, 2], ..Self::FIRST };
    /// The limits of a later publication: a maximum wait of 1 s.
    pub(super) const IMPATIENT: Self = Self { acquire_timeout: Duration::from_secs(1), ..Self::FIRST };
}

/// The weights of tenant A, which pays, and of tenant B: the number of calls that each may send in
/// its turn.
const WEIGHTS: [u32; TENANTS] = [2, 1];

/// A call and its times since the start of the run. A call without `finished` that is not `refused`
/// was waiting or in flight at the end of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Call {
    pub(super) tenant: usize,
    pub(super) came: Duration,
    pub(super) prompt: u32,
    pub(super) output: u32,
    pub(super) sent: Option<Duration>,
    pub(super) first_token: Option<Duration>,
    pub(super) finished: Option<Duration>,
    pub(super) refused: bool,
}

/// The calls of a run, and its budget over time.
#[derive(Clone, Debug, Default)]
pub(super) struct RunHistory {
    pub(super) calls: Vec<Call>,
    /// The budget (the maximum number of calls in flight at all workers together) after each
    /// change, with the time of the change.
    pub(super) budget: Vec<(Duration, usize)>,
}

/// Simulates a load to its end, and returns its calls and the changes of the budget.
pub(super) fn play(
    load: &Load,
    queue_limits: &QueueLimits,
    controller: &mut dyn Controller,
    seed: u64,
) -> RunHistory {
    let config = SimConfig::calibrated();
    let arrivals = load.draw(seed);
    let mut gateway = Gateway {
        queue_limits: *queue_limits,
        pool: EnginePool::new(config.workers, &config.engine, config.routing),
        controller,
        calls: Vec::with_capacity(arrivals.len()),
        queues: Default::default(),
        turn: 0,
        credit: 0,
        in_flight: 0,
        awaiting: 0,
        budget: Vec::new(),
        routes: HashMap::new(),
    };
    let mut arrivals = arrivals.into_iter().peekable();
    let mut stalls = load.stalls().into_iter().peekable();
    let mut events = Vec::new();
    let mut last = Duration::ZERO;
    loop {
        let next =
            [arrivals.peek().map(|arrival| arrival.at), stalls.peek().map(|&(at, _)| at), gateway.next()];
        let Some(now) = next.into_iter().flatten().min().filter(|&now| now < load.length) else { break };
        // An overdue wake-up happens now.
        let now = now.max(last);
        last = now;
        gateway.advance(now, &mut events);
        while let Some((_, factor)) = stalls.next_if(|&(at, _)| at <= now) {
            gateway.pool.set_slowdown(factor);
        }
        gateway.expire(now);
        while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= now) {
            gateway.arrive(arrival);
        }
        gateway.tick(now);
        gateway.dispatch(now);
    }
    RunHistory { calls: gateway.calls, budget: gateway.budget }
}

struct Gateway<'a> {
    queue_limits: QueueLimits,
    pool: EnginePool,
    controller: &'a mut dyn Controller,
    calls: Vec<Call>,
    queues: [VecDeque<usize>; TENANTS],
    /// The index of the tenant whose turn it is. The field `credit` is the number of calls that the
    /// tenant may still send in this turn.
    turn: usize,
    credit: u32,
    in_flight: usize,
    awaiting: usize,
    budget: Vec<(Duration, usize)>,
    /// The index of each call in flight, by the engine's id of its sequence.
    routes: HashMap<SequenceId, usize>,
}

impl Gateway<'_> {
    fn next(&self) -> Option<Duration> {
        let heads = self.queues.iter().filter_map(|queue| self.calls.get(*queue.front()?));
        let expiry = heads.map(|call| call.came + self.queue_limits.acquire_timeout).min();
        [self.pool.next_event(), expiry, self.controller.next_tick()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Duration, events: &mut Vec<EngineEvent>) {
        self.pool.advance(now, events);
        for event in events.drain(..) {
            let Some(&index) = self.routes.get(&event.id) else { continue };
            let Some(call) = self.calls.get_mut(index) else { continue };
            match event.kind {
                EventKind::Token { index: 0 } => {
                    call.first_token = Some(event.at);
                    self.awaiting -= 1;
                    self.controller.first_token(event.at, event.id.0, event.at - call.came);
                }
                EventKind::Finished => {
                    call.finished = Some(event.at);
                    self.in_flight -= 1;
                    self.routes.remove(&event.id);
                    self.controller.ended(event.at, event.id.0);
                }
                _ => {}
            }
        }
    }

    fn expire(&mut self, now: Duration) {
        for queue in &mut self.queues {
            while let Some(call) = queue.front().and_then(|&head| self.calls.get_mut(head)) {
                if call.came + self.queue_limits.acquire_timeout > now {
                    break;
                }
                call.refused = true;
                queue.pop_front();
            }
        }
    }

    fn arrive(&mut self, Arrival { at: came, tenant, prompt, output }: Arrival) {
        let (Some(queue), Some(&most)) =
            (self.queues.get_mut(tenant), self.queue_limits.queue_max.get(tenant))
        else {
            return;
        };
        let refused = queue.len() >= most;
        if !refused {
            queue.push_back(self.calls.len());
        }
        self.calls.push(Call { tenant, came, prompt, output, refused, ..Call::default() });
        // If this call need not wait, it leaves the queue before the next call of the same instant
        // arrives.
        self.dispatch(came);
    }

    fn tick(&mut self, now: Duration) {
        if self.controller.next_tick().is_some_and(|at| at <= now) {
            let queued = self.queues.iter().map(VecDeque::len).sum();
            self.controller.tick(now, queued, self.in_flight);
        }
        let budget = self.controller.budget();
        if self.budget.last().is_none_or(|&(_, last)| last != budget) {
            self.budget.push((now, budget));
        }
    }

    fn dispatch(&mut self, now: Duration) {
        while self.in_flight < self.controller.budget() && self.awaiting < self.controller.awaiting() {
            let Some(index) = self.pick() else { return };
            let Some(call) = self.calls.get_mut(index) else { return };
            let id = SequenceId(index as u64);
            call.sent = Some(now);
            self.in_flight += 1;
            self.awaiting += 1;
            self.routes.insert(id, index);
            self.controller.sent(now, id.0, u64::from(call.prompt), self.in_flight);
            // The post's prompts and answers fit any cache, so submission cannot fail.
            let Call { prompt, output, .. } = *call;
            let _ = self.pool.submit(now, id, prompt, output);
        }
    }

    /// Removes the next call from its queue and returns its index, or `None` if all queues are
    /// empty. The tenants take turns (deficit round robin, in which each call costs one). A turn
    /// ends early if the tenant's queue is empty.
    fn pick(&mut self) -> Option<usize> {
        for _ in 0..=TENANTS {
            if self.credit > 0
                && let Some(index) = self.queues.get_mut(self.turn).and_then(VecDeque::pop_front)
            {
                self.credit -= 1;
                return Some(index);
            }
            self.turn = (self.turn + 1) % TENANTS;
            self.credit = WEIGHTS.get(self.turn).copied().unwrap_or(1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::controllers::Static;
    use super::*;

    const LENGTH: Duration = Duration::from_secs(120);

    #[test]
    fn paying_tenant_gets_two_turns_in_three() {
        let played = play(&Load::steady(LENGTH, [9.0, 9.0]), &QueueLimits::FIRST, &mut Static(64), 1);
        let sent = |tenant| {
            let warm = Duration::from_secs(20);
            let calls = played.calls.iter().filter(|call| call.tenant == tenant);
            calls.filter(|call| call.sent.is_some_and(|at| at > warm)).count() as f64
        };
        let ratio = sent(0) / sent(1);
        assert!((1.98..2.02).contains(&ratio), "{ratio}");
    }

    #[test]
    fn waits_and_budget_stay_within_their_limits() {
        let played = play(&Load::steady(LENGTH, [9.0, 9.0]), &QueueLimits::IMPATIENT, &mut Static(32), 1);
        for call in &played.calls {
            let waited = call.sent.map_or(Duration::ZERO, |at| at - call.came);
            assert!(waited <= QueueLimits::IMPATIENT.acquire_timeout, "{call:?}");
            assert!(!(call.refused && call.sent.is_some()), "{call:?}");
        }
        let mut edges: Vec<(Duration, i32)> = Vec::new();
        for call in &played.calls {
            edges.extend(call.finished.map(|at| (at, -1)));
            edges.extend(call.sent.map(|at| (at, 1)));
        }
        edges.sort_unstable();
        let (mut in_flight, mut most) = (0, 0);
        for (_, change) in edges {
            in_flight += change;
            most = most.max(in_flight);
        }
        assert_eq!(most, 32);
    }
}
