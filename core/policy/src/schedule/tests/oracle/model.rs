//! A model of the target for the oracle. Its state is computed anew from the calls in flight at
//! each query, so that no sum can drift and no order can be stale.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::super::*;
use super::Call;
use super::tenant_shares::{TenantShares, TenantUse};
use crate::adaptive::{AdaptiveView, CallKind, Ended, Limit, LimitView, Sample};
use crate::budget::{BudgetKind, Charge, Need, RateBudgets, TokenBucket};
use crate::kv::{Forecast, Kv, KvReservation, Prefix, Progress};
use tidegate_config::{AdaptiveConfig, Counting, LaneConfig, RateConfig};
use tidegate_protocol::Usage;

/// The tenants: name, cap in slots, and own tokens per minute. The fourth is not configured.
pub(super) const TENANTS: [(&str, usize, Option<u64>); 4] =
    [("a", 1, None), ("b", 3, Some(6_000)), ("c", usize::MAX, None), ("d", usize::MAX, None)];
pub(super) const QUEUE: usize = 4;
const BURST: Duration = Duration::from_secs(6);
/// The maximum time by which a wake-up may be later than the earliest possible moment, because
/// times are rounded up.
pub(super) const LATE: Duration = Duration::from_micros(2);

/// The capacity and the settings of a target.
#[derive(Clone, Debug)]
pub(super) struct TargetConfig {
    limit: usize,
    aging: u64,
    refuses: bool,
    tpm: Option<u64>,
    itpm: Option<u64>,
    rpm: Option<u64>,
    kv: Option<u64>,
    own: bool,
    /// The floors of tenant c and of the batch lane as shares of the slots (0 to 1), or `None` if
    /// there are no floors.
    floors: Option<(f64, f64)>,
    reclaim: bool,
    bias: u64,
    adaptive: Option<Adaptive>,
}

/// The settings of an adaptive limit.
#[derive(Clone, Debug)]
struct Adaptive {
    max: usize,
    min: usize,
    awaiting: Option<usize>,
    objective: Option<u64>,
}

pub(super) fn target() -> impl Strategy<Value = TargetConfig> {
    let some = |range| prop::option::weighted(0.4, range);
    let sizes = (some(2_000u64..20_000), some(4_000u64..20_000), some(40u64..600), some(500u64..2_000));
    let floors = prop::option::weighted(0.3, (0.1f64..0.5, 0.1f64..0.5));
    let floors = (floors, any::<bool>());
    let order =
        (0u64..500, prop::bool::weighted(0.15), any::<bool>(), floors, prop_oneof![Just(0), 1u64..2_000]);
    let awaiting = prop::option::weighted(0.6, 1usize..4);
    let adaptive = (6usize..12, 1usize..4, awaiting, prop::option::of(100u64..1_000))
        .prop_map(|(max, min, awaiting, objective)| Adaptive { max, min, awaiting, objective });
    let adaptive = prop::option::weighted(0.6, adaptive);
    (1usize..6, sizes, order, adaptive).prop_map(
        |(limit, (tpm, itpm, rpm, kv), (aging, refuses, own, (floors, reclaim), bias), adaptive)| {
            TargetConfig { limit, aging, refuses, tpm, itpm, rpm, kv, own, floors, reclaim, bias, adaptive }
        },
    )
}

pub(super) fn weight(tenant: usize) -> f64 {
    if tenant == 2 { 2.0 } else { 1.0 }
}

impl TargetConfig {
    /// Returns a target with four slots and `tpm` tokens per minute, at which tenants may also have
    /// tokens of their own.
    pub(super) fn of_tokens(tpm: u64) -> Self {
        Self {
            limit: 4,
            aging: 10_000,
            refuses: false,
            tpm: Some(tpm),
            itpm: None,
            rpm: None,
            kv: None,
            own: true,
            floors: None,
            reclaim: false,
            bias: 0,
            adaptive: None,
        }
    }

    /// Returns this target with preemption, with floors (reserved slots), and without any limits
    /// but the number of slots and the tenants' caps.
    pub(super) fn lending(self) -> Self {
        Self {
            limit: self.limit + 2,
            floors: self.floors.or(Some((0.3, 0.4))),
            reclaim: true,
            refuses: false,
            adaptive: None,
            ..Self { own: false, tpm: None, itpm: None, rpm: None, kv: None, ..self }
        }
    }

