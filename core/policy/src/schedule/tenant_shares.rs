//! The division of an adaptive upstream among tenants, so that a tenant that bursts delays the
//! first tokens of the others as little as possible.
//!
//! What delays them is how much prefill work of the burst the upstream has, not how many of its
//! calls are in flight. A tenant is *held*, that is, none of its calls is dispatched, in two cases:
//!
//! - **First tokens.** The calls that await their first token use up the capacity of the upstream
//!   ([`UpstreamLoad::first_tokens`]), and the tenant has such a call. In addition, it either uses
//!   up the capacity alone, or demands more than its max-min fair share: what is left for the
//!   tenants with calls in flight that demand more than an equal share if the others continue with
//!   what they use. The demand is the mean use over about ten seconds, with that of the waiting
//!   calls.
//! - **Slots.** The tenant has at least its weighted share of the slots, wants half more than that
//!   ([`EXCESS`]), and only *spare* slots are left: those that the active tenants used at most
//!   lately, a quarter more, and do not use now. The spare slots of a tenant are at most its share.
//!   Those of all tenants are at most what the tenants used together lately, a quarter more,
//!   without what tenants below their share use now ([`ActiveTenants::spare`]). Slots beyond the
//!   size of the engine's batch do not count, nor do slots for which the engine has no memory if
//!   each call needs as much as those in flight. Calls that do not stream count, too.
//!
//! A tenant is *active* for half a minute to a minute after its last call arrived, was sent or
//! ended. Tenants are released by time alone, too: when the others are no longer active, and when
//! the mean use of the first-token capacity has decreased enough.
//!
//! The first-token capacity is what keeps the upstream busy, so a held tenant loses hardly any
//! throughput.
//!
//! # Guarantees
//!
//! - A tenant that has no call awaiting its first token and fewer slots than its share is never
//!   held. A tenant that was idle does not wait for the first token of another one.
//! - For first tokens, a tenant is held only while calls await theirs, so it waits for the next of
//!   them at most.
//! - If only one tenant was active in the last minute, nothing is held. The same applies while the
//!   first-token capacity is not known, and to fixed limits.
//!
//! # Interaction with other rules
//!
//! A held tenant is treated like one at its slot cap: its lines are not ready.
//!
//! - **Lanes and ageing.** Only calls of the other tenants raise their lane and are ordered. The
//!   calls of the held tenant keep their age, so they count with it as soon as the tenant is
//!   released.
//! - **Reserved slots and resources.** A held tenant below its floor is not served first, and no
//!   call is preempted for it. Nothing is reserved for its aged calls.
//! - **Work conservation.** Calls of a held tenant are not admissible. The scheduler is
//!   work-conserving apart from the spare slots and from the first-token capacity.
//!
//! Which tenants are held is updated with each event. While a held tenant has waiting calls and a
//! slot is free, a wake-up is scheduled for the time at which the others may no longer be active,
//! and each second while the first-token capacity is used up ([`Queue::next_release`]).

use std::time::{Duration, Instant};

use super::{Queue, Tenant, TenantId, earlier};
use crate::{Lane, ended_spans};

/// Time constant of the mean use of the capacity.
const MEAN_OVER: Duration = Duration::from_secs(10);
/// Weight of a call in the exponentially decaying mean of [`TenantShares::call`].
const CALL_WEIGHT: f64 = 1.0 / 16.0;
/// A tenant counts as active for this time, or up to twice as long, after its last call.
const ACTIVE_FOR: Duration = Duration::from_secs(30);
/// The calls of a tenant, in flight and waiting, from which it is held for the spare slots of
/// others, as a multiple of its share. Fewer calls that happen to arrive together are not delayed.
const EXCESS: f64 = 1.5;
/// Time after which it is computed again who is held while the first-token capacity is used up.
pub(super) const RECHECK_AFTER: Duration = Duration::from_secs(1);
/// For `n` slots that were used at most, `n / SPARE_DIVISOR` more are kept, too.
const SPARE_DIVISOR: usize = 4;

