//! Drives one scheduler: hands slots to the calls that wait, and takes them back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::handoff::{Giver, Taker, handoff};
use super::permit::Permit;
use super::pump::Pump;
use crate::clock::now;
use crate::cooldown::{Failure, Hold};
use crate::error::{Error, ErrorKind, Reason};
use crate::schedule::{Grant, Refusal, Scheduler, Settings, Ticket, Verdict, View, WaiterId, Why};

/// A waiting call's end of the line, and since when it waits.
struct Waiting {
    answer: Giver<Result<Permit, Refusal>>,
    queued_at: Instant,
}

/// The door of one target or tool: its scheduler behind one lock, held for the length of a decision and never across an await.
pub struct Admission {
    name: Arc<str>,
    wait_hint: &'static str,
    scheduler: Mutex<Scheduler<Waiting>>,
    pump: Arc<Pump>,
}

impl Admission {
    /// An open door. `wait_hint` says what to change when it is too narrow; it ends every refusal.
    pub fn new(name: Arc<str>, settings: &Settings, wait_hint: &'static str) -> Arc<Self> {
        let scheduler = Mutex::new(Scheduler::new(settings, now()));
        Arc::new(Self { name, wait_hint, scheduler, pump: Arc::default() })
    }

    /// The target's or tool's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// A slot at once, or `None` where the call would have to wait.
    ///
    /// # Errors
    /// `Refused`, where it may not even wait.
    pub fn try_acquire(self: &Arc<Self>, ticket: &Ticket) -> Result<Option<Permit>, Error> {
        let now = now();
        let grant = self.scheduler.lock().try_admit(now, ticket);
        match grant {
            Ok(grant) => Ok(grant.map(|grant| Permit::new(self.clone(), grant, ticket.queued_at, now))),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    /// A slot as soon as the scheduler gives one.
    ///
    /// *Cancellation safety*: dropping the future leaves the queue; a slot granted at the same moment goes to the next call.
    ///
    /// # Errors
    /// `Refused`, with reason, position and when to come back.
    pub async fn acquire(self: &Arc<Self>, ticket: Ticket) -> Result<Permit, Error> {
        self.acquire_from(ticket, |_| {}).await
    }

    /// The same; `stands` is told of the call's place in the queue, if it has to wait: what [`Admission::explain`] knows it by.
    pub(crate) async fn acquire_from(
        self: &Arc<Self>,
        ticket: Ticket,
        stands: impl FnOnce(WaiterId) + Send,
    ) -> Result<Permit, Error> {
        let mut waiter = {
            let now = now();
            let mut scheduler = self.scheduler.lock();
            match scheduler.try_admit(now, &ticket) {
                Ok(Some(grant)) => {
                    drop(scheduler);
                    return Ok(Permit::new(self.clone(), grant, ticket.queued_at, now));
                }
                Ok(None) => {}
                Err(refusal) => {
                    drop(scheduler);
                    return Err(self.refused(refusal));
                }
            }
            let (answer, taker) = handoff();
            let queued_at = ticket.queued_at;
            let id = scheduler.enqueue(now, ticket, Waiting { answer, queued_at });
            drop(scheduler);
            stands(id);
            InLine { admission: self, id, taker }
        };
        loop {
            // Before arming: a stop between the two must not be missed.
            let stopped = self.pump.stopped();
            self.pump.arm(self);
            tokio::select! {
                biased;
                answer = &mut waiter.taker => return answer.map_err(|refusal| self.refused(refusal)),
                () = stopped => {}
            }
        }
    }

    /// A slot whatever the rules say, and what they would have decided instead (observe mode): `wait`, or the reason of a refusal.
    pub fn force(self: &Arc<Self>, ticket: &Ticket) -> (Permit, Option<&'static str>) {
        let now = now();
        let (grant, verdict) = self.scheduler.lock().force(now, ticket);
        let would = match verdict {
            Ok(Verdict::Admitted) => None,
            Ok(Verdict::WouldWait) => Some("wait"),
            Err(refusal) => Some(refusal.reason.as_str()),
        };
        (Permit::new(self.clone(), grant, ticket.queued_at, now), would)
    }

    /// Whether a cool-down is on, that a call which comes now would have to wait for.
    pub fn is_cooling(&self) -> bool {
        self.scheduler.lock().is_cooling(now())
    }

    /// What a person would want to know.
    pub fn view(&self) -> View {
        self.scheduler.lock().view(now())
    }

    /// Why the call at that place of the queue waits now; `None`: it does not.
    pub(crate) fn explain(&self, waiter: WaiterId) -> Option<Why> {
        self.scheduler.lock().explain(now(), waiter)
    }

    /// Refuses what waits and what comes; what is in flight goes on.
    pub fn drain(self: &Arc<Self>) {
        self.scheduler.lock().drain();
        self.settle(None);
    }

    pub(super) fn succeeded(self: &Arc<Self>, grant: &mut Grant) {
        let now = now();
        let mut scheduler = self.scheduler.lock();
        let was_open = scheduler.is_open();
        scheduler.succeeded(now, grant);
        drop(scheduler);
        if !was_open {
            self.settle(None);
        }
    }

    pub(super) fn failed(
        self: &Arc<Self>,
        grant: &mut Grant,
        call: u64,
        failure: Failure,
        delay: Option<Duration>,
    ) -> Hold {
        let hold = self.scheduler.lock().failed(now(), grant, call, failure, delay, fastrand::f64());
        if hold != Hold::No {
            // Calls whose deadline a cool-down has outrun are told at once.
            self.settle(None);
        }
        hold
    }

    pub(super) fn release(self: &Arc<Self>, grant: Grant) {
        self.settle(Some(grant));
    }

    /// Answers what an event lets be answered, and sees to it that the pump knows of the way back from a cool-down: what is due next there
    /// depends on what was admitted now.
    fn settle(self: &Arc<Self>, back: Option<Grant>) {
        if self.turn(back) {
            self.pump.arm(self);
        }
    }

    /// Takes a slot back and answers every call that can be answered now. Says whether others wait for a time to come.
    fn turn(self: &Arc<Self>, mut back: Option<Grant>) -> bool {
        // Slots of calls that have gone away meanwhile.
        let mut unused = Vec::new();
        loop {
            let now = now();
            let mut answers = Vec::new();
            let timed = {
                let mut scheduler = self.scheduler.lock();
                back.take()
                    .into_iter()
                    .chain(unused.drain(..))
                    .for_each(|grant| scheduler.release(now, grant));
                answers.extend(scheduler.expired(now).into_iter().map(|(who, refusal)| (who, Err(refusal))));
                while let Some((who, grant)) = scheduler.next(now) {
                    answers.push((who, Ok(grant)));
                }
                scheduler.is_timed()
            };
            // Outside the lock: a waker may run anything.
            for (who, answer) in answers {
                let answer = answer.map(|grant| Permit::new(self.clone(), grant, who.queued_at, now));
                if let Err(Ok(permit)) = who.answer.give(answer) {
                    unused.extend(permit.disarm());
                }
            }
            if unused.is_empty() {
                return timed;
            }
        }
    }

    /// Answers what is due, and says when to ask again.
    pub(super) fn tick(self: &Arc<Self>) -> Option<Instant> {
        self.turn(None);
        self.scheduler.lock().next_wake(now())
    }

    fn withdraw(&self, id: WaiterId) {
        self.scheduler.lock().withdraw(id);
    }

    fn refused(&self, refusal: Refusal) -> Error {
        let what = match refusal.reason {
            Reason::NoSlot => "no slot is free and this target does not queue",
            Reason::QueueFull => "the queue is full",
            Reason::WaitBudget => "no slot came free within the wait budget",
            Reason::Deadline => "the deadline passed before a slot came free",
            Reason::CoolDown => "the provider asked everybody to stay away until after this call's deadline",
            Reason::Outage => "the target is down, and is not tried again before this call's deadline",
            Reason::Draining => "the gate is draining and takes no new calls",
            Reason::Deadlock => "waiting would never end",
            Reason::NoBudget => "a rate budget is used up and this target does not queue",
            Reason::TooLarge => "the call is larger than this target takes",
            Reason::PredictedWait => "its slot would come later than it can wait",
            Reason::Shed => "the queue is full, and a more urgent call took its place",
        };
        let mut text = format!("{what}; {} of this tenant's calls are ahead", refusal.position);
        if let Some(after) = refusal.retry_after {
            text.push_str(&format!("; try again in {:.1} s", after.as_secs_f64()));
        }
        if matches!(
            refusal.reason,
            Reason::NoSlot | Reason::QueueFull | Reason::WaitBudget | Reason::Deadline
        ) {
            text.push_str(&format!(" ({})", self.wait_hint));
        }
        Error::new(ErrorKind::Refused(refusal.reason), text)
            .at(&self.name)
            .retry_after(refusal.retry_after)
            .queue_position(refusal.position)
    }
}

/// A call in line. Leaving it, by whatever way, leaves nothing behind.
struct InLine<'a> {
    admission: &'a Arc<Admission>,
    id: WaiterId,
    taker: Taker<Result<Permit, Refusal>>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        // A slot that was granted meanwhile is dropped here, and so goes back.
        if self.taker.close().is_none() {
            self.admission.withdraw(self.id);
        }
    }
}
