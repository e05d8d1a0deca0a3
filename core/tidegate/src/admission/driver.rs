//! The driver of one scheduler: grants slots to waiting calls and takes released slots back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::BudgetSet;
use super::cancel::CancelSignals;
use super::handoff::{Receiver, Sender, handoff};
use super::liveness::LivenessThrottle;
use super::permit::Permit;
use super::pump::Pump;
use super::rejection::rejection_error;
use crate::adaptive::Decision;
use crate::clock::now;
use crate::cooldown::{Failure, Hold};
use crate::error::Error;
use crate::kv::Kv;
use crate::placement::Fault;
use crate::schedule::{
    ForcedDecision, Grant, LimitChange, Refusal, Resources, Scheduler, SchedulerSettings, Settled, Ticket,
    WaiterId,
};
use tidegate_policy::outcome::Cancellation;
use tidegate_protocol::RateHeaders;

/// A waiting call: the channel for its answer, and when it was queued.
pub(super) struct Waiting {
    answer: Sender<Result<Permit, Refusal>>,
    queued_at: Instant,
}

/// An event that may admit waiting calls.
// An event lives only as long as the function call that takes it: a box would cost more than a
// copy.
#[allow(clippy::large_enum_variant)]
pub(super) enum Event<'a> {
    /// Time has passed, or the scheduler has already changed.
    Changed,
    /// A slot is released.
    Released(Grant),
    /// The adaptive limit gets an observation of a call in flight.
    LimitSample(LimitEvent, &'a mut Grant),
}

/// An observation of a call in flight for the adaptive limit. See the methods of [`Permit`].
#[derive(Clone, Copy)]
pub(super) enum LimitEvent {
    FirstToken,
    Unobservable,
    Detached,
}

/// The state that the lock guards.
pub(super) struct State {
    pub(super) scheduler: Scheduler<Waiting>,
    /// When the pump wakes next, if anything is due.
    armed: Option<Instant>,
}

impl State {
    /// Returns `true` if something is due before the pump wakes.
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
    wait_hint: &'static str,
    pub(super) state: Mutex<State>,
    pump: Arc<Pump>,
    budgets: Arc<BudgetSet>,
    cancel_signals: CancelSignals,
    /// Limits reports that replicas are alive. Only for pools.
    liveness: Option<LivenessThrottle>,
}

impl Admission {
    /// Creates the admission control of a target or tool.
    ///
    /// `wait_hint` says what to change if there are too few slots. It ends the message of
    /// rejections for lack of slots.
    pub fn new(
        name: Arc<str>,
        settings: &SchedulerSettings,
        budgets: Arc<BudgetSet>,
        kv: Option<Kv>,
        wait_hint: &'static str,
    ) -> Arc<Self> {
        let resources = Resources { budgets: budgets.rates().clone(), kv };
        let state = State { scheduler: Scheduler::with(settings, resources, now()), armed: None };
        let state = Mutex::new(state);
        let cancel_signals = CancelSignals::new(settings.reclaim || settings.pool.is_some());
        let liveness = settings.pool.is_some().then(|| LivenessThrottle::new(now()));
        let admission = Arc::new(Self {
            name,
            wait_hint,
            state,
            pump: Arc::default(),
            budgets,
            cancel_signals,
            liveness,
        });
        admission.budgets.add(&admission);
        admission
    }

    /// Returns the name of the target or tool.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the rate budgets of the target.
    pub(crate) fn budgets(&self) -> &BudgetSet {
        &self.budgets
    }

    pub(super) fn cancel_signals(&self) -> &CancelSignals {
        &self.cancel_signals
    }

    /// Acquires a slot without waiting. Returns `None` if the call would have to wait.
    ///
    /// # Errors
    /// `Refused` if the call could not even be queued.
    pub fn try_acquire(self: &Arc<Self>, ticket: &Ticket) -> Result<Option<Permit>, Error> {
        let now = now();
        let grant = self.state.lock().scheduler.try_admit(now, ticket);
        match grant {
            Ok(grant) => Ok(grant.map(|grant| Permit::new(self.clone(), grant, ticket.queued_at, now))),
            Err(refusal) => Err(self.rejection_error(refusal)),
        }
    }