/// What an upstream can take, as far as tenants share it.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpstreamLoad {
    /// The work of the calls awaiting their first token that keeps the upstream busy without a
    /// queue, in tokens of prefill. Infinite if it is not known.
    pub(super) first_tokens: f64,
    /// Whether another call can await its first token without exceeding that capacity. For a pool,
    /// whether one can at an eligible replica.
    pub(super) has_first_token_room: bool,
    /// See [`Limit::reachable_slots`](crate::adaptive::Limit::reachable_slots).
    pub(super) reachable_slots: usize,
}

impl UpstreamLoad {
    /// The load of an upstream with a fixed limit, which tenants do not share.
    pub(super) const UNSHARED: Self =
        Self { first_tokens: f64::INFINITY, has_first_token_room: true, reachable_slots: usize::MAX };

    /// Returns the number of slots that tenants share: those of the upstream, without those that it
    /// cannot serve.
    pub(super) fn shared_slots(&self, slots: usize) -> usize {
        slots.min(self.reachable_slots)
    }
}

/// What one tenant uses of an upstream.
#[derive(Debug, Default)]
pub(super) struct TenantUse {
    /// The number of calls that await their first token.
    pub(super) awaiting: usize,
    /// Their work, in tokens of prefill.
    work: u64,
    /// The mean of that work, without the time in which it is queued at the upstream.
    mean: DecayingMean,
    /// The last period in which the tenant was active. See [`ActiveTenants::period`].
    active_in: u64,
    /// The maximum of the tenant's slots in that period, and in the one before.
    peaks: [usize; 2],
    /// What the tenant contributes to [`ActiveSums::slots`].
    slots: SlotCounts,
}

/// Numbers of slots of one active tenant, or their sums over several tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SlotCounts {
    /// The spare slots.
    spare: usize,
    /// The slots in use, of each tenant at most its share.
    within_share: usize,
    /// The slots in use by tenants that use less than their share.
    below_share: usize,
}

impl SlotCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            spare: self.spare + other.spare,
            within_share: self.within_share + other.within_share,
            below_share: self.below_share + other.below_share,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            spare: self.spare - other.spare,
            within_share: self.within_share - other.within_share,
            below_share: self.below_share - other.below_share,
        }
    }
}

/// The tenants that may be held, and sums over all active tenants.
#[derive(Debug)]
pub(super) struct TenantShares {
    /// The tenants with calls in flight. All held tenants are among them.
    candidates: Vec<TenantId>,
    active: ActiveTenants,
    /// The mean use of the first-token capacity by all tenants.
    mean: DecayingMean,
    /// The work of a call multiplied by the seconds that it takes on a quiet upstream: a mean over
    /// recent calls.
    call: f64,
    /// The number of spare slots that the upstream keeps free.
    kept_free: usize,
}

impl TenantShares {
    pub(super) fn new(now: Instant) -> Self {
        let (ends, sums) = (now + ACTIVE_FOR, Default::default());
        let active = ActiveTenants { ends, period: 2, sums, peaks: [0; 2] };
        Self { candidates: Vec::new(), active, mean: DecayingMean::default(), call: 0.0, kept_free: 0 }
    }
}

/// A mean over about the last [`MEAN_OVER`], whose values decay exponentially.
#[derive(Clone, Copy, Debug, Default)]
struct DecayingMean {
    value: f64,
    /// The time of `value`, or `None` before the first one.
    at: Option<Instant>,
}

impl DecayingMean {
    /// Adds a value that lasts for a time. `seconds` is the product of both.
    fn add(&mut self, now: Instant, seconds: f64) {
        self.value = self.get(now) + seconds / MEAN_OVER.as_secs_f64();
        self.at = Some(now);
    }

