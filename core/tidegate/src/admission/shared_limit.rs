//! The operations of [`Admission`] that concern a limit that several processes share.
//!
//! Reports to the broker are created under the lock of the scheduler, and sent in that order.

use std::sync::Arc;
use std::time::Instant;

use super::Admission;
use super::driver::State;
use super::share_link::{ShareEvent, ShareLink};
use crate::clock::now;
use crate::schedule::LeaseKind;
use tidegate_share::{Lease, LeaseUpdate, LeaseView, LimitEvents, Report};

impl Admission {
    /// Shares the limit with other processes from the first call on: calls in flight, and, if the
    /// limit is adaptive, calls that await their first token. `lease` creates the lease of each,
    /// and `link` its connection. Has no effect on a limit that is shared already.
    pub(crate) fn share(&self, lease: impl Fn() -> Lease, link: impl Fn(LeaseKind) -> ShareLink) {
        let mut state = self.state.lock();
        if self.share.get().is_none() {
            state.scheduler.share(lease(), lease());
            let kinds = LeaseKind::ALL.into_iter().filter(|kind| state.scheduler.has_lease(*kind));
            let _ = self.share.set(kinds.map(|kind| (kind, link(kind))).collect());
        }
    }

    /// Sends what is due to the broker, if the limit or the pool is shared. Call this function
    /// after each event, under the lock.
    pub(super) fn report_share(&self, state: &mut State, now: Instant) {
        self.announce_placements(state);
        let Some(links) = self.share.get() else { return };
        for (kind, link) in links {
            link.join();
            if let Some(report) = state.scheduler.share_report(now, *kind) {
                link.send(ShareEvent::Reported(report));
            }
        }
        if state.scheduler.take_limit_events_announcement()
            && let Some(link) = self.slots_link()
        {
            link.send(ShareEvent::Observed);
        }
    }

    fn slots_link(&self) -> Option<&ShareLink> {
        let links = self.share.get()?;
        links.iter().find(|(kind, _)| *kind == LeaseKind::Slots).map(|(_, link)| link)
    }

    /// Joins a broker. Returns the report for it, or `None` if the limit is not shared. A cool-down
    /// is announced again, because the broker may not know of it.
    pub(crate) fn join_share(&self, kind: LeaseKind) -> Option<Report> {
        let now = now();
        let mut state = self.state.lock();
        if kind == LeaseKind::Slots && state.scheduler.waits_until().is_some_and(|until| now < until) {
            self.announce_cooldown(&state);
        }
        state.scheduler.with_lease(now, kind, |lease, usage| lease.join(now, usage))
    }

    /// Applies a change of a lease, and admits the calls that may be sent now.
    pub(crate) fn on_lease_update(self: &Arc<Self>, kind: LeaseKind, update: LeaseUpdate) {
        self.on_lease_event(kind, |lease, now| lease.on_update(now, update));
    }

    /// Renews a lease, because the broker has answered a heartbeat that was sent at `sent_at`.
    pub(crate) fn on_share_alive(self: &Arc<Self>, kind: LeaseKind, sent_at: Instant) {
        self.on_lease_event(kind, |lease, now| lease.on_alive(now, sent_at));
    }

    /// Records that the broker was lost. The lease remains until its end.
    pub(crate) fn on_share_lost(self: &Arc<Self>, kind: LeaseKind) {
        self.on_lease_event(kind, Lease::on_lost);
    }

    /// Returns what other processes must be told of the calls of this one, or `None` if there is
    /// nothing more.
    pub(crate) fn take_limit_events(&self) -> Option<LimitEvents> {
        self.state.lock().scheduler.take_limit_events(now())
    }

    /// Returns `true` if calls are in flight, or, at a pool, were sent since the last time.
    pub(crate) fn take_activity(&self) -> bool {
        self.state.lock().scheduler.take_activity()
    }

    /// Applies what happened to calls of another process, which has the number `process`.
    pub(crate) fn on_limit_events(self: &Arc<Self>, process: u64, limit_events: &LimitEvents) {
        self.update(|scheduler, now| scheduler.on_limit_events(now, process, limit_events));
    }

    /// Lets this process use the whole cap, because there can be no broker.
    pub(crate) fn on_share_alone(self: &Arc<Self>, kind: LeaseKind) {
        self.on_lease_event(kind, Lease::on_alone);
    }

    /// Returns the number of processes that share the limit or the pool, as last heard. At least 1.
    pub(crate) fn processes(&self) -> usize {
        let is_shared = self.share.get().is_some() || self.pool_share.get().is_some();
        if is_shared { self.state.lock().scheduler.processes() } else { 1 }
    }

    /// Returns the state of the lease, or `None` if the limit is not shared.
    pub(crate) fn share_view(&self) -> Option<LeaseView> {
        self.state.lock().scheduler.share_view()
    }

    fn on_lease_event(self: &Arc<Self>, kind: LeaseKind, event: impl FnOnce(&mut Lease, Instant)) {
        self.update(|scheduler, now| scheduler.with_lease(now, kind, |lease, _| event(lease, now)));
    }

    /// Returns what is idle, and reports what has changed since the last report.
    pub(crate) fn on_share_heartbeat(self: &Arc<Self>, kind: LeaseKind) {
        self.update(|scheduler, now| {
            let report =
                scheduler.with_lease(now, kind, |lease, usage| lease.heartbeat(now, usage)).flatten();
            let links = self.share.get().into_iter().flatten();
            // Under the lock, so that a later report is not sent before this one.
            for (_, link) in links.filter(|(of, _)| *of == kind) {
                report.into_iter().for_each(|report| link.send(ShareEvent::Reported(report)));
            }
        });
    }

    /// Tells the other processes that the provider asked callers to wait, if it did.
    pub(super) fn announce_cooldown(&self, state: &State) {
        if let Some((link, until)) = self.slots_link().zip(state.scheduler.waits_until()) {
            link.send(ShareEvent::CoolingUntil(until));
        }
    }
}
