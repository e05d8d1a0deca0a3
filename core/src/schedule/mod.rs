//! One scheduler per target (and per tool): who holds a slot, who waits, who is next, and who is told no.
//!
//! A call is admitted when the target has a slot (`in flight < limit`), its tenant has room under its own cap, and no cool-down is on. Next is:
//! lane first, where a lane whose oldest call has been raised by its age takes turns with the lane that it reached; inside a lane, tenants by
//! start-time fair queueing; inside a tenant, the oldest call.
//!
//! Invariants, after every method that takes `now` followed by [`Scheduler::next`] until it says `None`:
//! - *work-conserving*: no call waits that could be admitted;
//! - `in flight <= limit` unless the limit was lowered (calls are never killed: slots retire as calls end) or calls were forced (observe mode);
//! - each call that was queued leaves exactly once: dispatched, refused or withdrawn.
//!
//! Knows no clock and does no I/O: each method is told `now`, and [`Scheduler::next_wake`] says when to ask again. `W` is whatever the
//! driver needs to answer a waiting call.

mod expiry;
mod ids;
mod lanes;
mod pace;
mod settings;
mod tenants;
#[cfg(test)]
mod tests;
mod ticket;
mod view;
mod waiters;
mod why;

use std::time::{Duration, Instant};

use ids::TenantId;
pub use ids::WaiterId;
use lanes::Lanes;
use pace::{Gap, Pace};
pub use settings::Settings;
use tenants::Tenants;
pub use ticket::{Charged, Grant, Refusal, Settled, Ticket, Verdict};
pub use view::{TenantView, View};
use waiters::Waiters;
pub use why::{Rule, Why};

use crate::config::OnFull;
use crate::context::Lane;
use crate::cooldown::{Cooldown, Failure, Hold, State};
use crate::error::Reason;
use crate::fairness::Tag;

/// How far a refused call's position is counted. A queue may be a million long, and may be refused whole.
const COUNTED: usize = 1000;

/// See the module's documentation.
#[derive(Debug)]
pub struct Scheduler<W> {
    limit: usize,
    on_full: OnFull,
    aging: Duration,
    in_flight: usize,
    peak: usize,
    tenants: Tenants,
    lanes: Lanes,
    waiters: Waiters<W>,
    cooldown: Cooldown,
    began: Instant,
    pace: Pace,
    gap: Gap,
    draining: bool,
}