    fn get(&self, now: Instant) -> f64 {
        match self.at {
            Some(at) if at < now => self.value * (-(now - at).as_secs_f64() / MEAN_OVER.as_secs_f64()).exp(),
            _ => self.value,
        }
    }
}

/// The tenants of which a call arrived, was sent or ended in the current period of [`ACTIVE_FOR`]
/// or in the one before. A period ends with the first event after it.
#[derive(Debug)]
struct ActiveTenants {
    /// The end of the current period.
    ends: Instant,
    /// The number of the current period, from 2 on.
    period: u64,
    /// The sums of the tenants that were last active in the current period, and in the one before.
    sums: [ActiveSums; 2],
    /// The maximum of [`SlotCounts::within_share`] of all active tenants together in the current
    /// period, and in the one before.
    peaks: [usize; 2],
}

/// Sums over active tenants.
#[derive(Clone, Copy, Debug, Default)]
struct ActiveSums {
    tenants: usize,
    weight: f64,
    slots: SlotCounts,
}

impl ActiveTenants {
    /// Counts the tenant as active, and updates its spare slots. `slots` is the current number of
    /// slots of the upstream.
    fn update(&mut self, now: Instant, tenant: &mut Tenant, slots: usize) {
        self.advance(now);
        let Tenant { usage, weight, in_flight, .. } = tenant;
        let age = self.period - usage.active_in;
        if let Some(sums) = self.sums.get_mut(age as usize) {
            sums.tenants -= 1;
            sums.weight -= *weight;
            sums.slots = sums.slots.minus(usage.slots);
        }
        usage.peaks = match (age, usage.peaks) {
            (0, [last, before]) => [last.max(*in_flight), before],
            (1, [last, _]) => [*in_flight, last],
            _ => [*in_flight; 2],
        };
        usage.active_in = self.period;
        self.sums[0].tenants += 1;
        self.sums[0].weight += *weight;
        let share = *weight / self.weight() * slots as f64;
        let peak = usage.peaks[0].max(usage.peaks[1]);
        usage.slots = SlotCounts {
            spare: with_reserve(peak).min(share as usize).saturating_sub(*in_flight),
            within_share: (*in_flight).min(share as usize),
            below_share: if (*in_flight as f64) < share { *in_flight } else { 0 },
        };
        self.sums[0].slots = self.sums[0].slots.plus(usage.slots);
        self.peaks[0] = self.peaks[0].max(self.slots().within_share);
    }

    fn advance(&mut self, now: Instant) {
        let ended = ended_spans(&mut self.ends, now, ACTIVE_FOR);
        if ended > 0 {
            let ([last, _], [peak, _]) = (std::mem::take(&mut self.sums), std::mem::take(&mut self.peaks));
            (self.sums[1], self.peaks[1]) = if ended == 1 { (last, peak) } else { Default::default() };
            self.period += ended as u64;
        }
    }

    fn tenants(&self) -> usize {
        self.sums[0].tenants + self.sums[1].tenants
    }

    fn weight(&self) -> f64 {
        self.sums[0].weight + self.sums[1].weight
    }

    /// Returns the number of spare slots of all active tenants together.
    ///
    /// Light tenants seldom use their own maximum at the same time, so the sum of their spare slots
    /// can be a multiple of what they use together. The bound is higher than that use by what a
    /// tenant with a burst has used within its share. What such a tenant uses now is not deducted,
    /// because the slots are kept for the others.
    fn spare(&self) -> usize {
        let (slots, peak) = (self.slots(), self.peaks[0].max(self.peaks[1]));
        slots.spare.min(with_reserve(peak).saturating_sub(slots.below_share))
    }

    fn slots(&self) -> SlotCounts {
        self.sums[0].slots.plus(self.sums[1].slots)
    }
}

/// Returns the number of slots that are kept for tenants that used `peak` slots at most.
fn with_reserve(peak: usize) -> usize {
    peak + peak / SPARE_DIVISOR
}

