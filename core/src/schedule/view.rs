//! What a scheduler shows of itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Scheduler;
use super::floors::slots;
use super::rule::Rule;
use crate::adaptive::AdaptiveView;
use crate::context::Lane;
use crate::cooldown::State;
use crate::kv;

/// A scheduler's state, for snapshots and metrics. The levels of its budgets are told by the budgets.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct View {
    /// Slots in force.
    pub limit: usize,
    /// `None`: their number is fixed; or it is that of all replicas together, each of which has its own.
    pub adaptive: Option<AdaptiveView>,
    pub in_flight: usize,
    pub peak: usize,
    pub waiting: usize,
    pub state: State,
    pub cool_for: Option<Duration>,
    pub gap: Duration,
    pub up: Duration,
    /// For how long room has been kept for an aged call that does not fit yet.
    pub held_for: Option<Duration>,
    /// The engine's memory, where its size is known.
    pub kv: Option<kv::View>,
    /// In the order of [`Lane::ALL`].
    pub lanes: [LaneView; 3],
    pub tenants: Vec<TenantView>,
}

/// One lane's part of a [`View`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LaneView {
    pub in_flight: usize,
    pub waiting: usize,
    /// Slots that are its own.
    pub floor: usize,
}

/// One tenant's part of a [`View`].
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct TenantView {
    pub name: Arc<str>,
    pub in_flight: usize,
    pub peak: usize,
    pub waiting: usize,
    /// Slots that are its own.
    pub floor: usize,
    /// Tokens that it owes, of its own tokens a minute.
    pub debt: u64,
}

impl<W> Scheduler<W> {
    /// What a person would want to know.
    pub fn view(&self, now: Instant) -> View {
        let Self { capacity, queue, .. } = self;
        let (limit, upstream) = (capacity.slots(), &capacity.upstream);
        let held_since = || capacity.blocked.since(Rule::Held).unwrap_or(now);
        View {
            limit,
            adaptive: upstream.adaptive(now, capacity.in_flight()),
            in_flight: capacity.in_flight(),
            peak: capacity.peak(),
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