    /// Returns this target with an adaptive limit and with calls that wait if it is full, so that
    /// tenants share it.
    pub(super) fn shared(self) -> Self {
        let adaptive = Adaptive { max: 9, min: 3, awaiting: None, objective: None };
        Self { refuses: false, adaptive: self.adaptive.or(Some(adaptive)), ..self }
    }

    /// Returns `true` if only lanes and fair queueing decide the dispatch order, because there are
    /// neither floors nor tenants' own tokens.
    pub(super) fn is_plain(&self) -> bool {
        self.floors.is_none() && !self.own
    }

    pub(super) fn aging(&self) -> Duration {
        ms(self.aging)
    }

    fn adaptive(&self) -> Option<crate::adaptive::LimitSettings> {
        let Adaptive { max, min, awaiting, objective } = self.adaptive.clone()?;
        let config =
            AdaptiveConfig { start: self.limit.max(min), min, awaiting, ..AdaptiveConfig::default() };
        let objective = objective.map(ms);
        Some(crate::adaptive::LimitSettings { max, objective, latency: None, tpot: None, adaptive: config })
    }

    pub(super) fn build(self, now: Instant) -> (Scheduler<u64>, Model) {
        let mut settings = SchedulerSettings {
            queue: QUEUE,
            aging: ms(self.aging),
            on_full: if self.refuses { OnFull::Refuse } else { OnFull::Wait },
            short_bias: ms(self.bias),
            burst: BURST,
            reclaim: self.reclaim,
            adaptive: self.adaptive(),
            ..settings(self.limit)
        };
        for (tenant, (name, cap, tpm)) in TENANTS[..3].iter().enumerate() {
            let weight = weight(tenant);
            let (cap, tpm) = ((*cap < usize::MAX).then_some(*cap), tpm.filter(|_| self.own));
            let floor = self.floors.filter(|_| *name == "c").map_or(0.0, |(tenant, _)| tenant);
            settings
                .tenants
                .insert((*name).into(), TenantConfig { weight, cap, tpm, floor, ..TenantConfig::default() });
        }
        settings.lanes[Lane::Batch as usize] =
            LaneConfig { floor: self.floors.map_or(0.0, |(_, lane)| lane), ..LaneConfig::default() };
        let rates = RateConfig {
            rpm: self.rpm,
            tpm: self.tpm,
            itpm: self.itpm,
            counting: Counting::Actual,
            ..RateConfig::default()
        };
        let budgets = || RateBudgets::new(&rates, now);
        let kv = || self.kv.map(|tokens| Kv::new(tokens, 0.1));
        let shared = Arc::new(Mutex::new(budgets()));
        let scheduler = if self.tpm.or(self.itpm).or(self.rpm).or(self.kv).is_some() {
            Scheduler::with(&settings, Resources { budgets: shared.clone(), kv: kv() }, now)
        } else {
            Scheduler::new(&settings, now)
        };
        let own = TENANTS
            .map(|(.., tpm)| tpm.filter(|_| self.own).map(|tpm| TokenBucket::per_minute(tpm, BURST, now)));
        let model = Model {
            limit: self.limit,
            found: settings.adaptive.as_ref().map(|adaptive| Limit::new(adaptive, now)),
            aging: settings.aging,
            bias: settings.short_bias,
            floors: self.floors,
            reclaims: self.reclaim,
            is_sized: self.own || self.tpm.or(self.itpm).or(self.rpm).or(self.kv).is_some(),
            // One of several short resources may become available before another. If a call becomes
            // aged in between, other calls have to wait for it.
            spare_wakes: if self.own || self.rpm.is_some() { 4 } else { 2 },
            shared,
            shadow: budgets(),
            kv: std::cell::RefCell::new(kv()),
            own,
            running: BTreeMap::new(),
            shares: settings.adaptive.is_some().then(|| TenantShares::new(now)),
            held: BTreeSet::new(),
        };
        (scheduler, model)
    }
}

#[derive(Debug)]
struct Running {
    tenant: usize,
    lane: Lane,
    charge: Charge,
    place: Option<KvReservation>,
    own: u64,
    /// What the adaptive limit tracks about the call, or `None` if the limit is fixed.
    sample: Option<Sample>,
    awaits: bool,
}

