//! Drives one scheduler: hands slots to the calls that wait, and takes them back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::BudgetSet;
use super::cancel::CancelSignals;
use super::handoff::{Receiver, Sender, handoff};
use super::liveness::LivenessThrottle;
use super::permit::Permit;
use super::pump::Pump;
use super::refused::refused;
use crate::adaptive::Decision;
use crate::clock::now;
use crate::cooldown::{Failure, Hold};
use crate::error::Error;
use crate::kv::Kv;
use crate::placement::{Fault, Member, Observation, Placed, PollRequests, ReplicaId, ReplicaView};
use crate::schedule::{
    ForcedDecision, Grant, LimitChange, Refusal, Resources, Scheduler, Settings, Settled, Ticket, View,
    WaiterId, Why,
};
use crate::wire::RateHeaders;
use tidegate_policy::outcome::Cancellation;

/// A waiting call's end of the line, and since when it waits.
struct Waiting {
    answer: Sender<Result<Permit, Refusal>>,
    queued_at: Instant,
}

/// What lets others in.
// An event lives as long as the call that takes it, so a box would cost more than the copy.
#[allow(clippy::large_enum_variant)]
enum Event<'a> {
    /// Time, or something that the scheduler knows of already.
    Look,
    /// A slot comes back.
    Back(Grant),
    /// The limit is told something of a call in flight.
    Told(LimitEvent, &'a mut Grant),
}

/// See [`Permit`], which says them.
#[derive(Clone, Copy)]
pub(super) enum LimitEvent {
    FirstToken,
    Unobservable,
    Detached,
}

/// What the lock guards.
struct State {
    scheduler: Scheduler<Waiting>,
    /// When the pump asks next, if it knows of anything to ask for.
    armed: Option<Instant>,
}

impl State {
    /// Whether something is due before the pump asks.
    fn is_late(&mut self, now: Instant) -> bool {
        let wake = self.scheduler.next_wake(now);
        wake.is_some_and(|wake| self.armed.is_none_or(|armed| wake < armed))
    }
}

/// The door of one target or tool: its scheduler behind one lock, held for the length of a decision
/// and never across an await.
pub struct Admission {
    name: Arc<str>,
    wait_hint: &'static str,
    state: Mutex<State>,
    pump: Arc<Pump>,
    budgets: Arc<BudgetSet>,
    cancel_signals: CancelSignals,
    /// Of a pool.
    liveness: Option<LivenessThrottle>,
}

impl Admission {
    /// An open door. `wait_hint` says what to change when it is too narrow; it ends every refusal.
    pub fn new(
        name: Arc<str>,
        settings: &Settings,
        budgets: Arc<BudgetSet>,
        kv: Option<Kv>,
        wait_hint: &'static str,
    ) -> Arc<Self> {
        let resources = Resources { budgets: budgets.rates().clone(), kv };
        let state = State { scheduler: Scheduler::with(settings, resources, now()), armed: None };
        let state = Mutex::new(state);
        let cancel_signals = CancelSignals::new(settings.reclaim || settings.pool.is_some());
        let liveness = settings.pool.is_some().then(|| LivenessThrottle::new(now()));
        let door = Arc::new(Self {
            name,
            wait_hint,
            state,
            pump: Arc::default(),
            budgets,
            cancel_signals,
            liveness,
        });
        door.budgets.add(&door);
        door
    }

    /// The target's or tool's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The budgets that it draws on.
    pub(crate) fn budgets(&self) -> &BudgetSet {
        &self.budgets
    }

    pub(super) fn cancel_signals(&self) -> &CancelSignals {
        &self.cancel_signals
    }

