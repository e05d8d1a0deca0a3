//! Predictions of waits, and the refusal of calls that would wait too long.
//!
//! A prediction is made from the work ahead, the pace at which slots are released while they are
//! short, and the rates of the budgets. It is optimistic: it ignores later calls of higher lanes,
//! and is one standard deviation below the mean. Until enough releases were observed, there is
//! none.

use std::time::{Duration, Instant};

use super::Ticket;
use super::capacity::Capacity;
use super::ids::TenantId;
use super::pace::Pace;
use super::queue::Queue;
use super::requirements::Requirements;
use super::rule::Rule;
use super::settings::Settings;
use crate::Lane;
use tidegate_config::Predict;

/// Predicts waits. See [the module](self).
#[derive(Debug)]
pub(super) struct Predictor {
    mode: Predict,
    /// The TTFT objective of each lane.
    objectives: [Option<Duration>; 3],
    /// The pace of released slots.
    slots: Pace,
    /// The pace of first tokens, if the calls awaiting theirs are limited.
    first_tokens: Pace,
}

/// The predicted wait of a call that cannot wait that long.
pub(super) struct TooLate {
    pub(super) wait: Duration,
    /// By how much the wait is too long.
    pub(super) over: Duration,
}

impl Predictor {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            mode: settings.predict,
            objectives: Lane::ALL.map(|lane| settings.lanes[lane as usize].ttft),
            slots: Pace::default(),
            first_tokens: Pace::default(),
        }
    }

    /// Records that a slot was released or a first token came, depending on `rule`.
    pub(super) fn on_freed<W>(&mut self, now: Instant, rule: Rule, queue: &Queue<W>, capacity: &Capacity) {
        // While the target is closed or recovering, the cool-down sets the pace.
        let is_open = capacity.upstream.is_open();
        let waits = is_open && queue.has_ready_line();
        let full_since = capacity.blocked.since(rule).filter(|_| is_open);
        let pace = if rule == Rule::FirstTokens { &mut self.first_tokens } else { &mut self.slots };
        pace.on_release(now, waits, full_since);
    }

    /// Returns the time until that many calls can go, between 1 s and 60 s.
    pub(super) fn retry_after(&self, capacity: &Capacity, calls: usize) -> Duration {
        self.pace(capacity).expected(calls)
    }

    /// Returns the pace of what is short.
    fn pace(&self, capacity: &Capacity) -> &Pace {
        if capacity.shortage() == Some(Rule::FirstTokens) { &self.first_tokens } else { &self.slots }
    }

    /// Returns the wait, while the target is open, of a call with `own_ahead` calls of its line
    /// ahead. `None` if too little was observed.
    pub(super) fn wait<W>(
        &self,
        now: Instant,
        queue: &Queue<W>,
        capacity: &Capacity,
        (id, lane): (TenantId, Lane),
        own_ahead: usize,
        needs: &Requirements,
    ) -> Option<Duration> {
        let tenant = queue.tenants.get(id)?;
        let ahead = queue.load.ahead(lane, own_ahead, tenant.weight);
        let slots = capacity.shortage().and_then(|_| self.pace(capacity).until(ahead + 1));
        let tenant_tokens = tenant.tokens.as_ref().map(|tenant_tokens| {
            let all = u64::from(needs.tenant_tokens).saturating_mul(own_ahead as u64 + 1);
            if own_ahead == 0 {
                tenant_tokens.ready_at(now, needs.tenant_tokens).saturating_duration_since(now)
            } else {
                tenant_tokens.time_for(now, all)
            }
        });
        let (budgets, upstream) = (&capacity.budgets, &capacity.upstream);
        // The release of memory is not predicted: that of a single server is expected at once.
        let is_bounded = budgets.is_limiting() || (upstream.is_sized() && !upstream.can_bypass());
        let rates = is_bounded.then(|| {
            // Not before a budget has room for the call at all, for example after a used-up day.
            let alone = budgets.ready_at(now, &needs.need).saturating_duration_since(now);
            if ahead == 0 {
                alone
            } else {
                let all = budgets.time_for(ahead, &queue.load.mean(lane)) + budgets.time_for(1, &needs.need);
                all.max(alone)
            }
        });
        [slots, tenant_tokens, rates].into_iter().flatten().max()
    }

    /// Returns the predicted wait of a new call, if the call cannot wait that long.
    pub(super) fn too_late<W>(
        &self,
        now: Instant,
        queue: &Queue<W>,
        capacity: &Capacity,
        id: TenantId,
        ticket: &Ticket,
        needs: &Requirements,
    ) -> Option<TooLate> {
        // The end of a cool-down or an outage is not predicted.
        if self.mode == Predict::Off || !capacity.upstream.is_open() {
            return None;
        }
        let own_ahead = queue.line(id, ticket.lane)?.calls.len();
        let open = self.wait(now, queue, capacity, (id, ticket.lane), own_ahead, needs)?;
        let cooling = capacity.upstream.cooling_until();
        let closed = cooling.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let all = open.saturating_add(closed);
        let objective = self.objectives[ticket.lane as usize];
        let limits = [
            // A deadline never stops. A wait budget stops while the target is closed.
            Some((all, ticket.deadline.saturating_duration_since(now))),
            ticket.wait.map(|wait| (open, wait)),
            objective.filter(|_| self.mode == Predict::Objective).map(|objective| {
                (all, objective.saturating_sub(now.saturating_duration_since(ticket.queued_at)))
            }),
        ];
        let over = limits.into_iter().flatten().map(|(wait, most)| wait.saturating_sub(most)).max()?;
        (!over.is_zero()).then_some(TooLate { wait: all, over })
    }
}