/// The state of a target. See [the module](self).
pub(super) struct Model {
    limit: usize,
    /// A second adaptive limit that gets the expected events, or `None` if the limit is fixed. It
    /// differs from the scheduler's limit if that one got other events.
    found: Option<Limit>,
    pub(super) spare_wakes: usize,
    aging: Duration,
    bias: Duration,
    floors: Option<(f64, f64)>,
    reclaims: bool,
    /// Whether calls may lack something other than a slot.
    is_sized: bool,
    /// The budgets that the scheduler uses. They decide whether a call fits, and are tested
    /// elsewhere.
    shared: Arc<Mutex<RateBudgets>>,
    /// Other budgets that get the expected events. They are compared with `shared`.
    shadow: RateBudgets,
    kv: std::cell::RefCell<Option<Kv>>,
    own: [Option<TokenBucket>; 4],
    running: BTreeMap<u64, Running>,
    /// What the division among tenants depends on, or `None` if the configured limit is fixed.
    pub(super) shares: Option<TenantShares>,
    /// The tenants that are held, as of the last [`Model::update_held`].
    pub(super) held: BTreeSet<usize>,
}

/// A tenant or lane for which slots are reserved (its floor).
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder {
    Tenant(usize),
    Lane(Lane),
}

impl Holder {
    pub(super) fn is(self, call: &Call) -> bool {
        match self {
            Holder::Tenant(tenant) => call.tenant == tenant,
            Holder::Lane(lane) => call.ticket.lane == lane,
        }
    }

    /// Returns `true` if the call may be dispatched before the calls of this holder. The floors of
    /// tenants are served before those of lanes, so the result is `true` if the holder is a lane
    /// and the call's tenant is c, the one with a floor.
    pub(super) fn yields_to(self, call: &Call) -> bool {
        matches!(self, Holder::Lane(_)) && TENANTS[call.tenant].0 == "c"
    }
}

impl Model {
    pub(super) fn admit(&mut self, now: Instant, call: &Call) {
        let demand = &call.ticket.demand;
        let charge = self.shadow.charge(now, demand);
        let place = self
            .kv
            .get_mut()
            .as_mut()
            .map(|kv| kv.admit(demand, Forecast::default(), Prefix::default(), Progress::default()));
        if let Some(own) = &mut self.own[call.tenant] {
            own.take(now, demand.total());
        }
        let kind = CallKind { input: demand.input, output: demand.output, streams: call.ticket.streams };
        let sample = self.found.as_mut().map(|limit| limit.on_sent(now, kind));
        if let (Some(shares), Some(limit), Some(sample)) = (&mut self.shares, &self.found, &sample)
            && kind.streams
        {
            shares.on_sent(now, call.tenant, limit.first_token_work_seconds(sample));
        }
        let running = Running {
            tenant: call.tenant,
            lane: call.ticket.lane,
            charge,
            place,
            own: demand.total(),
            awaits: sample.is_some() && kind.streams,
            sample,
        };
        self.running.insert(call.number, running);
        self.on_active(now, call.tenant);
    }

    /// Records that a call of the tenant arrived, was sent or ended.
    pub(super) fn on_active(&mut self, now: Instant, tenant: usize) {
        let reachable = self.found.as_ref().map_or(usize::MAX, Limit::reachable_slots);
        let (in_flight, slots) = (self.in_flight(tenant), self.slots().min(reachable));
        if let Some(shares) = &mut self.shares {
            shares.on_active(now, tenant, in_flight, slots);
        }
    }

    /// Updates which tenants are held, as the scheduler does after each event. `waiting` is the
    /// number of waiting calls of each tenant.
    pub(super) fn update_held(&mut self, now: Instant, waiting: [usize; TENANTS.len()]) {
        let uses = std::array::from_fn(|tenant| {
            let of_tenant = || self.running.values().filter(|running| running.tenant == tenant);
            let awaiting = of_tenant().filter(|running| running.awaits);
            let works = awaiting.filter_map(|running| Some(running.sample.as_ref()?.first_token_work()));
            let (in_flight, waiting) = (of_tenant().count(), waiting[tenant]);
            TenantUse { in_flight, waiting, awaiting: works.reduce(|sum, work| sum + work) }
        });
        let in_memory = self.kv.borrow().as_ref().and_then(Kv::max_calls).unwrap_or(usize::MAX);
        let (Some(shares), Some(limit)) = (&self.shares, &mut self.found) else {
            return self.held.clear();
        };
        let spare;
        (self.held, spare) = shares.held(now, limit, in_memory, &uses);
        limit.keep_free(spare);
    }

