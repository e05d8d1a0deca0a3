//! Predictions of waits. Calls whose predicted wait is too long are refused.
//!
//! A prediction is computed from the number of calls ahead, the rate budgets, and the pace at which
//! slots are released while none is free. It is optimistic: it ignores calls of higher lanes that
//! arrive later, and is one standard deviation below the mean. There is no prediction until enough
//! releases were observed.
//!
//! # Calls ahead
//!
//! A call of another line is ahead only if it may be dispatched when a slot becomes free: its line
//! is ready, and its tenant's cap permits the call. All such calls of higher lanes are ahead, and
//! in the lane of the call:
//!
//! - the calls of its line that are ahead of it;
//! - the first call of each other line that precedes its line in fair queueing. Few lines precede
//!   that of a tenant that was idle;
//! - for each call of its line that is ahead of it, a round of calls of the other lines, in
//!   proportion to the weights of their tenants.

use std::time::{Duration, Instant};

use super::{Candidate, Capacity, Queue, Rule, Scheduler, Ticket};
use crate::Lane;

/// The number of releases that must be observed before waits are predicted from their pace.
const MIN_RELEASES: u32 = 32;
/// The weight of one release in the observed pace, so that about the last hundred releases count.
const DECAY: f64 = 1.0 / 128.0;
/// The assumed time between two releases, in seconds, before one was observed.
const DEFAULT_INTERVAL: f64 = 1.0;

/// The paces at which slots and first tokens become available.
#[derive(Debug, Default)]
pub(super) struct Paces {
    /// The pace at which slots are released while none is free.
    slots: Pace,
    /// The pace at which slots are released while calls wait although a slot is free, because they
    /// lack tokens, memory or a replica. Only `retry_after` is computed from it.
    others: Pace,
    /// When the last slot was released if calls waited then although a slot was free. `None` if
    /// none waited, if no slot was free, or if no slot was released yet.
    others_since: Option<Instant>,
    /// The pace at which calls get their first tokens. Observed only if the number of calls that
    /// await their first token is limited.
    first_tokens: Pace,
}

impl<W> Scheduler<W> {
    /// Records that a slot was released ([`Rule::Slots`]) or that a call has stopped awaiting its
    /// first token ([`Rule::FirstTokens`]).
    pub(super) fn on_freed(&mut self, now: Instant, rule: Rule) {
        // While the target is closed or recovering, the cool-down sets the pace.
        let is_open = self.is_open();
        let blocked_since = |rule: Rule| self.capacity.blocked[rule as usize].since().filter(|_| is_open);
        let Paces { slots, others, others_since, first_tokens } = &mut self.paces;
        if rule == Rule::FirstTokens {
            return first_tokens.on_release(now, blocked_since(rule));
        }
        // At a shared limit, no slot is free if this process uses all slots that it may use.
        let full_since = blocked_since(Rule::Slots).or(blocked_since(Rule::Share));
        slots.on_release(now, full_since);
        let waits = full_since.is_none() && is_open && !self.queue.lanes.is_empty();
        others.on_release(now, others_since.filter(|_| waits));
        *others_since = waits.then_some(now);
    }

    /// Returns the pace of first tokens if the limit on calls that await their first token is
    /// reached, otherwise the pace of slots: while none is free, or while calls wait for something
    /// else.
    pub(super) fn pace(&self) -> &Pace {
        match self.capacity.limits.shortage {
            Some(Rule::FirstTokens) => &self.paces.first_tokens,
            Some(_) => &self.paces.slots,
            None => &self.paces.others,
        }
    }

