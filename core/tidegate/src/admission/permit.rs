//! The permit of an attempt. It holds one slot, and passes the events of the attempt on to the
//! scheduler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Admission;
use super::cancel::CancelSignal;
use super::driver::{State, Waiting};
use crate::adaptive::Ended;
use crate::clock::now;
use crate::cooldown::Failure;
use crate::fairness::Tag;
use crate::kv::Progress;
use crate::placement::{Fault, Placed};
use crate::schedule::{Grant, Scheduler, Settled};
use tidegate_policy::retry::RetryPath;
use tidegate_protocol::RateHeaders;

/// A slot that is held by one attempt.
///
/// Dropping the permit releases the slot, exactly once, and admits the next call. This covers every
/// end of an attempt: the end or drop of the body, the drop of the future, and a panic.
#[must_use = "dropping the permit releases the slot"]
pub struct Permit {
    admission: Arc<Admission>,
    /// The scheduler's record of the slot. `None` only while the permit is being dropped.
    grant: Option<Box<Grant>>,
    /// When the call was made.
    queued_at: Instant,
    admitted_at: Instant,
}

impl Permit {
    pub(super) fn new(
        admission: Arc<Admission>,
        grant: Box<Grant>,
        queued_at: Instant,
        admitted_at: Instant,
    ) -> Self {
        Self { admission, grant: Some(grant), queued_at, admitted_at }
    }

    /// Returns the fair-queue tag of the call, which determines its position in the queue. A retry
    /// reuses the tag, so that it is not queued behind newer calls. `None` only while the permit is
    /// being dropped.
    pub fn queue_tag(&self) -> Option<Tag> {
        self.grant.as_deref().map(Grant::queue_tag)
    }

    /// Returns the replica of the slot. `None` if the target is not a pool.
    pub fn placed(&self) -> Option<&Placed> {
        self.grant.as_deref().and_then(Grant::placed)
    }

    /// Returns how much of the call's wait budget (its maximum time in the queue) this wait has
    /// used. Time during a cool-down or an outage counts only if the target has a `fallback`.
    pub fn used_wait(&self) -> Duration {
        self.grant.as_ref().map(|grant| grant.used_wait).unwrap_or_default()
    }

    /// Returns the time from when the call was made until the slot was granted.
    pub fn waited(&self) -> Duration {
        self.admitted_at.saturating_duration_since(self.queued_at)
    }

    /// Returns the number of slots of the target in use just after this slot was granted, this slot
    /// included.
    pub fn in_flight(&self) -> usize {
        self.grant.as_ref().map_or(0, |grant| grant.in_flight)
    }

    /// Returns when the slot was granted.
    pub fn admitted_at(&self) -> Instant {
        self.admitted_at
    }

    /// Records that the attempt is handed to its transport. From then on, the rate budgets are
    /// charged even if the attempt fails.
    pub fn on_sent(&mut self) {
        if let Some(grant) = &mut self.grant {
            grant.sent = true;
        }
    }

    /// Records that the first token of the response has arrived. Admits a waiting call if the limit
    /// on calls awaiting their first token was reached.
    pub fn on_first_token(&mut self) {
        self.update_limit(Scheduler::on_first_token);
    }

    /// Records that the first token cannot be observed, because the response does not stream or
    /// cannot be parsed. The adaptive limit then treats the attempt as one that does not stream.
    pub fn mark_unobservable(&mut self) {
        self.update_limit(Scheduler::mark_unobservable);
    }

    /// Reports an observation of the attempt to the scheduler. Does nothing, and takes no lock, if
    /// neither an adaptive limit nor a replica of a pool uses the observation.
    fn update_limit(&mut self, observe: impl FnOnce(&mut Scheduler<Waiting>, Instant, &mut Grant)) {
        if let Some(grant) = self.grant.as_mut().filter(|grant| grant.is_tracked()) {
            self.admission.update(|scheduler, now| observe(scheduler, now, grant));
        }
    }

    /// Stores how the attempt ended. The adaptive limit learns it when the slot is released. An
    /// attempt for which this function is not called counts as cancelled.
    pub fn set_ended(&mut self, ended: Ended) {
        if let Some(grant) = &mut self.grant {
            grant.outcome = ended;
        }
    }

    /// Returns `true` if the rate budgets do not contain enough requests or tokens now for another
    /// call like this one.
    pub(crate) fn is_budget_exhausted(&self) -> bool {
        let Some(grant) = &self.grant else { return false };
        self.admission.state.lock().scheduler.is_budget_exhausted(now(), grant)
    }

    /// Returns the signal that cancels the attempt. `None` if the target neither sets `reclaim` nor
    /// is a pool, because it then cancels no attempts.
    pub(crate) fn cancel_signal(&self) -> Option<Arc<CancelSignal>> {
        self.admission.cancel_signals.register(self.grant.as_ref()?.id)
    }

    /// Records that the response has begun. The attempt can no longer be cancelled.
    pub(crate) fn on_response_head(&mut self) {
        let Admission { state, cancel_signals, .. } = &*self.admission;
        if let Some(grant) = self.grant.as_mut().filter(|_| cancel_signals.is_enabled()) {
            state.lock().scheduler.on_response_head(grant);
            cancel_signals.remove(grant.id);
        }
    }

    /// Records that the upstream did no work for the attempt. Releasing the slot then refunds the
    /// charge to the rate budgets.
    pub fn mark_unsent(&mut self) {
        if let Some(grant) = &mut self.grant {
            grant.sent = false;
        }
    }

