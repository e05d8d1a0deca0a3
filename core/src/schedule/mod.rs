//! One scheduler per target (and per tool): who holds a slot, who waits, who is next, and who is told no.
//!
//! A call is *admissible* when the target has a slot (`in flight < slots in force`, and fewer calls await their first token than
//! may), its tenant has room under its own cap and in its own tokens, the
//! rate budgets and the engine's memory have room for it, and no cool-down is on. A budget has room for a call that is larger than it
//! when it is full: what it takes beyond becomes debt.
//!
//! Who goes next, of those that are admissible (`order`): tenants and lanes that hold less than their floor; then by lane, where a lane whose
//! oldest call has been raised by its age goes first for an eighth of the capacity (`lanes`); inside a lane, tenants by start-time fair queueing on
//! cost; inside a tenant, the oldest call. A head that does not fit is overtaken until it is *aged*; then what it lacks is *held* for it.
//!
//! Invariants, after every method that takes `now` followed by [`Scheduler::next`] until it says `None`:
//! - *work-conserving*: no call waits that is admissible, but for those that would take what is held, and those behind an aged head of their line;
//! - `in flight <= slots in force` unless their number fell (calls are never killed: slots retire as calls end) or calls were forced (observe mode);
//! - each call that was queued leaves exactly once: dispatched, refused or withdrawn;
//! - what an attempt was charged is given back, settled, or stands: once.
//!
//! Knows no clock and does no I/O: each method is told `now`, and [`Scheduler::next_wake`] says when to ask again. `W` is whatever the
//! driver needs to answer a waiting call.

mod claim;
mod door;
mod expiry;
mod explain;
mod floors;
mod grant;
mod ids;
mod lanes;
mod limiter;
mod load;
mod order;
mod own;
mod pace;
mod pool;
mod predict;
mod ranked;
mod reason;
mod reclaim;
mod rooms;
mod settings;
mod shed;
mod span;
mod stock;
mod tardy;
mod tenants;
#[cfg(test)]
mod tests;
mod ticket;
mod upstream;
mod view;
mod waiters;
mod wake;
mod why;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use claim::{Claim, Kind};
use explain::Stood;
use floors::Floors;
pub use grant::{Grant, GrantId};
use ids::TenantId;
pub use ids::WaiterId;
use lanes::{Head, Lanes, Turn};
use load::Load;
use order::{Hold, Right};
use pace::{Gap, Pace};
pub use reason::Reason;
use reclaim::Lent;
pub use settings::Settings;
use shed::{Crowds, Space};
pub use stock::Resources;
use stock::Stock;
use tenants::{Tenant, Tenants};
pub use ticket::{Refusal, Settled, Ticket, Verdict};
pub use upstream::Moved;
use upstream::Upstream;
pub use view::{LaneView, TenantView, View};
use waiters::{Waiter, Waiters};
pub use why::{Rule, Why};

use crate::context::Lane;
use crate::cooldown::{Cooldown, State};

/// How far a refused call's position is counted. A queue may be a million long, and may be refused whole.
const COUNTED: usize = 1000;

/// See the module's documentation.
#[derive(Debug)]
pub struct Scheduler<W> {
    /// Without the tenants, which have a table of their own.
    settings: Settings,
    upstream: Upstream,
    in_flight: usize,
    by_lane: [usize; 3],
    peak: usize,
    grants: u64,
    last_grant: Option<Instant>,
    stock: Stock,
    /// Whether tenants have tokens of their own.
    own_tokens: bool,
    tenants: Tenants,
    lanes: Lanes,
    waiters: Waiters<W>,
    load: Load,
    crowds: Crowds,
    floors: Floors,
    lent: Option<Lent>,
    /// Those who gave up their places to more urgent ones, until they are told.
    displaced: Vec<(W, Refusal)>,
    hold: Option<Hold>,
    cooldown: Cooldown,
    began: Instant,
    /// Of slots that come free.
    pace: Pace,
    /// Of first tokens that come, where calls that await theirs are bounded.
    first_tokens: Pace,
    gap: Gap,
    stood: Stood,
    draining: bool,
}

