//! Simulates slots that serve a list of calls, in the order of Tidegate's scheduler or of another
//! policy.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::Lane;
use tidegate::policy::fairness::Tag;
use tidegate::policy::schedule::{Grant, Scheduler, SchedulerSettings, Settled, Ticket};
use tidegate::protocol::Usage;

use crate::virtual_time;

/// A call of the list. Its cost is its service time in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) at: Duration,
    pub(super) tenant: usize,
    pub(super) lane: Lane,
    pub(super) service: Duration,
}

impl Call {
    fn cost(&self) -> f64 {
        self.service.as_secs_f64() * 1000.0
    }
}

/// A policy that decides which waiting call is dispatched next. `id` is the index of a call in the
/// list.
pub(super) trait Order {
    fn arrive(&mut self, now: Duration, id: usize, call: &Call);
    /// Returns the next call, or `None` if none can be dispatched. Called while a slot is free.
    fn next(&mut self, now: Duration) -> Option<usize>;
    fn ended(&mut self, _now: Duration, _id: usize, _call: &Call) {}
    /// Returns a running call that is to be cancelled and queued again in favour of a more urgent
    /// one, or `None`. Called until it returns `None`.
    fn reclaim(&mut self, _now: Duration, _calls: &[Call]) -> Option<usize> {
        None
    }
}

/// The time at which each call was dispatched. `None` if the call was still waiting at the end, or
/// would have arrived after it.
pub(super) type DispatchTimes = Vec<Option<Duration>>;

/// Simulates `slots` slots until `horizon`, and returns the times of dispatch. `calls` are in order
/// of arrival. If calls end and arrive at the same time, slots are released first.
pub(super) fn play(mut order: impl Order, calls: &[Call], slots: usize, horizon: Duration) -> DispatchTimes {
    let mut dispatched = vec![None; calls.len()];
    let mut ends: BinaryHeap<Reverse<(Duration, usize)>> = BinaryHeap::new();
    let mut arrivals = calls.iter().enumerate().peekable();
    loop {
        let end = ends.peek().map(|Reverse((at, _))| *at);
        let arrival = arrivals.peek().map(|(_, call)| call.at);
        let Some(now) = end.into_iter().chain(arrival).min().filter(|now| *now <= horizon) else {
            return dispatched;
        };
        while let Some(Reverse((_, id))) = ends.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            ends.pop();
            if let Some(call) = calls.get(id) {
                order.ended(now, id, call);
            }
        }
        while let Some((id, call)) = arrivals.next_if(|(_, call)| call.at <= now) {
            order.arrive(now, id, call);
        }
        loop {
            while ends.len() < slots
                && let Some(id) = order.next(now)
            {
                if let (Some(call), Some(place)) = (calls.get(id), dispatched.get_mut(id)) {
                    *place = Some(now);
                    ends.push(Reverse((now + call.service, id)));
                }
            }
            let Some(cancelled) = order.reclaim(now, calls) else { break };
            ends.retain(|Reverse((_, id))| *id != cancelled);
            if let Some(place) = dispatched.get_mut(cancelled) {
                *place = None;
            }
        }
    }
}

/// Tidegate's scheduler, as an [`Order`].
pub(super) struct Ours {
    scheduler: Scheduler<usize>,
    began: Instant,
    grants: HashMap<usize, Box<Grant>>,
}

impl Ours {
    pub(super) fn new(settings: &SchedulerSettings) -> Self {
        let began = virtual_time::time_origin();
        Self { scheduler: Scheduler::new(settings, began), began, grants: HashMap::new() }
    }
}

impl Ours {
    fn queue(&mut self, now: Duration, id: usize, call: &Call, queue_tag: Option<Tag>) {
        let (now, queued_at) = (self.began + now, self.began + call.at);
        let ticket = Ticket {
            lane: call.lane,
            cost: call.cost(),
            queue_tag,
            ..Ticket::new(
                Arc::from(format!("t{}", call.tenant)),
                queued_at,
                queued_at + Duration::from_secs(24 * 3600),
            )
        };
        // The caller dispatches before time passes, so a call that can run starts at once.
        self.scheduler.enqueue(now, ticket, id);
    }
}

impl Order for Ours {
    fn arrive(&mut self, now: Duration, id: usize, call: &Call) {
        self.queue(now, id, call, None);
    }

    fn next(&mut self, now: Duration) -> Option<usize> {
        let (id, mut grant) = self.scheduler.next(self.began + now)?;
        grant.sent = true;
        self.grants.insert(id, grant);
        Some(id)
    }

