//! The expected division of an adaptive upstream among tenants, computed anew at each query from
//! all earlier events.

use std::collections::BTreeSet;

use super::super::*;
use super::model::{TENANTS, weight};
use crate::adaptive::Limit;

/// Time constant of the mean use of the first-token capacity, in seconds.
const MEAN_OVER: f64 = 10.0;
/// A tenant is active in the period of its last call and in the next one.
const PERIOD: Duration = Duration::from_secs(30);

/// A streamed call that was sent. `work_seconds` is its work, in tokens of prefill, multiplied by
/// the seconds that it takes on a quiet upstream.
#[derive(Clone, Copy)]
struct Sent {
    tenant: usize,
    at: Instant,
    work_seconds: f64,
}

/// The slots of a tenant and of the upstream after a call of the tenant arrived, was sent or ended.
struct Activity {
    tenant: usize,
    period: u64,
    in_flight: usize,
    slots: usize,
    /// The slots in use by all active tenants, of each at most its share.
    together: usize,
}

/// The slots of a tenant after its last event.
#[derive(Clone, Copy, Default)]
struct LastUse {
    in_flight: usize,
    /// The whole slots of the tenant's share.
    share: usize,
    /// Whether the tenant used less than its share.
    is_below_share: bool,
}

/// What a tenant uses now.
#[derive(Clone, Copy, Default)]
pub(super) struct TenantUse {
    pub(super) in_flight: usize,
    pub(super) waiting: usize,
    /// The work of the calls that await their first token, or `None` if there are none.
    pub(super) awaiting: Option<u64>,
}

/// All earlier events that the division depends on. See [the module](self).
pub(super) struct TenantShares {
    began: Instant,
    period: u64,
    sent: Vec<Sent>,
    activity: Vec<Activity>,
    /// Whether waiting calls count as demand. `false` for a wrong rule. See `faulty_schedulers`.
    pub(super) counts_waiting: bool,
}