    pub(super) fn is_held(&self, tenant: usize) -> bool {
        self.held.contains(&tenant)
    }

    /// Checks that the scheduler holds exactly the tenants that it must hold.
    pub(super) fn check_held(&self, scheduler: &Scheduler<u64>) {
        let held = scheduler.queue.tenants.iter().filter(|(_, tenant)| tenant.is_held());
        let held: BTreeSet<_> = held.map(|(_, tenant)| tenant.name.to_string()).collect();
        let expected: BTreeSet<_> = self.held.iter().map(|tenant| TENANTS[*tenant].0.to_owned()).collect();
        assert_eq!(held, expected, "held tenants");
    }

    /// Returns `true` if no call of the tenant may be dispatched, because it is at its cap or held.
    pub(super) fn is_barred(&self, tenant: usize) -> bool {
        self.in_flight(tenant) >= TENANTS[tenant].1 || self.is_held(tenant)
    }

    pub(super) fn settle(&mut self, now: Instant, number: u64, usage: &Usage) {
        let running = self.running.get_mut(&number).expect("in flight");
        self.shadow.settle(now, &mut running.charge, usage);
        if let Some(own) = &mut self.own[running.tenant] {
            own.settle(now, running.own, usage.input);
            running.own = usage.input;
        }
    }

    /// Replaces the limit by a fixed number of slots.
    pub(super) fn fix(&mut self, limit: usize) {
        self.limit = limit;
        self.found = None;
        self.running.values_mut().for_each(|running| (running.sample, running.awaits) = (None, false));
    }

    /// Lets the adaptive limit and the active tenants change with time, as the scheduler does
    /// before each event. Returns `true` if they may have changed.
    pub(super) fn tick(&mut self, now: Instant) -> bool {
        let due = |limit: &&mut Limit| limit.next_wake().is_some_and(|at| at <= now);
        let is_period_over = self.shares.as_mut().is_some_and(|shares| shares.advance(now));
        self.found.as_mut().filter(due).map(|limit| limit.on_tick(now)).is_some() || is_period_over
    }

    /// Returns `true` if a tenant is held, and may be released by the decrease of its mean use of
    /// the first-token capacity.
    pub(super) fn decreases(&self) -> bool {
        !self.held.is_empty() && self.found.as_ref().is_some_and(|limit| !limit.has_first_token_room())
    }

