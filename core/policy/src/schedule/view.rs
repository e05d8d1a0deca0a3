//! The state of a scheduler for snapshots and metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Scheduler;
use super::floors::slots;
use super::rule::Rule;
use crate::Lane;
use crate::adaptive::AdaptiveView;
use crate::cooldown::CooldownState;
use crate::kv::KvView;

/// The state of a scheduler. The levels of its budgets are in the view of the budgets.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct View {
    /// Slots in force.
    pub limit: usize,
    /// The adaptive limit. `None` if the limit is fixed, or if each replica has one.
    pub adaptive: Option<AdaptiveView>,
    pub in_flight: usize,
    pub peak: usize,
    pub waiting: usize,
    pub state: CooldownState,
    pub cool_for: Option<Duration>,
    pub gap: Duration,
    pub up: Duration,
    /// For how long resources have been reserved for an aged call that does not fit yet.
    pub held_for: Option<Duration>,
    /// The engine's memory, if its size is known.
    pub kv: Option<KvView>,
    /// The lanes, in the order of [`Lane::ALL`].
    pub lanes: [LaneView; 3],
    pub tenants: Vec<TenantView>,
}

/// The state of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LaneView {
    pub in_flight: usize,
    pub waiting: usize,
    /// The lane's floor in slots.
    pub floor: usize,
}

/// The state of one tenant.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct TenantView {
    pub name: Arc<str>,
    pub in_flight: usize,
    pub peak: usize,
    pub waiting: usize,
    /// The tenant's floor in slots.
    pub floor: usize,
    /// Tokens owed to the tenant's own token budget.
    pub debt: u64,
}

impl<W> Scheduler<W> {
    /// Returns the current state.
    pub fn view(&self, now: Instant) -> View {
        let Self { capacity, queue, .. } = self;
        let (limit, upstream) = (capacity.slots(), &capacity.upstream);
        let held_since = || capacity.blocked.since(Rule::Held).unwrap_or(now);
        View {
            limit,
            adaptive: upstream.adaptive(now, capacity.in_flight),
            in_flight: capacity.in_flight,
            peak: capacity.peak,
            waiting: queue.len(),
            state: upstream.state(now),
            cool_for: upstream.closed_until(now).map(|until| until.saturating_duration_since(now)),
            gap: self.gap.total,
            up: now.saturating_duration_since(self.began),
            held_for: self.order.reservation.map(|_| now.saturating_duration_since(held_since())),
            kv: upstream.memory(),
            lanes: Lane::ALL.map(|lane| LaneView {
                in_flight: capacity.in_flight_of(lane),
                waiting: queue.load.waiting(lane),
                floor: slots(self.settings.lanes[lane as usize].floor, limit),
            }),
            tenants: queue
                .tenants
                .iter()
                .map(|(_, t)| TenantView {
                    name: t.name.clone(),
                    in_flight: t.in_flight,
                    peak: t.peak,
                    waiting: t.waiting,
                    floor: slots(t.floor, limit),
                    debt: t.tokens.as_ref().map_or(0, |tenant_tokens| tenant_tokens.debt(now)),
                })
                .collect(),
        }
    }
}