impl<W> Scheduler<W> {
    /// A scheduler with nothing in flight.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            limit: settings.limit,
            on_full: settings.on_full,
            aging: settings.aging,
            in_flight: 0,
            peak: 0,
            tenants: Tenants::new(settings.default_tenant.clone(), &settings.tenants, settings.queue),
            lanes: Lanes::default(),
            waiters: Waiters::new(),
            cooldown: Cooldown::default(),
            began: now,
            pace: Pace::default(),
            gap: Gap::default(),
            draining: false,
        }
    }

    /// Admits the call at once, if it may go now; `Ok(None)`: it would have to wait.
    ///
    /// # Errors
    /// The refusal, where it may not even wait.
    pub fn try_admit(&mut self, now: Instant, ticket: &Ticket) -> Result<Option<Grant>, Refusal> {
        let id = self.tenants.find(&ticket.tenant);
        let Some(tenant) = self.tenants.get(id) else { return Ok(None) };
        let (has_room, waiting, bound) = (tenant.in_flight < tenant.cap, tenant.waiting, tenant.queue);
        let in_time = ticket.deadline > now;
        if !self.draining && in_time && has_room && self.in_flight < self.limit && self.lanes.is_empty() {
            match self.cooldown.ready(now, self.limit) {
                Ok(()) => return Ok(Some(self.grant(now, id, ticket))),
                Err(_) => self.gap.stop(now),
            }
        }
        let refuse = |reason, retry_after| Err(Refusal { reason, position: waiting, retry_after });
        if self.draining {
            return refuse(Reason::Draining, None);
        }
        if !in_time {
            return refuse(Reason::Deadline, Some(self.pace.expected(self.in_flight + waiting)));
        }
        let cooling = self.cooldown.until().filter(|until| *until > now);
        if let Some(until) = cooling.filter(|until| *until > ticket.deadline) {
            return refuse(self.closed_reason(), Some(until.saturating_duration_since(now)));
        }
        if ticket.charged.is_some() {
            return Ok(None);
        }
        if self.on_full == OnFull::Refuse {
            return match cooling {
                Some(until) => refuse(self.closed_reason(), Some(until.saturating_duration_since(now))),
                None => refuse(Reason::NoSlot, Some(self.pace.expected(1))),
            };
        }
        if waiting >= bound {
            return refuse(Reason::QueueFull, Some(self.pace.expected(waiting + 1)));
        }
        Ok(None)
    }

    /// Queues a call that [`Scheduler::try_admit`] said would have to wait.
    pub fn enqueue(&mut self, now: Instant, ticket: Ticket, who: W) -> WaiterId {
        let tenant = self.tenants.find(&ticket.tenant);
        let (lane, queued_at, open) = (ticket.lane, ticket.queued_at, self.open(now));
        let id = self.waiters.insert(who, tenant, ticket, open);
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.waiting += 1;
            tenant.lines[lane as usize].calls.insert((queued_at, id));
        }
        self.place(tenant, lane);
        self.watch(now);
        id
    }

    /// Admits a call whatever the rules say, and tells what they would have said (observe mode).
    pub fn force(&mut self, now: Instant, ticket: &Ticket) -> (Grant, Result<Verdict, Refusal>) {
        let verdict = match self.try_admit(now, ticket) {
            Ok(Some(grant)) => return (grant, Ok(Verdict::Admitted)),
            Ok(None) => Ok(Verdict::WouldWait),
            Err(refusal) => Err(refusal),
        };
        let id = self.tenants.find(&ticket.tenant);
        let grant = self.grant(now, id, ticket);
        // It may have filled the tenant's cap while others of its calls wait.
        self.place_all(id);
        (grant, verdict)
    }

    /// The next waiting call that goes now, with its slot. Ask until `None` after each event.
    pub fn next(&mut self, now: Instant) -> Option<(W, Grant)> {
        let next = if self.in_flight < self.limit && !self.lanes.is_empty() {
            match self.cooldown.ready(now, self.limit) {
                Ok(()) => self.lanes.next(now, self.aging),
                Err(_) => None,
            }
        } else {
            None
        };
        let Some((lane, tenant)) = next else {
            self.gap.stop(now);
            return None;
        };
        let (_, id) = self.tenants.get(tenant)?.lines[lane as usize].calls.first().copied()?;
        let waiter = self.take(id)?;
        let mut grant = self.grant(now, tenant, &waiter.ticket);
        grant.spent = self.open(now).saturating_sub(waiter.since);
        self.place_all(tenant);
        Some((waiter.who, grant))
    }

    /// Takes back a slot. Where nobody judged the attempt, it ended without an answer: if it was a probe, the next one is.
    pub fn release(&mut self, now: Instant, grant: Grant) {
        if !grant.judged {
            self.cooldown.inconclusive(grant.epoch);
        }
        self.in_flight -= 1;
        self.pace.released(now);
        if let Some(tenant) = self.tenants.get_mut(grant.tenant) {
            tenant.in_flight -= 1;
        }
        self.place_all(grant.tenant);
        self.watch(now);
    }

    /// Takes a call out of the queue (its caller has gone away). `false`: it had left already.
    pub fn withdraw(&mut self, id: WaiterId) -> bool {
        let Some(waiter) = self.take(id) else { return false };
        self.place(waiter.tenant, waiter.ticket.lane);
        true
    }

    /// What a call took is known: its tenant's account is put right, and the budgets are.
    pub fn settle(&mut self, now: Instant, grant: &mut Grant, settled: &Settled) {
        let _ = now;
        let correction = settled.cost - grant.charged.cost;
        grant.charged.cost = settled.cost;
        if let Some(tenant) = self.tenants.get_mut(grant.tenant) {
            let weight = tenant.weight;
            tenant.lines[grant.lane as usize].account.correct(correction, weight);
        }
        self.place(grant.tenant, grant.lane);
    }

    /// The upstream accepted the attempt that holds this slot.
    pub fn succeeded(&mut self, now: Instant, grant: &mut Grant) {
        grant.judged = true;
        self.cooldown.succeeded(now, grant.epoch, self.limit);
    }

    /// The upstream failed it in a way that a retry may mend; `call` tells calls apart, `jitter` is uniform in [0, 1).
    pub fn failed(
        &mut self,
        now: Instant,
        grant: &mut Grant,
        call: u64,
        failure: Failure,
        delay: Option<Duration>,
        jitter: f64,
    ) -> Hold {
        grant.judged = true;
        self.cooldown.failed(now, call, failure, grant.epoch, delay, jitter)
    }

    /// Sets the number of slots in force. Lowering it kills nothing.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// From now on nothing is admitted, and what waits is refused.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// When to call [`Scheduler::expired`] and [`Scheduler::next`] again, if nothing else happens before. Time has moved since they were last
    /// asked: what has come due meanwhile is due now.
    pub fn next_wake(&mut self, now: Instant) -> Option<Instant> {
        let (mut wake, _) = self.waiters.first_deadline()?;
        // First, for it may open the target, and so set the wait budgets going.
        let ready = self.cooldown.ready(now, self.limit);
        if !self.cooldown.is_closed()
            && let Some((ends, _)) = self.waiters.first_budget()
        {
            let ends = now.checked_add(ends.saturating_sub(self.open(now)));
            wake = ends.map_or(wake, |ends| wake.min(ends));
        }
        match ready {
            Err(Some(at)) => Some(wake.min(at)),
            Ok(()) if self.in_flight < self.limit && !self.lanes.is_empty() => Some(now),
            _ => Some(wake),
        }
    }

    /// What a person would want to know.
    pub fn view(&self, now: Instant) -> View {
        View {
            limit: self.limit,
            in_flight: self.in_flight,
            peak: self.peak,
            waiting: self.waiters.len(),
            state: self.cooldown.shown(now),
            cool_for: self.cooldown.until().map(|until| until.saturating_duration_since(now)),
            gap: self.gap.total,
            up: now.saturating_duration_since(self.began),
            tenants: self
                .tenants
                .iter()
                .map(|t| TenantView {
                    name: t.name.clone(),
                    in_flight: t.in_flight,
                    peak: t.peak,
                    waiting: t.waiting,
                })
                .collect(),
        }
    }

    /// Whether any call waits.
    pub fn has_waiting(&self) -> bool {
        self.waiters.len() > 0
    }

    /// Whether nothing may be admitted for some time yet.
    pub fn is_cooling(&self, now: Instant) -> bool {
        self.cooldown.until().is_some_and(|until| until > now)
    }

    /// Whether neither a cool-down nor the way back from one is on.
    pub fn is_open(&self) -> bool {
        self.cooldown.state() == State::Open
    }

    fn grant(&mut self, now: Instant, id: TenantId, ticket: &Ticket) -> Grant {
        let (lane, cost) = (ticket.lane, ticket.cost);
        self.in_flight += 1;
        self.peak = self.peak.max(self.in_flight);
        self.cooldown.admitted(now, self.in_flight >= self.limit);
        let mut charged = ticket.charged.unwrap_or(Charged { tag: Tag::default(), cost });
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.in_flight += 1;
            tenant.peak = tenant.peak.max(tenant.in_flight);
            if ticket.charged.is_none() {
                let account = &mut tenant.lines[lane as usize].account;
                let time = self.lanes.time_mut(lane);
                charged.tag = time.start(account);
                time.dispatch(account, charged.tag, cost, tenant.weight);
            }
        }
        Grant {
            tenant: id,
            lane,
            charged,
            epoch: self.cooldown.epoch(),
            spent: Duration::ZERO,
            judged: false,
        }
    }

    fn take(&mut self, id: WaiterId) -> Option<waiters::Waiter<W>> {
        let waiter = self.waiters.remove(id)?;
        if let Some(tenant) = self.tenants.get_mut(waiter.tenant) {
            tenant.waiting -= 1;
            tenant.lines[waiter.ticket.lane as usize].calls.remove(&(waiter.ticket.queued_at, id));
        }
        Some(waiter)
    }

    fn place_all(&mut self, id: TenantId) {
        if self
            .tenants
            .get(id)
            .is_some_and(|tenant| tenant.waiting > 0 || tenant.lines.iter().any(|l| l.standing.is_some()))
        {
            Lane::ALL.into_iter().for_each(|lane| self.place(id, lane));
        }
    }

    /// Puts a tenant's line of one lane among the ready ones, or takes it out.
    fn place(&mut self, id: TenantId, lane: Lane) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let may_go = tenant.in_flight < tenant.cap;
        let line = &mut tenant.lines[lane as usize];
        let head = line.calls.first().filter(|_| may_go).map(|(age, id)| {
            (*age, self.waiters.get(*id).and_then(|w| w.ticket.charged.map(|charged| charged.tag)))
        });
        self.lanes.place(lane, id, line, head);
    }

    /// Begins to count a gap, where a call waits that could go.
    fn watch(&mut self, now: Instant) {
        let could_go = self.in_flight < self.limit && !self.lanes.is_empty() && self.is_open();
        self.gap.watch(now, could_go);
    }

    /// Why nothing goes: the provider's word, or its silence.
    fn closed_reason(&self) -> Reason {
        if self.cooldown.is_down() { Reason::Outage } else { Reason::CoolDown }
    }

    /// Time that the target has been open: wait budgets run on this clock.
    fn open(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began).saturating_sub(self.cooldown.closed(now))
    }
}