impl TenantShares {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, period: 2, sent: Vec::new(), activity: Vec::new(), counts_waiting: true }
    }

    /// Records that a streamed call was sent.
    pub(super) fn on_sent(&mut self, now: Instant, tenant: usize, work_seconds: f64) {
        self.sent.push(Sent { tenant, at: now, work_seconds });
    }

    /// Begins a new period if the current one is over. Returns `true` if it was.
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        let age = now - self.began;
        let is_over = age >= PERIOD;
        if is_over {
            self.period += if age < 2 * PERIOD { 1 } else { 2 };
            self.began = now;
        }
        is_over
    }

    /// Returns the tenants with an event in the current period or in the one before.
    fn active(&self) -> Vec<usize> {
        active(&self.activity, self.period)
    }

    /// Records that a call arrived, was sent or ended. `in_flight` is the number of slots of its
    /// tenant afterwards, and `slots` that of the upstream.
    pub(super) fn on_active(&mut self, now: Instant, tenant: usize, in_flight: usize, slots: usize) {
        self.advance(now);
        self.activity.push(Activity { tenant, period: self.period, in_flight, slots, together: 0 });
        let last_uses = self.active().into_iter().map(|tenant| self.last_use(tenant));
        let together: usize = last_uses.map(|last| last.in_flight.min(last.share)).sum();
        self.activity.last_mut().expect("just added").together = together;
    }

    /// Returns the tenants that are held, and the number of slots that are kept free. `limit` is
    /// that of the upstream, and `in_memory` is the number of calls for which it has memory. `uses`
    /// is what each tenant uses.
    pub(super) fn held(
        &self,
        now: Instant,
        limit: &Limit,
        in_memory: usize,
        uses: &[TenantUse; TENANTS.len()],
    ) -> (BTreeSet<usize>, usize) {
        let (capacity, active) = (limit.first_token_capacity(), self.active());
        if active.len() < 2 || capacity.is_infinite() {
            return Default::default();
        }
        let spare = self.spare_of_all(&active);
        let in_flight: usize = uses.iter().map(|of| of.in_flight).sum();
        let reachable = limit.reachable_slots().min(in_memory);
        let only_spare_left = in_flight + spare >= reachable;
        let slots = limit.slots().min(reachable);
        let level = self.level(now, capacity, uses);
        let is_held = |tenant: &usize| {
            let TenantUse { in_flight, waiting, awaiting } = uses[*tenant];
            // Multiplied out, so that nothing is rounded.
            let share = weight_of(&[*tenant]) * slots;
            let exceeds_share = in_flight > 0
                && in_flight * weight_of(&active) >= share
                && 2 * (in_flight + waiting) * weight_of(&active) >= 3 * share;
            let exceeds = |work: u64| {
                work as f64 >= capacity || self.demand(now, *tenant, uses) >= weight(*tenant) * level
            };
            only_spare_left && exceeds_share || !limit.has_first_token_room() && awaiting.is_some_and(exceeds)
        };
        ((0..TENANTS.len()).filter(is_held).collect(), spare)
    }

    /// Returns the spare slots of the active tenants: at most a quarter more than they used
    /// together in the current period and the one before, minus what tenants below their share use.
    fn spare_of_all(&self, active: &[usize]) -> usize {
        let lately = self.activity.iter().filter(|of| of.period + 1 >= self.period);
        let peak = lately.map(|of| of.together).max().unwrap_or(0);
        let last_uses = active.iter().map(|tenant| self.last_use(*tenant));
        let used: usize = last_uses.filter(|last| last.is_below_share).map(|last| last.in_flight).sum();
        let spare: usize = active.iter().map(|tenant| self.spare(*tenant)).sum();
        spare.min((peak * 5 / 4).saturating_sub(used))
    }

    /// Returns the spare slots of a tenant: a quarter more than it used at most in the period of
    /// its last event and the one before, at most its share, minus what it uses.
    fn spare(&self, tenant: usize) -> usize {
        let of_tenant = || self.activity.iter().filter(|of| of.tenant == tenant);
        let period = of_tenant().map(|of| of.period).max().unwrap_or(0);
        let lately = of_tenant().filter(|of| of.period + 1 >= period);
        let peak = lately.map(|of| of.in_flight).max().unwrap_or(0);
        let last = self.last_use(tenant);
        (peak * 5 / 4).min(last.share).saturating_sub(last.in_flight)
    }

    /// Returns the slots of a tenant after its last event, and its share of the slots then.
    fn last_use(&self, tenant: usize) -> LastUse {
        let last = self.activity.iter().rposition(|of| of.tenant == tenant);
        let Some(last) = last else { return LastUse::default() };
        let Activity { in_flight, slots, period, .. } = self.activity[last];
        let weight = weight_of(&active(&self.activity[..=last], period));
        // Multiplied out, so that nothing is rounded.
        let all = weight_of(&[tenant]) * slots;
        LastUse { in_flight, share: all / weight, is_below_share: in_flight * weight < all }
    }

    /// Returns the tenant's mean use of the first-token capacity.
    fn mean(&self, now: Instant, tenant: usize) -> f64 {
        let of_tenant = self.sent.iter().filter(|sent| sent.tenant == tenant);
        let left =
            |sent: &Sent| sent.work_seconds / MEAN_OVER * (-(now - sent.at).as_secs_f64() / MEAN_OVER).exp();
        of_tenant.map(left).sum()
    }

    /// Returns the mean use of a tenant with that of its waiting calls, each of which counts as a
    /// mean call.
    fn demand(&self, now: Instant, tenant: usize, uses: &[TenantUse]) -> f64 {
        let call = self.sent.iter().fold(0.0, |mean, sent| mean * 15.0 / 16.0 + sent.work_seconds / 16.0);
        let waiting = if self.counts_waiting { uses[tenant].waiting } else { 0 };
        self.mean(now, tenant) + waiting as f64 * call / MEAN_OVER
    }

    /// Returns the max-min fair use of the capacity per weight: what is left for the tenants with
    /// calls in flight that demand more than an equal share, if the others go on with what they
    /// use.
    fn level(&self, now: Instant, capacity: f64, uses: &[TenantUse]) -> f64 {
        let equal = capacity / weight_of(&self.active()) as f64;
        let (heavy, others): (Vec<usize>, Vec<usize>) = (0..TENANTS.len()).partition(|tenant| {
            uses[*tenant].in_flight > 0 && self.demand(now, *tenant, uses) >= weight(*tenant) * equal
        });
        let left = capacity - others.iter().map(|tenant| self.mean(now, *tenant)).sum::<f64>();
        if heavy.is_empty() { equal } else { equal.max(left / weight_of(&heavy) as f64) }
    }
}

/// Returns the tenants with an event in `period` or in the one before.
fn active(activity: &[Activity], period: u64) -> Vec<usize> {
    let lately = activity.iter().filter(|of| of.period + 1 >= period).map(|of| of.tenant);
    lately.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the sum of the weights of tenants, which are whole numbers.
fn weight_of(tenants: &[usize]) -> usize {
    tenants.iter().map(|tenant| weight(*tenant) as usize).sum()
}