    /// Returns the predicted wait of a call with `in_line` waiting calls of its tenant and lane
    /// ahead, without the time in which the target is closed. Returns `None` if nothing predicts
    /// the wait, for example because too few releases were observed.
    pub(super) fn expected_wait(
        &self,
        now: Instant,
        call: &Candidate<'_>,
        in_line: usize,
    ) -> Option<Duration> {
        let Candidate { tenant, ticket: Ticket { lane, .. }, needs } = call;
        let (queue, Capacity { upstream, budgets, limits, .. }) = (&self.queue, &self.capacity);
        let tenant = queue.tenants.get(*tenant)?;
        let ahead = queue.calls_ahead(call, in_line);
        let slots = limits.shortage.and_then(|_| self.pace().until(ahead + 1));
        let tenant_tokens = tenant.tokens.as_ref().map(|tokens| {
            let all = u64::from(needs.tenant_tokens).saturating_mul(in_line as u64 + 1);
            if in_line == 0 {
                tokens.ready_at(now, needs.tenant_tokens).saturating_duration_since(now)
            } else {
                tokens.time_for(now, all)
            }
        });
        // The release of memory is not predicted: that of a single server is expected at once.
        let is_bounded = budgets.is_limiting() || (upstream.is_sized() && !upstream.can_bypass());
        let rates = is_bounded.then(|| {
            // Not before each budget permits the call at all, for example after a used-up day. If
            // the processes that share a budget were lost, nothing predicts when they are back.
            let alone = budgets.ready_at(now, &needs.need)?.saturating_duration_since(now);
            if ahead == 0 {
                return Some(alone);
            }
            let all = budgets.time_for(ahead, &queue.load.mean(*lane)) + budgets.time_for(1, &needs.need);
            Some(all.max(alone))
        });
        [slots, tenant_tokens, rates.flatten()].into_iter().flatten().max()
    }
}

impl<W> Queue<W> {
    /// Returns the expected number of calls that are dispatched before a call with `in_line`
    /// waiting calls of its tenant and lane ahead. See [the module](self).
    pub(super) fn calls_ahead(&self, call: &Candidate<'_>, in_line: usize) -> usize {
        let Candidate { tenant: id, ticket, .. } = *call;
        let Some(tenant) = self.tenants.get(id) else { return in_line };
        let higher = Lane::ALL.into_iter().filter(|higher| *higher < ticket.lane);
        let higher: usize = higher.map(|higher| self.lanes.lane(higher).calls).sum();
        let (lane, line) = (self.lanes.lane(ticket.lane), &tenant.lines[ticket.lane as usize]);
        let (calls, weight) = match line.position {
            Some(position) => (lane.calls - position.head.calls, lane.weight),
            None => (lane.calls, lane.weight + tenant.weight),
        };
        let rounds = (in_line as f64 * weight / tenant.weight).ceil() as usize;
        let turns = lane.lines_before(id, tenant.weight, line, ticket) + rounds.saturating_sub(in_line);
        higher + in_line + calls.min(turns)
    }
}

/// How fast slots are released, or first tokens arrive, while there are too few. Either event is
/// called a *release* here. `retry_after` and predicted waits are computed from the pace.
///
/// Of the time between two releases, only the part without a free slot counts or, for first tokens,
/// in which the limit on calls that await theirs is reached. The remaining time depends on the
/// callers, or on how fast tokens accrue. [`Paces::others`] is the exception.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the last release was, or `None` if there was none.
    last: Option<Instant>,
    /// The number of releases for which the time before was counted.
    seen: u32,
    /// The number of releases for which the time before was counted, where each release reduces the
    /// weight of the earlier ones by the fraction [`DECAY`].
    count: f64,
    /// The sum of the times before the counted releases in seconds, where each release reduces the
    /// weight of the earlier ones by the fraction [`DECAY`].
    seconds: f64,
}

impl Pace {
    /// Records a release. Of the time since the last release, only the part since `since` counts,
    /// and nothing if that is `None`.
    fn on_release(&mut self, now: Instant, since: Option<Instant>) {
        if let Some(since) = since {
            let since = self.last.map_or(since, |last| last.max(since));
            let seconds = now.saturating_duration_since(since).as_secs_f64();
            self.seen = self.seen.saturating_add(1);
            self.count += 1.0 - self.count * DECAY;
            self.seconds += seconds - self.seconds * DECAY;
        }
        self.last = Some(now);
    }

    /// Returns the mean time between two releases in seconds, or `None` if none was counted.
    fn interval(&self) -> Option<f64> {
        (self.seen > 0).then(|| self.seconds / self.count)
    }

    /// Returns the expected time until `slots` more releases, at least 1 s and at most 60 s.
    pub(super) fn expected(&self, slots: usize) -> Duration {
        let wait = self.interval().unwrap_or(DEFAULT_INTERVAL) * slots as f64;
        Duration::from_secs_f64(wait.clamp(1.0, 60.0))
    }

    /// Returns the expected time until `slots` more releases, minus one standard deviation. Returns
    /// `None` if fewer than [`MIN_RELEASES`] were counted.
    pub(super) fn until(&self, slots: usize) -> Option<Duration> {
        let slots = slots as f64;
        let interval = self.interval().filter(|_| self.seen >= MIN_RELEASES)?;
        let wait = (slots - slots.sqrt()).max(0.0) * interval;
        Some(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
    }
}