    /// Waits for a slot.
    ///
    /// # Cancel safety
    /// Dropping the future removes the call from the queue. A slot that was granted at the same
    /// moment is granted to the next call.
    ///
    /// # Errors
    /// `Refused`, with the reason, the position in the queue and the time after which to try again.
    /// Also if a slot is granted in time, but the future is polled only after the deadline.
    pub async fn acquire(self: &Arc<Self>, ticket: Ticket) -> Result<Permit, Error> {
        self.acquire_from(ticket, |_| {}).await
    }

    /// Waits for a slot as [`Admission::acquire`] does. If the call is queued, `on_queued` is called
    /// with its place in the queue, for [`Admission::explain`].
    ///
    /// # Cancel safety and errors
    /// As for [`Admission::acquire`].
    pub(crate) async fn acquire_from(
        self: &Arc<Self>,
        ticket: Ticket,
        on_queued: impl FnOnce(WaiterId) + Send,
    ) -> Result<Permit, Error> {
        let mut late;
        let (queued_at, deadline) = (ticket.queued_at, ticket.deadline);
        let mut waiter = {
            let now = now();
            let mut state = self.state.lock();
            match state.scheduler.try_admit(now, &ticket) {
                Ok(Some(grant)) => {
                    drop(state);
                    return Ok(Permit::new(self.clone(), grant, ticket.queued_at, now));
                }
                Ok(None) => {}
                Err(refusal) => {
                    drop(state);
                    return Err(self.rejection_error(refusal));
                }
            }
            let (answer, receiver) = handoff();
            let id = state.scheduler.enqueue(now, ticket, Waiting { answer, queued_at });
            late = state.is_late(now);
            drop(state);
            on_queued(id);
            self.reclaim();
            QueueEntry { admission: self, id, receiver }
        };
        loop {
            // Created before the pump is checked, so that a stop in between is not missed.
            let stopped = self.pump.stopped();
            if late || !self.pump.is_running() {
                self.pump.arm(self);
            }
            late = true;
            tokio::select! {
                biased;
                answer = &mut waiter.receiver => {
                    let now = now();
                    return match answer {
                        // The deadline has passed, so the call is not sent and the slot is
                        // released.
                        Ok(_) if deadline <= now => Err(Refusal::granted_after_deadline(now - queued_at)),
                        answer => answer,
                    }
                    .map_err(|refusal| self.rejection_error(refusal));
                }
                () = stopped => {}
            }
        }
    }

    /// Acquires a slot without applying the rules (mode `observe`). Also returns what the rules
    /// would have decided: `None` to admit, `wait`, or the reason of a rejection.
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

    /// Records that the upstream accepted an attempt. Admits waiting calls if that ends a cool-down
    /// or may free slots at a replica.
    pub(super) fn on_success(self: &Arc<Self>, grant: &mut Grant) {
        let now = now();
        let mut state = self.state.lock();
        let was_open = state.scheduler.is_open();
        state.scheduler.on_success(now, grant);
        // A replica that recovers may have free slots now.
        let may_go = !was_open || (grant.placed().is_some() && state.scheduler.has_waiting());
        drop(state);
        if may_go {
            self.handle(Event::Changed);
        }
    }

    /// Records that the upstream failed an attempt of the call number `call`. Returns what follows
    /// for the call.
    pub(super) fn on_failure(
        self: &Arc<Self>,
        grant: &mut Grant,
        call: u64,
        failure: Failure,
        delay: Option<Duration>,
    ) -> Hold {
        let hold =
            self.state.lock().scheduler.on_failure(now(), grant, call, failure, delay, fastrand::f64());
        if hold != Hold::No {
            // Calls with a deadline before the end of the cool-down are rejected at once.
            self.handle(Event::Changed);
        }
        hold
    }