    pub(super) fn first_token(&mut self, now: Instant, number: u64) {
        self.tick(now);
        let running = self.running.get_mut(&number).expect("in flight");
        if std::mem::take(&mut running.awaits)
            && let (Some(limit), Some(sample)) = (&mut self.found, &mut running.sample)
        {
            limit.on_first_token(now, sample);
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.found.as_ref().map_or(self.limit, Limit::slots)
    }

    fn awaiting(&self) -> usize {
        self.running.values().filter(|running| running.awaits).count()
    }

    fn most_awaiting(&self) -> usize {
        self.found.as_ref().map_or(usize::MAX, Limit::first_token_limit)
    }

    /// Checks that the scheduler's adaptive limit got the same events at the same times as this
    /// model's limit, by comparing their states.
    pub(super) fn check_limit(&self, now: Instant, seen: Option<&AdaptiveView>) {
        let shadow: Option<LimitView> = self.found.as_ref().map(|limit| limit.view(now));
        assert_eq!(seen.map(|seen| &seen.limit), shadow.as_ref());
        assert!(shadow.is_none_or(|shadow| shadow.awaiting == self.awaiting()));
    }

    pub(super) fn release(&mut self, now: Instant, call: &Call, sent: bool, how: Ended) {
        self.tick(now);
        let running = self.running.remove(&call.number).expect("in flight");
        if let (Some(limit), Some(sample)) = (&mut self.found, running.sample) {
            limit.on_ended(now, sample, how);
        }
        if let (Some(kv), Some(place)) = (self.kv.get_mut(), running.place) {
            kv.release(place);
        }
        if !sent {
            self.shadow.refund(now, &running.charge);
            if let Some(own) = &mut self.own[running.tenant] {
                own.refund(now, running.own);
            }
        }
        self.on_active(now, call.tenant);
    }

    /// Checks that the tokens left and the debts in the budgets of tokens per minute equal the
    /// expected ones. They differ if a charge was not made, settled or refunded as expected.
    pub(super) fn check_levels(&mut self, now: Instant) {
        let (real, shadow) = (self.shared.lock().view(now), self.shadow.view(now));
        for (real, shadow) in real.iter().zip(&shadow).filter(|(real, _)| real.kind == BudgetKind::Tokens) {
            assert!(real.level.abs_diff(shadow.level) <= 1, "{real:?} {shadow:?}");
            assert!(real.debt.abs_diff(shadow.debt) <= 1, "{real:?} {shadow:?}");
        }
    }

    pub(super) fn admits(&self, now: Instant, call: &Call) -> bool {
        self.has_slot(call.tenant)
            && self.own_fits(now, call)
            && self.lacking(now, call) == (false, [false; 4])
    }

    pub(super) fn has_slot(&self, tenant: usize) -> bool {
        self.running.len() < self.slots() && self.awaiting() < self.most_awaiting() && !self.is_barred(tenant)
    }

    /// Returns `true` if the tenant certainly has enough tokens of its own for the call. The
    /// scheduler excludes the calls of a tenant without enough tokens for [`LATE`] longer than
    /// necessary, so that rounding does not readmit them too early.
    pub(super) fn is_back(&self, now: Instant, call: &Call) -> bool {
        self.own_fits(now.checked_sub(LATE).unwrap_or(now), call)
    }

    /// Returns `true` if the own tokens of the calls' tenant may be kept for `head`, which has
    /// waited for the ageing time, so that `call` waits.
    pub(super) fn has_tokens_kept(&self, now: Instant, head: &Call, call: &Call) -> bool {
        head.tenant == call.tenant
            && head.ticket.lane < call.ticket.lane
            && !self.own_fits(now.checked_sub(LATE).unwrap_or(now), head)
    }

    /// Returns `true` if the own tokens of the calls' tenant are certainly kept for `head`, which
    /// has waited for the ageing time: it lacks them now, and will have them before its deadline.
    pub(super) fn must_keep_tokens(&self, now: Instant, head: &Call, call: &Call) -> bool {
        let in_time = head.ticket.deadline.checked_sub(LATE).unwrap_or(now);
        self.has_tokens_kept(now, head, call)
            && !self.own_fits(now + LATE, head)
            && self.own_fits(in_time, head)
    }

    fn own_fits(&self, now: Instant, call: &Call) -> bool {
        let own = &self.own[call.tenant];
        own.as_ref().is_none_or(|own| own.available(now) >= call.ticket.demand.total())
    }

    /// Returns whether the requests are used up, and which of these the call lacks: tokens, input
    /// tokens, output tokens, memory.
    fn lacking(&self, now: Instant, call: &Call) -> (bool, [bool; 4]) {
        let (need, room) = (self.need(call), self.shared.lock().available(now));
        let most = room.max_need;
        let memory = match &mut *self.kv.borrow_mut() {
            Some(kv) => {
                // Measures the memory.
                kv.available();
                kv.fits(&call.ticket.demand, &call.ticket.forecast, &Prefix::default())
            }
            None => true,
        };
        let classes = [(need.tokens, most.tokens), (need.input, most.input), (need.output, most.output)];
        let [tokens, input, output] = classes.map(|(need, most)| need > most);
        (!room.has_requests, [tokens, input, output, !memory])
    }

    fn need(&self, call: &Call) -> Need {
        let mut need = self.shared.lock().need(&call.ticket.demand);
        if let Some(kv) = &*self.kv.borrow() {
            need.kv = kv.need(&call.ticket.demand);
        }
        need
    }

    /// Returns `true` if the call lacks something, but neither a slot nor its tenant's own tokens:
    /// it lacks only requests or tokens of the target's rate budgets, or memory.
    pub(super) fn lacks_only_what_is_shared(&self, now: Instant, call: &Call) -> bool {
        self.has_slot(call.tenant) && self.own_fits(now, call) && !self.admits(now, call)
    }

    /// Returns `true` if the call `one` lacks something that the call `other` would take.
    pub(super) fn is_lacked_and_used(&self, now: Instant, one: &Call, other: &Call) -> bool {
        let need = self.need(other);
        let used = [need.tokens, need.input, need.output, need.kv].map(|need| need > 0);
        let (closed, lacking) = self.lacking(now, one);
        closed || lacking.into_iter().zip(used).any(|(lacking, used)| lacking && used)
    }

    pub(super) fn is_oversize(&self, call: &Call) -> bool {
        let most = self.kv.borrow().as_ref().map_or(u64::MAX, Kv::capacity);
        call.ticket.demand.min_input() > most || self.shared.lock().oversize(&call.ticket.demand).is_some()
    }

    /// Returns `true` if `rule` may be reported as the reason why the call waits. `closed` is
    /// `true` if the target is cooling down, being probed or recovering. `excused` is `true` if the
    /// call may have to wait for a call that has waited for the ageing time.
    pub(super) fn is_so(&self, now: Instant, call: &Call, rule: Rule, closed: bool, excused: bool) -> bool {
        let (no_request, [tokens, input, output, kv]) = self.lacking(now, call);
        // The tenant's own limits are reported first, except those that depend on the call.
        let is_held = self.is_held(call.tenant);
        let is_first = closed || self.in_flight(call.tenant) >= TENANTS[call.tenant].1;
        if is_held && !is_first {
            return rule == Rule::TenantShare;
        }
        match rule {
            Rule::CoolDown | Rule::Outage => closed,
            Rule::TenantCap => self.in_flight(call.tenant) >= TENANTS[call.tenant].1,
            Rule::TenantTokens => !self.own_fits(now, call),
            Rule::Slots => self.running.len() >= self.slots(),
            Rule::FirstTokens => self.awaiting() >= self.most_awaiting(),
            Rule::Requests | Rule::RequestsPerDay => no_request,
            Rule::Tokens | Rule::TokensPerDay => tokens,
            Rule::InputTokens => input,
            Rule::OutputTokens => output,
            Rule::Kv => kv,
            Rule::TenantShare => is_held,
            Rule::Share | Rule::Replicas => false,
            Rule::Reserved | Rule::Turn => self.admits(now, call) && (excused || closed),
        }
    }

    /// Returns `true` if the estimated size of the call exceeds the memory or a rate budget even
    /// when unused, so that nothing is reserved for it.
    fn never_fits(&self, call: &Call) -> bool {
        let need = self.need(call);
        let most = self.kv.borrow().as_ref().map_or(u64::MAX, Kv::capacity);
        u64::from(need.kv) > most || self.shared.lock().is_exceeded_by(&need)
    }

    pub(super) fn is_aged(&self, now: Instant, call: &Call) -> bool {
        now - call.ticket.queued_at >= self.aging && !self.never_fits(call)
    }

    /// Returns the time by which a call is ordered among the calls of its tenant and lane.
    pub(super) fn order(&self, call: &Call) -> Instant {
        call.ticket.queued_at + self.bias.mul_f64(call.ticket.demand.total() as f64 / 1000.0)
    }

    pub(super) fn in_flight(&self, tenant: usize) -> usize {
        self.running.values().filter(|running| running.tenant == tenant).count()
    }

    pub(super) fn in_lane(&self, lane: Lane) -> usize {
        self.running.values().filter(|running| running.lane == lane).count()
    }

    pub(super) fn debt(&self, now: Instant, tenant: usize) -> u64 {
        self.own[tenant].as_ref().map_or(0, |own| own.debt(now))
    }

    /// Returns `true` if the rate budgets, the tenant's own tokens and the memory have enough left
    /// for the call, and its tenant is not held. A slot may still be missing, of the target or
    /// within the tenant's cap.
    pub(super) fn fits(&self, now: Instant, call: &Call) -> bool {
        !self.is_held(call.tenant)
            && self.own_fits(now, call)
            && self.lacking(now, call) == (false, [false; 4])
    }

    /// Returns `true` if preemption is configured, all slots are in use, and calls can lack only
    /// slots. Otherwise, it is not known how many calls must be preempted.
    pub(super) fn reclaims(&self, in_flight: usize) -> bool {
        self.reclaims && !self.is_sized && in_flight == self.slots()
    }

    /// Returns the floors of tenant c and of the batch lane, in slots, or `None` if there are no
    /// floors.
    fn floors(&self) -> Option<(usize, usize)> {
        let slots = |share: f64| ((share * self.slots() as f64 + 1e-9) as usize).max(1);
        self.floors.map(|(tenant, lane)| (slots(tenant), slots(lane)))
    }

    /// Returns the minimum and the maximum number of the `waiting` calls that are dispatched
    /// because of floors (reserved slots) if slots are released, over all orders of dispatch.
    pub(super) fn by_floors(&self, mut waiting: Vec<(usize, Lane)>) -> (usize, usize) {
        let (Some((mut of_c, mut of_batch)), Some(shares)) = (self.floors(), self.floors) else {
            return (0, 0);
        };
        // If the floors add up to all slots, floors of less than one slot take turns with all other
        // calls.
        if of_c + of_batch >= self.slots() {
            let is_whole = |share: f64| share * self.slots() as f64 + 1e-9 >= 1.0;
            of_c *= usize::from(is_whole(shares.0));
            of_batch *= usize::from(is_whole(shares.1));
        }
        let running: Vec<_> = self.running.values().map(|running| (running.tenant, running.lane)).collect();
        waiting.sort_unstable();
        let mut left = BTreeSet::from([waiting.clone()]);
        let mut least = None;
        for gone in 0.. {
            let mut next = BTreeSet::new();
            for left in &left {
                let mut held = waiting.clone();
                for call in left {
                    let at = held.iter().position(|other| other == call).expect("it waited");
                    held.remove(at);
                }
                held.extend(&running);
                let count = |is: &dyn Fn(&(usize, Lane)) -> bool| held.iter().filter(|call| is(call)).count();
                let c_is_below = count(&|call| call.0 == 2) < of_c;
                let batch_is_below = count(&|call| call.1 == Lane::Batch) < of_batch;
                let may_go = |(tenant, lane): (usize, Lane)| {
                    count(&|call| call.0 == tenant) < TENANTS[tenant].1
                        && (tenant == 2 && c_is_below || lane == Lane::Batch && batch_is_below)
                };
                let goes: Vec<_> = (0..left.len()).filter(|at| may_go(left[*at])).collect();
                if goes.is_empty() {
                    least.get_or_insert(gone);
                }
                next.extend(goes.into_iter().map(|at| [&left[..at], &left[at + 1..]].concat()));
            }
            if next.is_empty() {
                return (least.unwrap_or(gone), gone);
            }
            left = next;
        }
        unreachable!("calls run out")
    }

    /// Returns `true` if the slot of a call in flight is borrowed: not counting the preempted
    /// calls, its tenant and its lane both hold more slots than their floors.
    pub(super) fn is_lent(&self, call: &Call, preempted: &BTreeSet<u64>) -> bool {
        let (of_c, of_batch) = self.floors().unwrap_or_default();
        let staying = self.running.iter().filter(|(number, _)| !preempted.contains(number));
        let (mut of_tenant, mut of_lane) = (0, 0);
        for (_, running) in staying {
            of_tenant += usize::from(running.tenant == call.tenant);
            of_lane += usize::from(running.lane == call.ticket.lane);
        }
        of_tenant > if call.tenant == 2 { of_c } else { 0 }
            && of_lane > if call.ticket.lane == Lane::Batch { of_batch } else { 0 }
    }

    /// Returns the tenants and lanes that use fewer slots than are reserved for them. Floors of
    /// less than one slot are not considered.
    pub(super) fn below_their_floors(&self) -> Vec<Holder> {
        let Some((tenant, lane)) = self.floors else { return Vec::new() };
        let below = |share: f64, held| (held as f64) + 1.0 <= share * self.slots() as f64;
        let batch = self.running.values().filter(|running| running.lane == Lane::Batch).count();
        let tenant = below(tenant, self.in_flight(2)).then_some(Holder::Tenant(2));
        let lane = below(lane, batch).then_some(Holder::Lane(Lane::Batch));
        tenant.into_iter().chain(lane).collect()
    }
}
