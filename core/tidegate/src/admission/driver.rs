//! The driver of one scheduler: grants slots to waiting calls and takes released slots back.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::sleep_until;

use super::BudgetSet;
use super::cancel::CancelSignals;
use super::handoff::{Receiver, Sender, handoff};
use super::liveness_throttle::LivenessThrottle;
use super::outage_log::OutageLog;
use super::permit::Permit;
use super::rejection::{Hints, rejection_error};
use super::share_link::ShareLink;
use super::wake_timer::WakeTimer;
use crate::adaptive::Decision;
use crate::clock::{self, now};
use crate::duration;
use crate::error::Error;
use crate::kv::Kv;
use crate::schedule::{
    ForcedDecision, Grant, LeaseKind, LimitChange, Refusal, Resources, Scheduler, SchedulerSettings, Ticket,
    WaiterId,
};
use tidegate_policy::outcome::Cancellation;

/// Time after the end of its wait at which a waiting call checks the queue itself. The timer task
/// ([`WakeTimer`]) has usually rejected the call before.
const OWN_CHECK_DELAY: Duration = Duration::from_millis(10);

/// What the scheduler stores for a waiting call: the channel that receives the permit or the
/// rejection, and when the call was made.
pub(super) struct Waiting {
    answer: Sender<Result<Permit, Refusal>>,
    queued_at: Instant,
}

/// The state that the lock of an [`Admission`] guards.
pub(super) struct State {
    pub(super) scheduler: Scheduler<Waiting>,
    /// When the timer task ([`WakeTimer`]) wakes next. `None` if no wake-up is scheduled.
    armed: Option<Instant>,
    /// Which outage was logged.
    pub(super) outage_log: OutageLog,
}

impl State {
    /// Returns `true` if a wait or a cool-down ends before the next wake-up of the timer task
    /// ([`WakeTimer`]), or if no wake-up is scheduled for it.
    fn is_late(&mut self, now: Instant) -> bool {
        let wake = self.scheduler.next_wake(now);
        wake.is_some_and(|wake| self.armed.is_none_or(|armed| wake < armed))
    }
}

/// The admission control of one target or tool: a scheduler behind a lock.
///
/// The lock is held for one decision, and never across an await.
pub struct Admission {
    name: Arc<str>,
    pub(super) hints: Hints,
    pub(super) state: Mutex<State>,
    /// The timer task, which admits or rejects waiting calls when a wait or a cool-down ends.
    wake_timer: Arc<WakeTimer>,
    pub(crate) budgets: Arc<BudgetSet>,
    pub(super) cancel_signals: CancelSignals,
    /// Limits how often a replica is reported as alive to the scheduler. `None` if the target is
    /// not a pool.
    pub(super) liveness: Option<LivenessThrottle>,
    /// The connections of the leases to the other processes that share the limit. Empty if it is
    /// not shared.
    pub(super) share: OnceLock<Vec<(LeaseKind, ShareLink)>>,
    /// The connection to the other processes that share the pool. Empty if it is not shared.
    pub(super) pool_share: OnceLock<ShareLink>,
}

impl Admission {
    /// Creates the admission control of a target or tool.
    ///
    /// `kv` is the KV-cache memory of the target, or `None` if the gate does not account for it or
    /// learns its size from the replicas. `hints` is the advice to users in the error messages of
    /// rejected calls for which a free slot was missing.
    pub fn new(
        name: Arc<str>,
        settings: &SchedulerSettings,
        budgets: Arc<BudgetSet>,
        kv: Option<Kv>,
        hints: impl Into<Hints>,
    ) -> Arc<Self> {
        let resources = Resources { budgets: budgets.rates.clone(), kv };
        let scheduler = Scheduler::with(settings, resources, now());
        let state = State { scheduler, armed: None, outage_log: OutageLog::default() };
        let state = Mutex::new(state);
        let cancel_signals = CancelSignals::new(settings.reclaim || settings.pool.is_some());
        let liveness = settings.pool.is_some().then(|| LivenessThrottle::new(now()));
        let admission = Arc::new(Self {
            name,
            hints: hints.into(),
            state,
            wake_timer: Arc::default(),
            budgets,
            cancel_signals,
            liveness,
            share: OnceLock::new(),
            pool_share: OnceLock::new(),
        });
        admission.budgets.add(&admission);
        admission
    }