    /// Records that a replica failed an attempt. Returns what follows for the call.
    pub(super) fn on_replica_fault(self: &Arc<Self>, grant: &mut Grant, fault: Fault) -> Hold {
        let hold = self.state.lock().scheduler.on_replica_failure(now(), grant, fault);
        // Calls that only this replica can serve are rejected, and calls whose response it has not
        // begun are cancelled.
        self.handle(Event::Changed);
        hold
    }

    /// Records that a replica is alive. Cheap, because few reports take the lock.
    pub(super) fn on_alive(self: &Arc<Self>, grant: &Grant) {
        let Some((liveness, at)) = self.liveness.as_ref().zip(grant.replica_index()) else { return };
        let now = now();
        if liveness.is_due(at, now) {
            let is_back = self.state.lock().scheduler.on_alive(now, grant);
            if is_back {
                self.admit_waiting();
            }
        }
    }

    /// Applies the rate headers of a response to the rate budgets, and admits calls that fit now.
    pub(super) fn on_rate_headers(
        self: &Arc<Self>,
        grant: &Grant,
        sent_at: Instant,
        headers: &RateHeaders,
        limited: bool,
    ) {
        let speaks = limited || !headers.is_empty();
        if !speaks && !self.budgets.bounds_anything() {
            return;
        }
        self.state.lock().scheduler.on_rate_headers(now(), grant, sent_at, headers, limited);
        if !speaks {
            // At most a rate has grown a little. The pump admits waiting calls at the time that is
            // already set.
            return;
        }
        self.admit_waiting();
        self.budgets.notify_others(self);
    }

    /// Returns `true` if the rate budgets are too low now for another call like this one.
    pub(super) fn is_spent(&self, grant: &Grant) -> bool {
        self.state.lock().scheduler.is_spent(now(), grant)
    }

    /// Passes an observation of a call in flight to the adaptive limit.
    pub(super) fn on_limit_event(self: &Arc<Self>, event: LimitEvent, grant: &mut Grant) {
        self.handle(Event::LimitSample(event, grant));
    }

    /// Logs the changes of the adaptive limit, with their causes.
    fn log(&self, moves: &[LimitChange]) {
        for (replica, Decision { from, to, cause, .. }) in moves {
            let (replica, cause) = (replica.as_deref(), cause.as_str());
            tracing::debug!(target = %self.name, replica, from, to, cause, "limit moved");
        }
    }

    /// Settles what an attempt took. Called just before its release.
    pub(super) fn settle(self: &Arc<Self>, grant: &mut Grant, settled: &Settled) {
        // The release follows at once, and admits calls for which there is capacity now.
        self.state.lock().scheduler.settle(now(), grant, settled);
    }

    /// Releases a slot and admits waiting calls, also at targets that share the budgets.
    pub(super) fn release(self: &Arc<Self>, grant: Grant) {
        let id = grant.id;
        self.handle(Event::Released(grant));
        self.cancel_signals.remove(id);
        self.budgets.notify_others(self);
    }

    /// Records that a response has begun. The attempt can no longer be cancelled.
    pub(super) fn on_response(&self, grant: &mut Grant) {
        if self.cancel_signals.is_enabled() {
            self.state.lock().scheduler.on_answer(grant);
            self.cancel_signals.remove(grant.id);
        }
    }

    /// Cancels attempts on borrowed slots while the owners of those slots wait.
    fn reclaim(&self) {
        if !self.cancel_signals.is_enabled() {
            return;
        }
        loop {
            // Under the lock: a release removes the signal only after the scheduler has released
            // the slot.
            let mut state = self.state.lock();
            let Some(id) = state.scheduler.preempt(now()) else { return };
            self.cancel_signals.cancel(id, Cancellation::Preempted);
        }
    }