    fn ended(&mut self, now: Duration, id: usize, call: &Call) {
        let (now, Some(mut grant)) = (self.began + now, self.grants.remove(&id)) else { return };
        self.scheduler.settle(now, &mut grant, &Settled { usage: Usage::default(), cost: call.cost() });
        self.scheduler.on_success(now, &mut grant);
        self.scheduler.release(now, grant);
    }

    fn reclaim(&mut self, now: Duration, calls: &[Call]) -> Option<usize> {
        let name = self.scheduler.preempt(self.began + now)?;
        let id = self.grants.iter().find(|(_, grant)| grant.id == name).map(|(id, _)| *id)?;
        let grant = self.grants.remove(&id)?;
        let queue_tag = Some(grant.queue_tag());
        self.scheduler.release(self.began + now, grant);
        self.queue(now, id, calls.get(id)?, queue_tag);
        Some(id)
    }
}

/// Strict priority of lanes, first come, first served in each lane. Of all policies that neither
/// interrupt calls nor keep slots free, this policy has the shortest waits in the highest lane.
#[derive(Default)]
pub(super) struct Strict([VecDeque<usize>; 3]);

impl Order for Strict {
    fn arrive(&mut self, _: Duration, id: usize, call: &Call) {
        if let Some(lane) = self.0.get_mut(call.lane as usize) {
            lane.push_back(id);
        }
    }

    fn next(&mut self, _: Duration) -> Option<usize> {
        self.0.iter_mut().find_map(VecDeque::pop_front)
    }
}

/// A policy with ageing by turns: once the oldest batch call has waited for `after`, every second
/// dispatch is a batch call.
pub(super) struct Turns {
    after: Duration,
    urgent: VecDeque<usize>,
    batch: VecDeque<(Duration, usize)>,
    was_batch: bool,
}

impl Turns {
    pub(super) fn after(after: Duration) -> Self {
        Self { after, urgent: VecDeque::new(), batch: VecDeque::new(), was_batch: false }
    }
}

impl Order for Turns {
    fn arrive(&mut self, now: Duration, id: usize, call: &Call) {
        match call.lane {
            Lane::Batch => self.batch.push_back((now, id)),
            _ => self.urgent.push_back(id),
        }
    }

    fn next(&mut self, now: Duration) -> Option<usize> {
        let is_old = self.batch.front().is_some_and(|(since, _)| now - *since >= self.after);
        self.was_batch = self.urgent.is_empty() || (is_old && !self.was_batch);
        if self.was_batch { self.batch.pop_front().map(|(_, id)| id) } else { self.urgent.pop_front() }
    }
}

/// First come, first served. Holds the indices of the waiting calls.
#[derive(Default)]
pub(super) struct Fifo(VecDeque<usize>);

impl Order for Fifo {
    fn arrive(&mut self, _: Duration, id: usize, _: &Call) {
        self.0.push_back(id);
    }

    fn next(&mut self, _: Duration) -> Option<usize> {
        self.0.pop_front()
    }
}

/// Start-time fair queueing as published. Its virtual time is the highest start tag of the
/// dispatched calls.
#[derive(Default)]
pub(super) struct StartTime {
    now: f64,
    finish: HashMap<usize, f64>,
    /// The queues of the tenants.
    waiting: HashMap<usize, Line>,
}

/// The waiting calls of a tenant, with their costs in milliseconds.
struct Line {
    /// The virtual time (see [`StartTime`]) at which the tenant began to wait: when a call arrived
    /// and its queue was empty.
    since: f64,
    calls: VecDeque<(usize, f64)>,
}

impl Order for StartTime {
    fn arrive(&mut self, _: Duration, id: usize, call: &Call) {
        let new = || Line { since: self.now, calls: VecDeque::new() };
        self.waiting.entry(call.tenant).or_insert_with(new).calls.push_back((id, call.cost()));
    }

    fn next(&mut self, _: Duration) -> Option<usize> {
        let tag = |(tenant, line): (&usize, &Line)| {
            let finish = self.finish.get(tenant).copied().unwrap_or_default();
            Some((line.since.max(finish), line.calls.front()?.0, *tenant))
        };
        let tags = self.waiting.iter().filter_map(tag);
        let (start, _, tenant) = tags.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        let line = self.waiting.get_mut(&tenant)?;
        let (id, cost) = line.calls.pop_front()?;
        if line.calls.is_empty() {
            self.waiting.remove(&tenant);
        }
        self.now = self.now.max(start);
        self.finish.insert(tenant, start + cost);
        Some(id)
    }
}