    /// Returns the name of the target or tool.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Acquires a slot without waiting. Returns `None` if the call would have to wait.
    ///
    /// # Errors
    /// `Refused` if the call would be rejected instead of queued.
    pub fn try_acquire(self: &Arc<Self>, ticket: &Ticket) -> Result<Option<Permit>, Error> {
        let now = now();
        let mut state = self.state.lock();
        let grant = state.scheduler.try_admit(now, ticket);
        self.report_share(&mut state, now);
        if let Ok(None) = grant {
            state.scheduler.want_rates(now, ticket);
        }
        self.budgets.report(self, &state, now, false);
        drop(state);
        match grant {
            Ok(grant) => Ok(grant.map(|grant| Permit::new(self.clone(), grant, ticket.queued_at, now))),
            Err(refusal) => Err(self.rejection_error(refusal)),
        }
    }

    /// Waits for a slot, and returns its permit.
    ///
    /// # Cancel safety
    /// Dropping the future removes the call from the queue. A slot that was granted at the same
    /// moment is granted to the next call.
    ///
    /// # Errors
    /// `Refused`, with the reason, the position in the queue and the time after which to try again.
    /// A call is also rejected if its slot was granted in time, but the future is polled only after
    /// the deadline.
    pub async fn acquire(self: &Arc<Self>, ticket: Ticket) -> Result<Permit, Error> {
        self.acquire_from(ticket, |_| {}).await
    }

    /// Waits for a slot as [`Admission::acquire`] does. If the call is queued, calls `on_queued`
    /// with the id of the call in the queue, for [`Admission::explain`].
    ///
    /// # Cancel safety
    /// As for [`Admission::acquire`].
    ///
    /// # Errors
    /// As for [`Admission::acquire`].
    pub(crate) async fn acquire_from(
        self: &Arc<Self>,
        ticket: Ticket,
        on_queued: impl FnOnce(WaiterId) + Send,
    ) -> Result<Permit, Error> {
        self.enter(ticket, on_queued)?.permit().await
    }