    /// Cancels the attempts whose responses a replica had not begun when it went down. Called under
    /// the lock, for the same reason as in [`Self::reclaim`].
    pub(super) fn cancel_on_down_replicas(&self, scheduler: &mut Scheduler<Waiting>) {
        while let Some(id) = scheduler.next_stranded() {
            self.cancel_signals.cancel(id, Cancellation::ReplicaDown);
        }
    }

    /// Admits waiting calls after a change of budgets or replicas.
    pub(super) fn admit_waiting(self: &Arc<Self>) {
        if self.state.lock().scheduler.has_waiting() {
            self.handle(Event::Changed);
        }
    }

    /// Applies an event, answers waiting calls, and then arms the pump, because what is due next
    /// may depend on the calls admitted now.
    pub(super) fn handle(self: &Arc<Self>, event: Event<'_>) {
        if self.apply_event(event) {
            self.pump.arm(self);
        }
    }

    /// Applies an event and answers waiting calls. Returns `true` if the pump would wake too late
    /// for the others.
    fn apply_event(self: &Arc<Self>, mut event: Event<'_>) -> bool {
        // Slots granted to calls that were cancelled meanwhile.
        let mut unused = Vec::new();
        loop {
            let now = now();
            let mut answers = Vec::new();
            let (timed, moves) = {
                let mut state = self.state.lock();
                let scheduler = &mut state.scheduler;
                match std::mem::replace(&mut event, Event::Changed) {
                    Event::Changed => {}
                    Event::Released(grant) => scheduler.release(now, grant),
                    Event::LimitSample(LimitEvent::FirstToken, grant) => scheduler.on_first_token(now, grant),
                    Event::LimitSample(LimitEvent::Unobservable, grant) => {
                        scheduler.mark_unobservable(now, grant)
                    }
                    Event::LimitSample(LimitEvent::Detached, grant) => scheduler.detach(now, grant),
                }
                unused.drain(..).for_each(|grant| scheduler.release(now, grant));
                answers.extend(scheduler.expired(now).into_iter().map(|(who, refusal)| (who, Err(refusal))));
                while let Some((who, grant)) = scheduler.next(now) {
                    answers.push((who, Ok(grant)));
                }
                self.cancel_on_down_replicas(scheduler);
                let moves = scheduler.take_limit_changes();
                (state.is_late(now), moves)
            };
            self.log(&moves);
            // Outside the lock, because a waker may run any code.
            for (who, answer) in answers {
                let answer = answer.map(|grant| Permit::new(self.clone(), grant, who.queued_at, now));
                if let Err(Ok(permit)) = who.answer.send(answer) {
                    unused.extend(permit.into_grant());
                }
            }
            if unused.is_empty() {
                return timed;
            }
            self.budgets.notify_others(self);
        }
    }

    /// Answers the calls for which something is due. Returns when to call this function again.
    pub(super) fn tick(self: &Arc<Self>) -> Option<Instant> {
        self.apply_event(Event::Changed);
        let mut state = self.state.lock();
        state.armed = state.scheduler.next_wake(now());
        state.armed
    }

    /// Removes a call from the queue, and frees the capacity that was reserved for it.
    fn withdraw(self: &Arc<Self>, id: WaiterId) {
        let late = {
            let mut state = self.state.lock();
            state.scheduler.withdraw(id) && state.is_late(now())
        };
        if late {
            self.handle(Event::Changed);
        }
    }

    /// Returns the scheduler's rejection as an error, with the hint of this target.
    pub(crate) fn rejection_error(&self, refusal: Refusal) -> Error {
        rejection_error(&self.name, self.wait_hint, &refusal)
    }
}

/// A call in the queue, removed from the queue on drop.
struct QueueEntry<'a> {
    admission: &'a Arc<Admission>,
    id: WaiterId,
    receiver: Receiver<Result<Permit, Refusal>>,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        // A permit that was sent meanwhile is dropped here, which releases its slot.
        if self.receiver.close().is_none() {
            self.admission.withdraw(self.id);
        }
    }
}