    /// A slot at once, or `None` where the call would have to wait.
    ///
    /// # Errors
    /// `Refused`, where it may not even wait.
    pub fn try_acquire(self: &Arc<Self>, ticket: &Ticket) -> Result<Option<Permit>, Error> {
        let now = now();
        let grant = self.state.lock().scheduler.try_admit(now, ticket);
        match grant {
            Ok(grant) => Ok(grant.map(|grant| Permit::new(self.clone(), grant, ticket.queued_at, now))),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    /// A slot as soon as the scheduler gives one.
    ///
    /// *Cancellation safety*: dropping the future leaves the queue; a slot granted at the same
    /// moment goes to the next call.
    ///
    /// # Errors
    /// `Refused`, with reason, position and when to come back; also where a slot is granted in time
    /// and its caller comes for it after the deadline.
    pub async fn acquire(self: &Arc<Self>, ticket: Ticket) -> Result<Permit, Error> {
        self.acquire_from(ticket, |_| {}).await
    }

    /// The same; `stands` is told of the call's place in the queue, if it has to wait: what
    /// [`Admission::explain`] knows it by.
    pub(crate) async fn acquire_from(
        self: &Arc<Self>,
        ticket: Ticket,
        stands: impl FnOnce(WaiterId) + Send,
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
                    return Err(self.refused(refusal));
                }
            }
            let (answer, receiver) = handoff();
            let id = state.scheduler.enqueue(now, ticket, Waiting { answer, queued_at });
            late = state.is_late(now);
            drop(state);
            stands(id);
            self.reclaim();
            QueueEntry { admission: self, id, receiver }
        };
        loop {
            // Before looking: a stop between the two must not be missed.
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
                        // What nobody waits for any more is not sent: the slot goes back.
                        Ok(_) if deadline <= now => Err(Refusal::came_late(now - queued_at)),
                        answer => answer,
                    }
                    .map_err(|refusal| self.refused(refusal));
                }
                () = stopped => {}
            }
        }
    }

    /// A slot whatever the rules say, and what they would have decided instead (observe mode):
    /// `wait`, or the reason of a refusal.
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

    /// Whether a cool-down is on, that a call which comes now would have to wait for.
    pub fn is_cooling(&self) -> bool {
        self.state.lock().scheduler.is_cooling(now())
    }

    /// Continues a cool-down that began at a shared target.
    pub(crate) fn resume_cooldown(&self, until: Instant) {
        self.state.lock().scheduler.resume_cooldown(now(), until);
    }

    /// What a person would want to know.
    pub fn view(&self) -> View {
        self.state.lock().scheduler.view(now())
    }

    /// Why the call at that place of the queue waits now; `None`: it does not.
    pub(crate) fn explain(&self, waiter: WaiterId) -> Option<Why> {
        self.state.lock().scheduler.explain(now(), waiter)
    }

    /// From now on so many slots.
    pub(crate) fn set_limit(self: &Arc<Self>, slots: usize) {
        self.state.lock().scheduler.set_limit(slots);
        self.answer(Event::Look);
    }

    /// From now on these are the pool's replicas.
    pub(crate) fn set_members(self: &Arc<Self>, members: &[Member]) {
        self.state.lock().scheduler.set_members(now(), members);
        self.answer(Event::Look);
    }

    /// What was seen of a replica.
    pub(crate) fn observe(self: &Arc<Self>, id: ReplicaId, observation: Observation) {
        self.state.lock().scheduler.observe(now(), id, observation);
        self.answer(Event::Look);
    }

    /// What to ask of the pool's replicas now.
    pub(crate) fn poll_requests(&self) -> PollRequests {
        let mut state = self.state.lock();
        let poll_requests = state.scheduler.poll_requests(now());
        // One that was silent for long enough counts as down from here on.
        self.cancel_on_down_replicas(&mut state.scheduler);
        poll_requests
    }

    /// Whether calls wait or are in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().scheduler.is_busy()
    }

    /// The pool's replicas, as they stand; none where it is no pool.
    pub fn replicas(&self) -> Vec<ReplicaView> {
        self.state.lock().scheduler.replicas(now())
    }

    /// A replica for a request that takes no slot.
    pub(crate) fn pick_without_slot(&self) -> Option<Placed> {
        self.state.lock().scheduler.pick_without_slot(now())
    }

    /// Whether that replica is down.
    pub(crate) fn is_down(&self, id: ReplicaId) -> bool {
        self.state.lock().scheduler.is_down(id)
    }

    /// Refuses what waits and what comes; what is in flight goes on.
    pub fn drain(self: &Arc<Self>) {
        self.state.lock().scheduler.drain();
        self.answer(Event::Look);
    }

    pub(super) fn on_success(self: &Arc<Self>, grant: &mut Grant) {
        let now = now();
        let mut state = self.state.lock();
        let was_open = state.scheduler.is_open();
        state.scheduler.on_success(now, grant);
        // A replica that was on its way back may have room for others now.
        let may_go = !was_open || (grant.placed().is_some() && state.scheduler.has_waiting());
        drop(state);
        if may_go {
            self.answer(Event::Look);
        }
    }

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
            // Calls whose deadline a cool-down has outrun are told at once.
            self.answer(Event::Look);
        }
        hold
    }

    pub(super) fn on_replica_fault(self: &Arc<Self>, grant: &mut Grant, fault: Fault) -> Hold {
        let hold = self.state.lock().scheduler.on_replica_failure(now(), grant, fault);
        // Those that wait for that replica alone are told; those that it has not begun to answer go elsewhere.
        self.answer(Event::Look);
        hold
    }

    /// Something came from the replica that has it. Cheap: few of these take the lock.
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
            // At most a limit has grown a little: those that wait are asked for when they would
            // have been.
            return;
        }
        self.admit_waiting();
        self.budgets.notify_others(self);
    }

    pub(super) fn is_spent(&self, grant: &Grant) -> bool {
        self.state.lock().scheduler.is_spent(now(), grant)
    }

    pub(super) fn tell(self: &Arc<Self>, event: LimitEvent, grant: &mut Grant) {
        self.answer(Event::Told(event, grant));
    }

    /// Says how the limit has moved, and why.
    fn log(&self, moves: &[LimitChange]) {
        for (replica, Decision { from, to, cause, .. }) in moves {
            let (replica, cause) = (replica.as_deref(), cause.as_str());
            tracing::debug!(target = %self.name, replica, from, to, cause, "limit moved");
        }
    }

    pub(super) fn settle(self: &Arc<Self>, grant: &mut Grant, settled: &Settled) {
        // The release follows at once, and lets in what this made room for.
        self.state.lock().scheduler.settle(now(), grant, settled);
    }

    pub(super) fn release(self: &Arc<Self>, grant: Grant) {
        let id = grant.id();
        self.answer(Event::Back(grant));
        self.cancel_signals.remove(id);
        self.budgets.notify_others(self);
    }

    /// The head of an answer came: the call is not called back any more.
    pub(super) fn on_response(&self, grant: &mut Grant) {
        if self.cancel_signals.is_enabled() {
            self.state.lock().scheduler.on_answer(grant);
            self.cancel_signals.remove(grant.id());
        }
    }

    /// Calls back what was lent, where somebody waits for what is its own.
    fn reclaim(&self) {
        if !self.cancel_signals.is_enabled() {
            return;
        }
        loop {
            // Under the lock: a release forgets the call only when the scheduler has.
            let mut state = self.state.lock();
            let Some(id) = state.scheduler.preempt(now()) else { return };
            self.cancel_signals.cancel(id, Cancellation::Reclaimed);
        }
    }

    /// Calls back what a replica that went down had not begun to answer. Under the lock, as above.
    fn cancel_on_down_replicas(&self, scheduler: &mut Scheduler<Waiting>) {
        while let Some(id) = scheduler.next_stranded() {
            self.cancel_signals.cancel(id, Cancellation::ReplicaDown);
        }
    }

    /// Something has changed that the scheduler was not told of itself.
    pub(super) fn admit_waiting(self: &Arc<Self>) {
        if self.state.lock().scheduler.has_waiting() {
            self.answer(Event::Look);
        }
    }

    /// Answers what an event lets be answered, and sees to it that the pump asks again in time:
    /// what is due next may depend on what was admitted now.
    fn answer(self: &Arc<Self>, event: Event<'_>) {
        if self.turn(event) {
            self.pump.arm(self);
        }
    }

    /// Tells the scheduler, and answers every call that can be answered now. Says whether the pump
    /// would ask too late for the rest.
    fn turn(self: &Arc<Self>, mut event: Event<'_>) -> bool {
        // Slots of calls that have gone away meanwhile.
        let mut unused = Vec::new();
        loop {
            let now = now();
            let mut answers = Vec::new();
            let (timed, moves) = {
                let mut state = self.state.lock();
                let scheduler = &mut state.scheduler;
                match std::mem::replace(&mut event, Event::Look) {
                    Event::Look => {}
                    Event::Back(grant) => scheduler.release(now, grant),
                    Event::Told(LimitEvent::FirstToken, grant) => scheduler.on_first_token(now, grant),
                    Event::Told(LimitEvent::Unobservable, grant) => scheduler.mark_unobservable(now, grant),
                    Event::Told(LimitEvent::Detached, grant) => scheduler.detach(now, grant),
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
            // Outside the lock: a waker may run anything.
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

    /// Answers what is due, and says when to ask again.
    pub(super) fn tick(self: &Arc<Self>) -> Option<Instant> {
        self.turn(Event::Look);
        let mut state = self.state.lock();
        state.armed = state.scheduler.next_wake(now());
        state.armed
    }

    /// Takes a call out of the queue. Room that was kept for it is there for others then.
    fn withdraw(self: &Arc<Self>, id: WaiterId) {
        let late = {
            let mut state = self.state.lock();
            state.scheduler.withdraw(id) && state.is_late(now())
        };
        if late {
            self.answer(Event::Look);
        }
    }

    pub(crate) fn refused(&self, refusal: Refusal) -> Error {
        refused(&self.name, self.wait_hint, &refusal)
    }
}

/// A call in line. Leaving it, by whatever way, leaves nothing behind.
struct QueueEntry<'a> {
    admission: &'a Arc<Admission>,
    id: WaiterId,
    receiver: Receiver<Result<Permit, Refusal>>,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        // A slot that was granted meanwhile is dropped here, and so goes back.
        if self.receiver.close().is_none() {
            self.admission.withdraw(self.id);
        }
    }
}