    /// Updates the rate budgets from the rate-limit headers of a response, and admits waiting calls
    /// if the budgets have grown. Must be called for each response, also for those without such
    /// headers. `sent_at` is when the attempt was sent. `limited` is `true` if the response is a
    /// rate-limit rejection.
    pub fn on_rate_headers(&mut self, sent_at: Instant, headers: &RateHeaders, limited: bool) {
        let (admission, Some(grant)) = (&self.admission, &self.grant) else { return };
        let shows_limit = limited || !headers.is_empty();
        if !shows_limit && !admission.budgets.bounds_anything() {
            return;
        }
        admission.state.lock().scheduler.on_rate_headers(now(), grant, sent_at, headers, limited);
        // Otherwise at most a rate has grown a little, and the timer task admits waiting calls at
        // the time that is already set.
        if shows_limit {
            admission.admit_waiting();
            admission.budgets.notify_others(admission);
        }
    }

    /// Replaces the estimated tokens and cost of the attempt by the actual ones, which corrects the
    /// charges to its tenant and to the rate budgets.
    pub fn settle(&mut self, settled: &Settled) {
        if let Some(grant) = &mut self.grant {
            // The release follows at once, and admits calls for which there is capacity then.
            self.admission.state.lock().scheduler.settle(now(), grant, settled);
        }
    }

    /// Returns the counter of output tokens of the attempt. The caller must increase it as tokens
    /// arrive, because the scheduler reads it.
    pub fn progress(&self) -> Progress {
        self.grant.as_deref().and_then(Grant::progress).cloned().unwrap_or_default()
    }

    /// Records that the upstream accepted the attempt. Ends a cool-down or an outage of the target,
    /// and then admits waiting calls. Logs the end of an outage.
    pub fn on_success(&mut self) {
        let Some(grant) = &mut self.grant else { return };
        let now = now();
        let mut state = self.admission.state.lock();
        let State { scheduler, outage_log, .. } = &mut *state;
        let may_admit = scheduler.on_success(now, grant);
        let is_over = outage_log.try_end(|| scheduler.is_in_outage());
        drop(state);
        if is_over {
            self.admission.log_outage_end();
        }
        if may_admit {
            self.admission.refresh();
        }
    }

    /// Records that the upstream failed the attempt of the call with the number `call`. This may
    /// put the target into a cool-down: for `delay` if the upstream stated a delay, otherwise for a
    /// computed time. Logs the beginning of an outage. Returns how the call continues if it is
    /// retried.
    ///
    /// `problem` returns how the attempt failed, in words, and is called only during an outage.
    pub fn on_failure(
        &mut self,
        call: u64,
        failure: Failure,
        delay: Option<Duration>,
        problem: impl FnOnce() -> Option<String>,
    ) -> RetryPath {
        let Some(grant) = &mut self.grant else { return RetryPath::Backoff };
        let now = now();
        let mut state = self.admission.state.lock();
        let path = state.scheduler.on_failure(now, grant, call, failure, delay, fastrand::f64());
        if path == RetryPath::AfterOutage {
            state.outage_log.last_problem = problem();
        }
        let is_in_outage = state.scheduler.is_in_outage();
        let begins = state.outage_log.try_begin(now, is_in_outage);
        let problem = begins.then(|| state.outage_log.last_problem.clone()).flatten();
        if delay.is_some() {
            self.admission.announce_cooldown(&state);
        }
        drop(state);
        if begins {
            let name = self.admission.name();
            let problem = problem.map(|problem| format!(" ({problem})")).unwrap_or_default();
            tracing::warn!(target = %name, "an outage of the target begins: its last calls failed{problem}");
        }
        if path != RetryPath::Backoff {
            // Calls with a deadline before the end of the cool-down are rejected at once.
            self.admission.refresh();
        }
        path
    }

    /// Records that the replica failed the attempt. Returns how the call continues if it is
    /// retried.
    pub fn on_replica_fault(&mut self, fault: Fault) -> RetryPath {
        let Some(grant) = &mut self.grant else { return RetryPath::Backoff };
        // Calls that only this replica can serve are rejected, and calls whose response it has not
        // begun are cancelled.
        let path = self.admission.update(|scheduler, now| scheduler.on_replica_failure(now, grant, fault));
        self.admission.log_pool_state();
        path
    }

    /// Records that nothing of the response had arrived when the call's deadline or a timeout of
    /// the caller's client passed. Does nothing if the target is not a pool.
    pub(crate) fn on_unanswered(&mut self) {
        if self.placed().is_some() {
            self.on_replica_fault(Fault::Unanswered);
        }
    }

    /// Records that a part of the response arrived, so the replica is alive. Takes the scheduler's
    /// lock at most once per 100 ms and replica.
    pub(crate) fn on_alive(&self) {
        let (admission, Some(grant)) = (&self.admission, &self.grant) else { return };
        let Some((liveness, at)) = admission.liveness.as_ref().zip(grant.replica_index()) else { return };
        let now = now();
        // Few reports take the lock.
        if liveness.try_claim(at, now) && admission.state.lock().scheduler.on_alive(now, grant) {
            admission.admit_waiting();
        }
    }

    /// Takes the slot out of the permit without releasing it, so that dropping the permit has no
    /// effect. `None` only if the slot was already taken.
    pub(super) fn into_grant(mut self) -> Option<Box<Grant>> {
        self.grant.take()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.admission.release(grant);
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("target", self.admission.name()).finish_non_exhaustive()
    }
}
