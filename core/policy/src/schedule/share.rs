//! The part of a scheduler's slots that this process may use, if several processes share the limit.
//! See [`tidegate_share`].

use std::time::Instant;

use super::{EvidenceExchange, Limiter, Rule, Scheduler, Ticket};
use tidegate_share::{CallEvent, Lease, LeaseView, Report, SlotUse};

impl<W> Scheduler<W> {
    /// Shares the limit with other processes: from now on, calls need a slot of `lease`, too.
    pub fn share(&mut self, lease: Lease) {
        self.capacity.lease = Some(Box::new(lease));
        if let Some(limiter) = self.capacity.upstream.limiter_of(None) {
            limiter.share();
        }
        self.capacity.read_limits();
    }

    /// Runs `event` on the lease and the use of its slots, and updates the limits if the slots in force
    /// have changed. Returns `None` if the limit is not shared.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn with_lease<T>(
        &mut self,
        now: Instant,
        event: impl FnOnce(&mut Lease, &SlotUse) -> T,
    ) -> Option<T> {
        self.capacity.lease.as_ref()?;
        let usage = self.usage(now);
        let lease = self.capacity.lease.as_mut()?;
        let before = (lease.in_force(), lease.view().cap, lease.followed());
        let result = event(lease, &usage);
        if (lease.in_force(), lease.view().cap, lease.followed()) != before {
            if let Some(limiter) = self.capacity.upstream.limiter_of(None) {
                limiter.on_lease_changed(now, lease);
            }
            self.capacity.refresh_limits(now);
        }
        Some(result)
    }

    /// Returns the report that must be sent to the broker now, or `None` if there is none. Call this
    /// method after each event, when [`Scheduler::next`] has returned `None`.
    pub fn share_report(&mut self, now: Instant) -> Option<Report> {
        self.with_lease(now, |lease, usage| lease.report(now, usage)).flatten()
    }

    /// Returns `true` if there are events of calls that other processes must be told of. Returns it once for
    /// the events that [`Scheduler::take_evidence`] returns. Call this method after each event.
    pub fn announces_evidence(&mut self) -> bool {
        let limiter =
            self.capacity.lease.is_some().then(|| self.capacity.upstream.limiter_of(None)).flatten();
        limiter.and_then(Limiter::exchange).is_some_and(EvidenceExchange::announce)
    }

    /// Returns events of calls that other processes must be told of, and whether they must forget earlier
    /// calls of this process first. Call this method until it returns `None`.
    pub fn take_evidence(&mut self, now: Instant) -> Option<(bool, Vec<CallEvent>)> {
        self.capacity.upstream.limiter_of(None)?.exchange()?.take(now)
    }

    /// Applies events of the calls of another process, which have the number `process`. If `restarts`, its
    /// earlier calls are forgotten.
    ///
    /// Call [`Scheduler::next`] afterwards.
    pub fn on_evidence(&mut self, now: Instant, process: u64, restarts: bool, events: &[CallEvent]) {
        self.tick(now);
        if let Some(limiter) = self.capacity.upstream.limiter_of(None) {
            limiter.observe(now, process, restarts, events);
        }
        self.capacity.refresh_and_record(now);
        self.watch_gap(now);
    }

    /// Returns the state of the lease, or `None` if the limit is not shared.
    pub fn share_view(&self) -> Option<LeaseView> {
        self.capacity.lease.as_ref().map(|lease| lease.view())
    }

    /// Returns how the slots of the lease are used.
    fn usage(&self, now: Instant) -> SlotUse {
        let capacity = &self.capacity;
        let waiting = if capacity.limits.shortage != Some(Rule::Share) || self.draining {
            0
        } else if capacity.upstream.is_open() {
            self.queue.len()
        } else if capacity.upstream.is_cooling(now) {
            0
        } else {
            // Probes and the calls of a ramp are sent one at a time.
            self.queue.len().min(1)
        };
        SlotUse { in_flight: capacity.in_flight, waiting, weight: self.waiting_weight() }
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