impl<W> Queue<W> {
    /// Counts the tenant as active, and updates its spare slots. `slots` is the number of slots
    /// that tenants share.
    pub(super) fn on_active(&mut self, now: Instant, id: TenantId, slots: usize) {
        if let Some(tenant) = self.tenants.get_mut(id) {
            let TenantShares { candidates, active, .. } = &mut self.shares;
            active.update(now, tenant, slots);
            if tenant.in_flight > 0 && !candidates.contains(&id) {
                candidates.push(id);
            }
        }
    }

    /// Counts a call that was sent among those that await their first token. `work` is its work in
    /// tokens of prefill, and `work_seconds` that work multiplied by the seconds that it takes on a
    /// quiet upstream.
    pub(super) fn start_awaiting(&mut self, now: Instant, id: TenantId, work: u64, work_seconds: f64) {
        let Some(Tenant { usage, .. }) = self.tenants.get_mut(id) else { return };
        usage.awaiting += 1;
        usage.work += work;
        usage.mean.add(now, work_seconds);
        let TenantShares { mean, call, .. } = &mut self.shares;
        mean.add(now, work_seconds);
        *call += CALL_WEIGHT * (work_seconds - *call);
    }

    /// Stops counting a call among those that await their first token.
    pub(super) fn stop_awaiting(&mut self, id: TenantId, work: u64) {
        if let Some(Tenant { usage, .. }) = self.tenants.get_mut(id) {
            usage.awaiting -= 1;
            usage.work -= work;
        }
    }

    /// Updates which tenants are active. Returns `true` if [`Queue::update_held`] may change
    /// anything: several tenants are active or have calls in flight, or one is held, or slots are
    /// kept free.
    pub(super) fn refresh_active(&mut self, now: Instant) -> bool {
        self.shares.active.advance(now);
        let TenantShares { candidates, active, kept_free, .. } = &self.shares;
        active.tenants() > 1 || candidates.len() > 1 || *kept_free > 0 || self.has_held()
    }

    /// Updates which tenants are held, and returns the number of spare slots. `slots` is the
    /// current number of slots of the upstream, of which `in_flight` are in use. `in_memory`
    /// returns the number of calls for which it has memory, and is called only if several tenants
    /// are active.
    pub(super) fn update_held(
        &mut self,
        now: Instant,
        mut load: UpstreamLoad,
        slots: usize,
        in_flight: usize,
        in_memory: impl FnOnce() -> usize,
    ) -> usize {
        let is_shared = self.shares.active.tenants() > 1 && load.first_tokens.is_finite();
        if !is_shared && self.shares.candidates.len() < 2 && !self.has_held() {
            self.shares.kept_free = 0;
            return 0;
        }
        if is_shared {
            load.reachable_slots = load.reachable_slots.min(in_memory());
        }
        let mut candidates = std::mem::take(&mut self.shares.candidates);
        let TenantShares { active, call, .. } = &self.shares;
        let (weight, call) = (active.weight(), *call);
        let spare = if is_shared { active.spare() } else { 0 };
        let slots = load.shared_slots(slots);
        let lacks_spare = is_shared && load.reachable_slots.saturating_sub(in_flight) <= spare;
        let is_used_up = is_shared && !load.has_first_token_room;
        let level = if is_used_up { self.level(now, &candidates, load.first_tokens) } else { f64::INFINITY };
        candidates.retain(|id| {
            let Some(tenant) = self.tenants.get_mut(*id) else { return false };
            let awaits = tenant.usage.awaiting > 0;
            let share = tenant.weight / weight * slots as f64;
            let wanted = (tenant.in_flight + tenant.waiting) as f64;
            let exceeds_share = tenant.in_flight as f64 >= share && wanted >= EXCESS * share;
            let exceeds = |tenant: &Tenant| {
                tenant.usage.work as f64 >= load.first_tokens
                    || tenant.demand(now, call) >= tenant.weight * level
            };
            let has_calls = tenant.in_flight > 0;
            let is_held =
                has_calls && exceeds_share && lacks_spare || awaits && is_used_up && exceeds(tenant);
            if is_held != tenant.is_held() {
                tenant.held.set(now, is_held);
                Lane::ALL.into_iter().for_each(|lane| self.place(*id, lane));
            }
            has_calls
        });
        self.shares.candidates = candidates;
        self.shares.kept_free = spare;
        spare
    }

