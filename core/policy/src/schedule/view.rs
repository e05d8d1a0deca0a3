//! The state of a scheduler for snapshots and metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Rule, Scheduler, floor_slots};
use crate::{Lane, adaptive::AdaptiveView, cooldown::CooldownState, kv::KvView};
use tidegate_share::LeaseView;

/// The state of a scheduler at one moment, without its rate budgets. These are in
/// [`BudgetView`](crate::budget::BudgetView).
#[derive(Clone, Debug)]
pub struct SchedulerView {
    /// The number of slots in force. For a pool, the sum over its eligible replicas, at most the
    /// limit of the pool.
    pub limit: usize,
    /// The state of the adaptive limit, or `None` if the limit is fixed or if the upstream is a
    /// pool.
    pub adaptive: Option<AdaptiveView>,
    /// The number of slots in use.
    pub in_flight: usize,
    /// The maximum of `in_flight` so far.
    pub peak: usize,
    /// The number of waiting calls.
    pub waiting: usize,
    /// The state of the target's cool-down, which tells whether the target accepts calls.
    pub state: CooldownState,
    /// The time until the target is expected to accept calls again, or `None` if it accepts them
    /// now or if the time is not known.
    pub cool_for: Option<Duration>,
    /// The total time in which a waiting call could have been dispatched and was not.
    pub gap: Duration,
    /// The time since the scheduler was created.
    pub up: Duration,
    /// For how long resources have been reserved for a waiting call that lacks them and has waited
    /// for the ageing time. `None`: no resources are reserved.
    pub held_for: Option<Duration>,
    /// The state of the engine's KV-cache memory, summed over the replicas of a pool. `None` if its
    /// size is not known.
    pub kv: Option<KvView>,
    /// The part of a limit that several processes share, or `None` if the limit is not shared.
    pub share: Option<LeaseView>,
    /// The lanes in the order of [`Lane::ALL`].
    pub lanes: [LaneView; 3],
    /// The tenants in no particular order.
    pub tenants: Vec<TenantView>,
}

/// The state of one lane of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneView {
    /// The number of slots in use by calls of the lane.
    pub in_flight: usize,
    /// The number of waiting calls of the lane.
    pub waiting: usize,
    /// The number of slots that are reserved for the lane (its floor) at the current limit, or 0 if
    /// none are.
    pub floor: usize,
}

/// The state of one tenant of a scheduler.
#[derive(Clone, Debug)]
pub struct TenantView {
    /// The fairness key of the tenant.
    pub name: Arc<str>,
    /// The number of slots in use by calls of the tenant.
    pub in_flight: usize,
    /// The maximum of `in_flight` since the tenant was added.
    pub peak: usize,
    /// The number of waiting calls of the tenant.
    pub waiting: usize,
    /// The number of slots that are reserved for the tenant (its floor) at the current limit, or 0
    /// if none are.
    pub floor: usize,
    /// The tokens by which the tenant has overdrawn its own tokens per minute, or 0 if it has not.
    pub debt: u64,
    /// For how long the tenant has been held because it uses its share of the upstream, or `None`
    /// if it is not held. See [`Rule::TenantShare`].
    pub held_for: Option<Duration>,
}

impl<W> Scheduler<W> {
    /// Returns the state of the scheduler.
    pub fn view(&self, now: Instant) -> SchedulerView {
        let Self { capacity, queue, .. } = self;
        let (limit, upstream) = (capacity.limits.slots, &capacity.upstream);
        let held_since = || capacity.blocked[Rule::Reserved as usize].since().unwrap_or(now);
        SchedulerView {
            limit,
            adaptive: upstream.adaptive(now, capacity.in_flight),
            in_flight: capacity.in_flight,
            peak: capacity.peak,
            waiting: queue.len(),
            state: upstream.state(now),
            cool_for: upstream.closed_until(now).map(|until| until.saturating_duration_since(now)),
            gap: self.gap.total,
            up: now.saturating_duration_since(self.started_at),
            held_for: self.order.reservation.map(|_| now.saturating_duration_since(held_since())),
            kv: upstream.memory(),
            share: self.share_view(),
            lanes: Lane::ALL.map(|lane| LaneView {
                in_flight: capacity.by_lane[lane as usize],
                waiting: queue.load.waiting(lane),
                floor: floor_slots(self.settings.lanes[lane as usize].floor, limit),
            }),
            tenants: queue
                .tenants
                .iter()
                .map(|(_, t)| TenantView {
                    name: t.name.clone(),
                    in_flight: t.in_flight,
                    peak: t.peak,
                    waiting: t.waiting,
                    floor: floor_slots(t.floor, limit),
                    debt: t.tokens.as_ref().map_or(0, |tenant_tokens| tenant_tokens.bucket.debt(now)),
                    held_for: t.held.since().map(|since| now.saturating_duration_since(since)),
                })
                .collect(),
        }
    }
}