impl<W> Scheduler<W> {
    /// A scheduler over slots alone, with nothing in flight.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        Self::over(settings, Stock::default(), now)
    }

    /// A scheduler over slots, the provider's budgets, and the engine's memory where its size is known.
    pub fn with(settings: &Settings, resources: Resources, now: Instant) -> Self {
        Self::over(settings, resources.into(), now)
    }

    fn over(settings: &Settings, mut stock: Stock, now: Instant) -> Self {
        let upstream = Upstream::new(settings, now);
        if upstream.pool().is_some() {
            // Memory is each replica's.
            stock.without_memory();
        }
        let tenants = Tenants::new(settings, now);
        let limits_tokens = |tenant: &crate::config::TenantConfig| tenant.tpm.is_some();
        Self {
            upstream,
            in_flight: 0,
            by_lane: [0; 3],
            peak: 0,
            grants: 0,
            last_grant: None,
            own_tokens: limits_tokens(&settings.default_tenant)
                || settings.tenants.values().any(limits_tokens),
            stock,
            floors: Floors::new(&settings.lanes, &tenants),
            tenants,
            lanes: Lanes::default(),
            waiters: Waiters::new(),
            load: Load::default(),
            crowds: Crowds::default(),
            lent: settings.reclaim.then(Lent::default),
            displaced: Vec::new(),
            hold: None,
            cooldown: Cooldown::default(),
            began: now,
            pace: Pace::default(),
            first_tokens: Pace::default(),
            gap: Gap::default(),
            stood: Stood::default(),
            draining: false,
            settings: Settings { tenants: BTreeMap::new(), ..settings.clone() },
        }
    }

    /// Queues a call that [`Scheduler::try_admit`] said would have to wait. Where the queue is full, a less urgent one gives up its place: it is
    /// among those that [`Scheduler::expired`] names next.
    pub fn enqueue(&mut self, now: Instant, ticket: Ticket, who: W) -> WaiterId {
        let id = self.tenants.find(&ticket.tenant, &self.lanes, now);
        if ticket.charged.is_none()
            && let Space::Of(victim) = self.space(id, ticket.lane)
        {
            self.displace(now, victim);
        }
        let claim = self.claim(&ticket);
        if let Some(pool) = self.upstream.pool_mut() {
            pool.came(claim.kind);
        }
        let order = self.order_of(&ticket);
        let open = self.open(now);
        let lane = ticket.lane;
        let fresh = ticket.charged.is_none();
        let call = self.waiters.insert(Waiter::new(who, id, ticket, claim, order, open));
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.waiting += 1;
            let line = &mut tenant.lines[lane as usize];
            line.calls.insert((order, call), claim);
            self.load.came(lane, &claim.need, line.calls.len(), tenant.weight);
            if fresh {
                line.fresh += 1;
                self.crowds.update(lane, id, tenant);
            }
        }
        self.place(id, lane);
        self.watch(now);
        call
    }

    /// Admits a call whatever the rules say, and tells what they would have said (observe mode).
    pub fn force(&mut self, now: Instant, ticket: &Ticket) -> (Grant, Result<Verdict, Refusal>) {
        let verdict = match self.try_admit(now, ticket) {
            Ok(Some(grant)) => return (grant, Ok(Verdict::Admitted)),
            Ok(None) => Ok(Verdict::WouldWait),
            Err(refusal) => Err(refusal),
        };
        let id = self.tenants.find(&ticket.tenant, &self.lanes, now);
        let kind = self.kind(ticket);
        if let Some(pool) = self.upstream.pool_mut() {
            pool.survey();
        }
        let grant = self.grant(now, id, ticket, kind, None, false);
        // It may have filled the tenant's cap while others of its calls wait.
        self.place_after(id, ticket.lane);
        (grant, verdict)
    }

    /// The next waiting call that goes now, with its slot. Ask until `None` after each event.
    pub fn next(&mut self, now: Instant) -> Option<(W, Grant)> {
        self.tick(now);
        let Some(pick) = self.pick(now) else {
            self.gap.stop(now);
            return None;
        };
        let waiter = self.take(pick.next.call)?;
        let (kind, lane, slots) = (waiter.claim.kind, waiter.ticket.lane, self.slots());
        let by_age = self.debtor(now, lane) == Some(waiter.tenant);
        let (floor, is_early) = match pick.right {
            Right::Floor(holder) => (Some(holder), false),
            Right::Turn(turn) => (None, turn.is_early),
        };
        let out_of_turn = by_age || floor.is_some();
        let mut grant = self.grant(now, waiter.tenant, &waiter.ticket, kind, pick.next.kept, out_of_turn);
        grant.spent = self.open(now).saturating_sub(waiter.since);
        self.floors.went(floor, self.grants);
        self.lanes.went(now, Turn { lane, is_early }, grant.id(), waiter.ticket.cost, &slots);
        self.place_after(waiter.tenant, waiter.ticket.lane);
        Some((waiter.who, grant))
    }

    /// Takes a call out of the queue (its caller has gone away). `false`: it had left already.
    pub fn withdraw(&mut self, id: WaiterId) -> bool {
        let Some(waiter) = self.take(id) else { return false };
        self.place(waiter.tenant, waiter.ticket.lane);
        true
    }

    /// So many slots are in force from now on, whatever set their number before: for drivers that know it better. Of a pool it bounds those of all replicas together.
    /// Lowering it kills nothing.
    pub fn set_limit(&mut self, limit: usize) {
        self.upstream.set_limit(limit);
    }

    /// From now on nothing is admitted, and what waits is refused.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether calls wait or are in flight.
    pub fn is_busy(&self) -> bool {
        self.in_flight > 0 || self.has_waiting()
    }

    /// Whether any call waits.
    pub fn has_waiting(&self) -> bool {
        self.waiters.len() > 0
    }

    /// Continues a cool-down that began at a shared target.
    pub(crate) fn resume_cooldown(&mut self, now: Instant, until: Instant) {
        self.cooldown.resume(now, until);
        self.stood.set(now, Rule::CoolDown, self.cooldown.is_closed());
    }

    /// Whether nothing may be admitted for some time yet.
    pub fn is_cooling(&self, now: Instant) -> bool {
        match self.upstream.pool() {
            Some(pool) => pool.is_closed(),
            None => self.cooldown.until().is_some_and(|until| until > now),
        }
    }

    /// Whether neither a cool-down nor the way back from one is on; of a pool, whether any replica is in the choice.
    pub fn is_open(&self) -> bool {
        match self.upstream.pool() {
            Some(pool) => !pool.is_closed(),
            None => self.cooldown.state() == State::Open,
        }
    }

    fn has_slot(&self) -> bool {
        self.lack().is_none()
    }

    /// Whether calls can differ in what they lack: only then is it worth looking behind the first.
    fn is_sized(&self) -> bool {
        self.own_tokens || self.stock.is_bounded() || self.upstream.pool().is_some()
    }

    /// What a call takes.
    fn claim(&mut self, ticket: &Ticket) -> Claim {
        let of_pool = self.upstream.pool().is_some();
        let has_failed = ticket.has_failed;
        if !self.own_tokens && self.stock.is_none() && !of_pool {
            return Claim { has_failed, ..Claim::default() };
        }
        let own = u32::try_from(ticket.demand.total()).unwrap_or(u32::MAX);
        let mut need = self.stock.need(&ticket.demand);
        if of_pool {
            // Whatever replica it goes to, and whether that one's memory is known yet or not.
            need.kv = u32::try_from(ticket.demand.input).unwrap_or(u32::MAX);
        }
        Claim { need, own, kind: self.kind(ticket), has_failed }
    }

    /// Which replicas it may go to, where its target is a pool.
    fn kind(&mut self, ticket: &Ticket) -> Kind {
        self.upstream.pool_mut().map(|pool| pool.kind(ticket)).unwrap_or_default()
    }

    /// Where a call stands in its tenant's queue: by its age, and by its length where short ones are preferred.
    fn order_of(&self, ticket: &Ticket) -> Instant {
        let bias = self.settings.short_bias.as_secs_f64() * ticket.demand.total() as f64 / 1000.0;
        let bias = Duration::try_from_secs_f64(bias).ok();
        bias.and_then(|bias| ticket.queued_at.checked_add(bias)).unwrap_or(ticket.deadline)
    }

    fn take(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.waiters.remove(id)?;
        if let Some(pool) = self.upstream.pool_mut() {
            pool.went(waiter.claim.kind);
        }
        if let Some(tenant) = self.tenants.get_mut(waiter.tenant) {
            let lane = waiter.ticket.lane;
            tenant.waiting -= 1;
            let line = &mut tenant.lines[lane as usize];
            line.calls.remove(&(waiter.order, id));
            self.load.left(lane, &waiter.claim.need, line.calls.len(), tenant.weight);
            if waiter.ticket.charged.is_none() {
                line.fresh -= 1;
                self.crowds.update(lane, waiter.tenant, tenant);
            }
        }
        Some(waiter)
    }

    /// A call of that lane went: the next of its line stands elsewhere, and where the tenant has reached its cap none of its lines does.
    fn place_after(&mut self, id: TenantId, lane: Lane) {
        let capped = self.tenants.get(id).is_some_and(Tenant::is_capped);
        self.place_some(id, lane, capped);
    }

    /// The same for one lane, or for all.
    fn place_some(&mut self, id: TenantId, lane: Lane, all: bool) {
        let concerns =
            |tenant: &Tenant| tenant.waiting > 0 || tenant.lines.iter().any(|line| line.standing.is_some());
        if self.tenants.get(id).is_some_and(concerns) {
            Lane::ALL.into_iter().filter(|of| all || *of == lane).for_each(|lane| self.place(id, lane));
        }
    }

    /// Puts a tenant's line of one lane among those that stand, or takes it out.
    fn place(&mut self, id: TenantId, lane: Lane) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let may_go = !tenant.is_capped();
        let line = &mut tenant.lines[lane as usize];
        let head = line.calls.first().filter(|_| may_go).and_then(|((_, call), claim)| {
            let least = line.calls.least()?;
            // Of the head that stands already all is known.
            if let Some(head) = line.standing.map(|standing| standing.head).filter(|head| head.call == call) {
                return Some(Head { least, ..head });
            }
            let ticket = &self.waiters.get(call)?.ticket;
            let Ticket { queued_at: age, charged, cost, .. } = *ticket;
            Some(Head { call, claim, age, charged, cost, weight: tenant.weight, least })
        });
        self.lanes.place(lane, id, line, head);
    }

    /// Begins to count a gap, where a call waits that could go.
    fn watch(&mut self, now: Instant) {
        let could_go = self.has_slot() && !self.lanes.is_empty() && self.is_open();
        let could_go = could_go && (!self.is_sized() || self.pick(now).is_some());
        self.gap.watch(now, could_go);
    }

    /// Time that the target has been open: wait budgets run on this clock.
    fn open(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began).saturating_sub(self.closed(now))
    }
}