    /// Admits a call if that is possible at once. Otherwise queues it, and calls `on_queued` with
    /// its id in the queue.
    ///
    /// # Errors
    /// `Refused` if the call may not wait.
    pub(crate) fn enter(
        self: &Arc<Self>,
        ticket: Ticket,
        on_queued: impl FnOnce(WaiterId),
    ) -> Result<Entered<'_>, Error> {
        let (queued_at, deadline, wait) = (ticket.queued_at, ticket.deadline, ticket.wait);
        let now = now();
        let mut state = self.state.lock();
        match state.scheduler.try_admit(now, &ticket) {
            Ok(Some(grant)) => {
                self.report_share(&mut state, now);
                self.budgets.report(self, &state, now, true);
                drop(state);
                return Ok(Entered::Admitted(Permit::new(self.clone(), grant, queued_at, now)));
            }
            Ok(None) => {}
            Err(refusal) => {
                drop(state);
                return Err(self.rejection_error(refusal));
            }
        }
        let (answer, receiver) = handoff();
        let id = state.scheduler.enqueue(now, ticket, Waiting { answer, queued_at });
        self.cancel_preempted(&mut state.scheduler, now);
        self.report_share(&mut state, now);
        let late = state.is_late(now);
        self.budgets.report(self, &state, now, true);
        drop(state);
        on_queued(id);
        let wait_ends = wait.map_or(deadline, |wait| duration::after(now, wait).min(deadline));
        Ok(Entered::Queued(QueueEntry {
            admission: self,
            id,
            receiver,
            is_answered: false,
            late,
            queued_at,
            wait_ends,
            deadline,
        }))
    }

    /// Acquires a slot even if none is free (mode `observe`). Also returns the decision that mode
    /// `enforce` would have made: `None` if it would have admitted the call without a wait,
    /// `Some("wait")` if it would have queued the call, or the reason for which it would have
    /// rejected the call.
    pub fn force(self: &Arc<Self>, ticket: &Ticket) -> (Permit, Option<&'static str>) {
        let now = now();
        let (grant, verdict) = self.state.lock().scheduler.force(now, ticket);
        let would = match verdict {
            Ok(ForcedDecision::Admitted) => None,
            Ok(ForcedDecision::WouldWait) => Some("wait"),
            Err(refusal) => Some(refusal.reason.as_str()),
        };
        (Permit::new(self.clone(), grant, ticket.queued_at, now), would)
    }

    /// Releases the slot of an attempt, and admits waiting calls, also at the targets that share
    /// the rate budgets.
    pub(super) fn release(self: &Arc<Self>, grant: Box<Grant>) {
        let id = grant.id;
        self.update(|scheduler, now| scheduler.release(now, grant));
        self.cancel_signals.remove(id);
        // If no rate is limited, nothing that others wait for is returned.
        if self.budgets.bounds_anything() {
            self.budgets.notify_others(self);
        }
    }

    /// Takes back borrowed slots, which are reserved for another tenant or lane: cancels one
    /// attempt on a borrowed slot for each slot that a waiting call of that tenant or lane needs.
    /// Does nothing if attempts of the target cannot be cancelled.
    ///
    /// Called under the lock, because a release removes the signal only after the scheduler has
    /// released the slot.
    fn cancel_preempted(&self, scheduler: &mut Scheduler<Waiting>, now: Instant) {
        if !self.cancel_signals.is_enabled() || !scheduler.has_waiting() {
            return;
        }
        while let Some(id) = scheduler.preempt(now) {
            self.cancel_signals.cancel(id, Cancellation::Preempted);
        }
    }

    /// Cancels the attempts at replicas that went down before their responses had begun. Called
    /// under the lock, for the same reason as in [`Self::cancel_preempted`].
    pub(super) fn cancel_on_down_replicas(&self, scheduler: &mut Scheduler<Waiting>) {
        if !self.cancel_signals.is_enabled() {
            return;
        }
        while let Some(id) = scheduler.next_stranded() {
            self.cancel_signals.cancel(id, Cancellation::ReplicaDown);
        }
    }

    /// Admits the waiting calls for which there is capacity now. Does nothing if no call waits.
    pub(super) fn admit_waiting(self: &Arc<Self>) {
        if self.state.lock().scheduler.has_waiting() {
            self.refresh();
        }
    }

    /// Admits the waiting calls for which there is capacity now, and rejects those that may not
    /// wait any longer.
    pub(crate) fn refresh(self: &Arc<Self>) {
        self.update(|_, _| {});
    }

    /// Applies `change` to the scheduler. Then admits the waiting calls for which there is
    /// capacity, and rejects those that may not wait any longer. Starts or wakes the timer task
    /// ([`WakeTimer`]) if it would wake too late for the remaining calls. Returns the result of
    /// `change`.
    pub(super) fn update<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Scheduler<Waiting>, Instant) -> R,
    ) -> R {
        let now = now();
        let mut state = self.state.lock();
        let result = change(&mut state.scheduler, now);
        // After the calls are admitted, because they may change what is due next.
        if self.answer_waiting(state, now) {
            self.wake_timer.arm(self);
        }
        result
    }

    /// Admits the waiting calls for which there is capacity at `now`, and rejects those that may
    /// not wait any longer. Releases the lock `state`. Returns `true` if the timer task
    /// ([`WakeTimer`]) would wake too late for the remaining calls.
    fn answer_waiting<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>, mut now: Instant) -> bool {
        loop {
            let scheduler = &mut state.scheduler;
            let expired = scheduler.expired(now).into_iter().map(|(who, refusal)| (who, Err(refusal)));
            let mut answers: Vec<_> = expired.collect();
            if scheduler.has_waiting() {
                while let Some((who, grant)) = scheduler.next(now) {
                    answers.push((who, Ok(grant)));
                }
            }
            self.cancel_on_down_replicas(scheduler);
            self.cancel_preempted(scheduler, now);
            let moves = scheduler.take_limit_changes();
            self.report_share(&mut state, now);
            let is_late = state.is_late(now);
            self.budgets.report(self, &state, now, true);
            drop(state);
            self.log(&moves);
            // Slots granted to calls that were cancelled meanwhile.
            let mut unused = Vec::new();
            // Outside the lock, because a waker may run any code.
            for (who, answer) in answers {
                let answer = answer.map(|grant| Permit::new(self.clone(), grant, who.queued_at, now));
                if let Err(Ok(permit)) = who.answer.send(answer) {
                    unused.extend(permit.into_grant());
                }
            }
            if unused.is_empty() {
                return is_late;
            }
            now = clock::now();
            state = self.state.lock();
            for grant in unused {
                let id = grant.id;
                state.scheduler.release(now, grant);
                self.cancel_signals.remove(id);
            }
            if self.budgets.bounds_anything() {
                // What the calls were charged is free again.
                drop(state);
                self.budgets.notify_others(self);
                state = self.state.lock();
            }
        }
    }

    /// Logs the changes of the adaptive limit, with their causes.
    fn log(&self, moves: &[LimitChange]) {
        for (replica, Decision { from, to, cause, .. }) in moves {
            let (replica, cause) = (replica.as_deref(), cause.as_str());
            tracing::debug!(target = %self.name, replica, from, to, cause, "limit moved");
        }
    }

    /// Admits the waiting calls for which there is capacity now, and rejects those that may not
    /// wait any longer. Returns when to call this function again, or `None` if no wait and no
    /// cool-down ends at a known time.
    pub(super) fn tick(self: &Arc<Self>) -> Option<Instant> {
        self.answer_waiting(self.state.lock(), now());
        let mut state = self.state.lock();
        state.armed = state.scheduler.next_wake(now());
        state.armed
    }

    /// Removes a call from the queue. Admits other calls if they can use the capacity that was
    /// reserved for the call.
    fn withdraw(self: &Arc<Self>, id: WaiterId) {
        let late = {
            let mut state = self.state.lock();
            let now = now();
            let is_late = state.scheduler.withdraw(id) && state.is_late(now);
            self.report_share(&mut state, now);
            self.budgets.report(self, &state, now, true);
            is_late
        };
        if late {
            self.refresh();
        }
    }

    /// Converts a rejection by the scheduler to an error. Its message contains one of the hints
    /// of this target if a free slot was missing.
    pub(crate) fn rejection_error(&self, refusal: Refusal) -> Error {
        rejection_error(&self.name, &self.hints, self.slots_in_force(), &refusal)
    }
}

