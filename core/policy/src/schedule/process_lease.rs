//! The lease of this process: the part of a scheduler's slots that it may use, if several processes
//! share the limit. See [`tidegate_share`].

use std::time::Instant;

use super::{Capacity, LimitEventExchange, Limiter, Rule, Scheduler, Ticket};
use tidegate_share::{Lease, LeaseView, LimitEvents, Report, SlotUse};

/// What a lease permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// Calls in flight.
    Slots,
    /// Calls that await their first token, at a target with an adaptive limit.
    FirstTokens,
}

impl LeaseKind {
    /// Both kinds. A call takes a slot first.
    pub const ALL: [Self; 2] = [Self::Slots, Self::FirstTokens];
}

impl<W> Scheduler<W> {
    /// Shares the limit with other processes: from now on, calls need a slot of `slots`, too, and,
    /// if the limit is adaptive, a place of `first_tokens` until their first token.
    pub fn share(&mut self, slots: Lease, first_tokens: Lease) {
        self.capacity.lease = Some(Box::new(slots));
        let limiter = self.capacity.upstream.limiter_of(None);
        if let Some(limiter) = limiter.filter(|limiter| !limiter.is_fixed()) {
            limiter.share();
            self.capacity.first_token_lease = Some(Box::new(first_tokens));
        }
        self.capacity.read_limits();
    }

    /// Returns `true` if calls need a lease of this kind.
    pub fn has_lease(&self, kind: LeaseKind) -> bool {
        match kind {
            LeaseKind::Slots => self.capacity.lease.is_some(),
            LeaseKind::FirstTokens => self.capacity.first_token_lease.is_some(),
        }
    }

    /// Runs `event` on a lease and its use, and updates the limits if what is in force has changed.
    /// Returns `None` if the limit is not shared.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn with_lease<T>(
        &mut self,
        now: Instant,
        kind: LeaseKind,
        event: impl FnOnce(&mut Lease, &SlotUse) -> T,
    ) -> Option<T> {
        let usage = self.usage(now, kind)?;
        let Capacity { lease, first_token_lease, upstream, .. } = &mut self.capacity;
        let lease = match kind {
            LeaseKind::Slots => lease.as_mut()?,
            LeaseKind::FirstTokens => first_token_lease.as_mut()?,
        };
        let state = |lease: &Lease| (lease.view(), lease.appointment());
        let before = state(lease);
        let result = event(lease, &usage);
        if state(lease) != before {
            if let Some(limiter) = upstream.limiter_of(None).filter(|_| kind == LeaseKind::Slots) {
                limiter.on_lease_changed(now, lease);
            }
            self.capacity.refresh_limits(now);
        }
        Some(result)
    }

    /// Returns the report that must be sent to the broker now, or `None` if there is none. Call
    /// this method after each event, when [`Scheduler::next`] has returned `None`.
    pub fn share_report(&mut self, now: Instant, kind: LeaseKind) -> Option<Report> {
        self.with_lease(now, kind, |lease, usage| lease.report(now, usage)).flatten()
    }

    /// Returns `true` if there are events of calls for the other processes, and marks them as
    /// announced, so that `true` is returned once for the events that
    /// [`Scheduler::take_limit_events`] returns. Call this method after each event.
    pub fn take_limit_events_announcement(&mut self) -> bool {
        let limiter =
            self.capacity.lease.is_some().then(|| self.capacity.upstream.limiter_of(None)).flatten();
        limiter.and_then(Limiter::exchange).is_some_and(LimitEventExchange::take_announcement)
    }

    /// Returns events of calls that other processes must be told of. Call this method until it
    /// returns `None`.
    pub fn take_limit_events(&mut self, now: Instant) -> Option<LimitEvents> {
        self.capacity.upstream.limiter_of(None)?.exchange()?.take(now)
    }

    /// Applies events of the calls of another process, which has the number `process`.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn on_limit_events(&mut self, now: Instant, process: u64, limit_events: &LimitEvents) {
        self.tick(now);
        if let Some(limiter) = self.capacity.upstream.limiter_of(None) {
            limiter.observe(now, process, limit_events);
        }
        self.capacity.refresh_and_record(now);
        self.watch_gap(now);
    }

    /// Returns the number of processes that share the limit or the pool, as last heard. At least 1.
    pub fn processes(&self) -> usize {
        let of_limit = self.capacity.lease.as_ref().map_or(1, |lease| lease.view().members);
        let of_pool = self.capacity.upstream.as_pool().map_or(1, |pool| pool.processes());
        of_limit.max(of_pool)
    }

    /// Returns the state of the lease, or `None` if the limit is not shared.
    pub fn share_view(&self) -> Option<LeaseView> {
        self.capacity.lease.as_ref().map(|lease| lease.view())
    }

    /// Returns how a lease is used, or `None` if the limit is not shared.
    ///
    /// A call takes a slot first. A waiting call that lacks only a place for its first token keeps
    /// an idle slot of this process's share, so that it does not lack one when it gets that place.
    /// Only a process with such a slot asks for a place.
    fn usage(&self, now: Instant, kind: LeaseKind) -> Option<SlotUse> {
        let capacity = &self.capacity;
        let slots = capacity.lease.as_ref()?;
        let waiting = if self.draining {
            0
        } else if capacity.upstream.is_open() {
            self.queue.len()
        } else if capacity.upstream.is_cooling(now) {
            0
        } else {
            // Probes and the calls of a ramp are sent one at a time.
            self.queue.len().min(1)
        };
        let waits_for = |rule| if capacity.limits.shortage == Some(rule) { waiting } else { 0 };
        let kept = waits_for(Rule::FirstTokens).min(slots.idle(capacity.in_flight));
        let (in_flight, waiting) = match kind {
            LeaseKind::Slots => (capacity.in_flight + kept, waits_for(Rule::Share)),
            LeaseKind::FirstTokens => (capacity.upstream.awaiting(), kept),
        };
        Some(SlotUse { in_flight, waiting, weight: self.waiting_weight() })
    }

    /// Asks for what a call needs that is not queued, but may be tried again.
    pub fn want_rates(&mut self, now: Instant, ticket: &Ticket) {
        if self.capacity.is_sized() {
            let need = self.capacity.needs(ticket).need;
            self.capacity.budgets.want(now, &need);
        }
    }

    /// Returns the weight of the calls that wait, or 1 if none does.
    pub fn waiting_weight(&self) -> f64 {
        let weight = self.queue.load.weight();
        if weight > 0.0 { weight } else { 1.0 }
    }
}