    /// Returns when time alone may next release a held tenant with waiting calls, or `None` if
    /// there is no such tenant. `load` is the load of the upstream.
    pub(super) fn next_release(&self, now: Instant, load: UpstreamLoad) -> Option<Instant> {
        let TenantShares { candidates, active, .. } = &self.shares;
        let mut tenants = candidates.iter().filter_map(|id| self.tenants.get(*id));
        let waits = tenants.any(|tenant| tenant.is_held() && tenant.waiting > 0);
        // While first tokens do not matter, only the end of a period releases a tenant.
        let recheck = Some(now + RECHECK_AFTER).filter(|_| !load.has_first_token_room);
        earlier(Some(active.ends), recheck).filter(|_| waits)
    }

    fn has_held(&self) -> bool {
        let mut candidates = self.shares.candidates.iter().filter_map(|id| self.tenants.get(*id));
        candidates.any(Tenant::is_held)
    }

    /// Returns the max-min fair use of the first-token `capacity` per weight.
    fn level(&self, now: Instant, candidates: &[TenantId], capacity: f64) -> f64 {
        let TenantShares { active, mean, call, .. } = &self.shares;
        let equal = capacity / active.weight();
        let heavy = candidates.iter().filter_map(|id| self.tenants.get(*id));
        let heavy = heavy.filter(|tenant| tenant.demand(now, *call) >= tenant.weight * equal);
        let (weight, used) = heavy.fold((0.0, 0.0), |(weight, used), tenant| {
            (weight + tenant.weight, used + tenant.usage.mean.get(now))
        });
        if weight > 0.0 { ((capacity - (mean.get(now) - used)) / weight).max(equal) } else { equal }
    }

    /// Returns `true` if a call of the tenant should go to a replica with room for another first
    /// token: the tenant demands at least its share, and another tenant is active.
    pub(super) fn exceeds_share(&self, now: Instant, id: TenantId, load: UpstreamLoad) -> bool {
        let TenantShares { active, call, .. } = &self.shares;
        let share = load.first_tokens / active.weight();
        let exceeds = |tenant: &Tenant| tenant.demand(now, *call) >= tenant.weight * share;
        active.tenants() > 1 && self.tenants.get(id).is_some_and(exceeds)
    }
}

impl Tenant {
    /// Returns `true` if no call of the tenant may be dispatched now. See [the module](self).
    pub(super) fn is_held(&self) -> bool {
        self.held.since().is_some()
    }

    /// Returns the tenant's mean use of the first-token capacity, with that of its waiting calls.
    /// `call` is that of one call, multiplied by its seconds.
    fn demand(&self, now: Instant, call: f64) -> f64 {
        self.usage.mean.get(now) + self.waiting as f64 * call / MEAN_OVER.as_secs_f64()
    }
}

#[cfg(test)]
impl<W> Queue<W> {
    /// Returns `true` if the sums over active tenants are those of what each of them contributes.
    pub(super) fn has_exact_active_sums(&self) -> bool {
        let active = &self.shares.active;
        let of_age = |age: u64| {
            let usages = self.tenants.iter().map(|(_, tenant)| &tenant.usage);
            let usages = usages.filter(|usage| usage.active_in + age == active.period);
            let counts: Vec<SlotCounts> = usages.map(|usage| usage.slots).collect();
            (counts.len(), counts.into_iter().fold(SlotCounts::default(), SlotCounts::plus))
        };
        [of_age(0), of_age(1)] == active.sums.map(|sums| (sums.tenants, sums.slots))
    }
}