/// The result of [`Admission::enter`].
#[allow(clippy::large_enum_variant, reason = "the permit is moved out at once; a box would cost more")]
pub(crate) enum Entered<'a> {
    Admitted(Permit),
    Queued(QueueEntry<'a>),
}

impl Entered<'_> {
    /// Returns the permit of the call, for which a queued call waits. See [`QueueEntry::wait`].
    pub(crate) async fn permit(self) -> Result<Permit, Error> {
        match self {
            Self::Admitted(permit) => Ok(permit),
            Self::Queued(entry) => entry.wait().await,
        }
    }
}

/// A call in the queue. Dropping it removes the call from the queue.
pub(crate) struct QueueEntry<'a> {
    admission: &'a Arc<Admission>,
    id: WaiterId,
    receiver: Receiver<Result<Permit, Refusal>>,
    /// `true` once the permit or the rejection was received.
    is_answered: bool,
    /// `true` if the timer task must be armed for the call.
    late: bool,
    queued_at: Instant,
    /// When the wait budget or the deadline ends, unless the budget stands still meanwhile.
    wait_ends: Instant,
    deadline: Instant,
}

impl QueueEntry<'_> {
    /// Waits for the permit of the call.
    ///
    /// # Cancel safety
    /// As for [`Admission::acquire`].
    ///
    /// # Errors
    /// `Refused` if the call may not wait any longer.
    pub(crate) async fn wait(mut self) -> Result<Permit, Error> {
        // The timer task does not run while nothing drives its runtime, which may be another one.
        let own_check = |ends: Instant| duration::after(ends, OWN_CHECK_DELAY).into();
        let mut check = pin!(sleep_until(own_check(self.wait_ends)));
        loop {
            // Created before the timer task is checked, so that a stop in between is not missed.
            let stopped = self.admission.wake_timer.stopped();
            if self.late || !self.admission.wake_timer.is_running() {
                self.admission.wake_timer.arm(self.admission);
            }
            self.late = true;
            tokio::select! {
                biased;
                answer = &mut self.receiver => {
                    self.is_answered = true;
                    let now = now();
                    return match answer {
                        // The deadline has passed, so the call is not sent and the slot is
                        // released.
                        Ok(_) if self.deadline <= now => Err(Refusal::granted_after_deadline(now - self.queued_at)),
                        answer => answer,
                    }
                    .map_err(|refusal| self.admission.rejection_error(refusal));
                }
                () = stopped => {}
                () = &mut check => {
                    self.admission.refresh();
                    check.as_mut().reset(own_check(self.deadline));
                }
            }
        }
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        // A permit that was sent meanwhile is dropped here, which releases its slot.
        if !self.is_answered && self.receiver.close().is_none() {
            self.admission.withdraw(self.id);
        }
    }
}
