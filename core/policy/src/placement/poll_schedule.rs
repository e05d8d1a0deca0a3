//! The schedule of polls: when to ask a replica for its health, load and models.
//!
//! Replicas are polled only while the pool is used: calls are in flight, or a call waited or was
//! sent within [`ACTIVE_FOR`]. The health of a healthy replica is polled only while nothing is
//! received from it, because any response is better evidence. All intervals are jittered so that
//! clients which started together do not poll together. Each poll is requested once, until its
//! answer is reported or it is lost.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::{HealthState, Placed, PollKind, PollRequest, PollRequests, Replica};

/// How long polling continues after a call was last sent, or last waited in the queue.
const ACTIVE_FOR: Duration = Duration::from_secs(10);
/// Time without a byte from a healthy replica with calls of this client until its health is polled.
const SILENT_INTERVAL: Duration = Duration::from_millis(300);
/// Time without a byte from a healthy replica without calls of this client until its health is
/// polled. It is longer because no call is affected, and each client polls.
const IDLE_INTERVAL: Duration = Duration::from_millis(1_250);
/// Interval between health polls of suspect replicas and replicas on trial.
const SUSPECT_INTERVAL: Duration = Duration::from_millis(250);
/// Interval between health polls of replicas that are down.
const DOWN_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between model polls.
const MODELS_INTERVAL: Duration = Duration::from_secs(60);
/// Interval after a model poll without a result.
const MODELS_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between model polls after a call has asked for a model that no replica is known to
/// serve.
const MODELS_WANTED_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a poll without an answer is lost and may be repeated.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The polls of one kind at one replica.
#[derive(Clone, Copy, Debug, Default)]
struct PollSlot {
    /// When the last poll was requested, or `None` if none was.
    last: Option<Instant>,
    /// Whether the last poll is not answered yet.
    is_pending: bool,
    /// Random factor on the interval until the next poll, from 0.8 to 1.2.
    jitter: f64,
}

impl PollSlot {
    /// Returns when the next poll is due: now if there was none, after [`ANSWER_TIMEOUT`] if the
    /// last one is pending, and otherwise `interval`, with jitter, after the last one.
    fn due(&self, now: Instant, interval: Duration) -> Instant {
        match self.last {
            None => now,
            Some(last) if self.is_pending => last + ANSWER_TIMEOUT,
            Some(last) => last + interval.mul_f64(self.jitter),
        }
    }
}

/// The polls of one replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PollState {
    /// The polls of each [`PollKind`].
    slots: [PollSlot; 3],
    /// Time by which health is polled even if the interval is not over, or `None` if only the
    /// interval counts.
    pub(super) urgent: Option<Instant>,
    /// Whether the last requested model poll was answered with models.
    pub(super) knows_models: bool,
}

impl PollState {
    /// Marks the pending poll as answered. Returns when the last poll of that kind was requested,
    /// or `None` if none was.
    pub(super) fn on_answer(&mut self, kind: PollKind) -> Option<Instant> {
        let slot = &mut self.slots[kind as usize];
        slot.is_pending = false;
        slot.last
    }

    /// Makes a model poll due immediately, because another process may serve other models.
    pub(super) fn forget_models(&mut self) {
        self.slots[PollKind::Models as usize] = PollSlot::default();
    }

    /// Marks a poll as requested now and not yet answered.
    fn on_request(&mut self, now: Instant, kind: PollKind, rng: &mut Rng) {
        // Jitter only makes health polls earlier.
        let range = if kind == PollKind::Health { 0.2 } else { 0.4 };
        let jitter = 0.8 + range * rng.f64();
        self.slots[kind as usize] = PollSlot { last: Some(now), is_pending: true, jitter };
        self.urgent.take_if(|_| kind == PollKind::Health);
        self.knows_models &= kind != PollKind::Models;
    }
}

/// The settings and the activity of a pool as far as they affect polls.
#[derive(Clone, Copy, Debug)]
pub(super) struct PollSchedule {
    /// Interval between load polls, or `None` if the load is not polled.
    pub(super) poll: Option<Duration>,
    /// When a call was last sent, or last waited in the queue. `None` if neither ever happened.
    pub(super) active_at: Option<Instant>,
    /// When a call last asked for a model that no replica is known to serve, or `None` if none
    /// ever did.
    pub(super) model_wanted_at: Option<Instant>,
}

impl PollSchedule {
    /// Returns the polls that are due and the time of the next one, and marks the due ones as
    /// pending. The result is empty if the pool is not used.
    pub(super) fn due(&self, now: Instant, replicas: &mut [Option<Replica>], rng: &mut Rng) -> PollRequests {
        let mut requests = PollRequests::default();
        let is_active = self.active_at.is_some_and(|last| now <= last + ACTIVE_FOR);
        if !is_active && replicas.iter().flatten().all(|replica| replica.load.own_calls() == 0) {
            return requests;
        }
        for replica in replicas.iter_mut().flatten() {
            for kind in [PollKind::Health, PollKind::Load, PollKind::Models] {
                let mut next = self.next(now, replica, kind);
                if next.is_some_and(|due| due <= now) {
                    replica.polled.on_request(now, kind, rng);
                    next = self.next(now, replica, kind);
                    let Placed { id, url } = replica.placed.clone();
                    requests.due.push(PollRequest { to: id, url, kind });
                }
                requests.next = requests.next.into_iter().chain(next).min();
            }
        }
        requests
    }

    /// Returns when the health of a replica is polled next while the pool is used: now if a poll is
    /// pending. Returns `None` if health polls are disabled.
    pub(super) fn next_probe(&self, now: Instant, replica: &Replica) -> Option<Instant> {
        let is_pending = replica.polled.slots[PollKind::Health as usize].is_pending;
        self.next(now, replica, PollKind::Health).map(|at| if is_pending { now } else { at.max(now) })
    }

    /// Returns when a replica is to be polled next, or `None` if polls of that kind are disabled or
    /// the replica's state does not permit them.
    fn next(&self, now: Instant, replica: &Replica, kind: PollKind) -> Option<Instant> {
        let (polled, state) = (&replica.polled, replica.health.state);
        let slot = &polled.slots[kind as usize];
        match kind {
            PollKind::Health if !replica.health.settings.probes => None,
            PollKind::Health => {
                let due = match state {
                    HealthState::In => due_after_silence(now, replica, slot),
                    HealthState::Suspect | HealthState::Trial => slot.due(now, SUSPECT_INTERVAL),
                    HealthState::Down => slot.due(now, DOWN_INTERVAL),
                };
                Some(polled.urgent.filter(|_| !slot.is_pending).map_or(due, |urgent| due.min(urgent)))
            }
            _ if replica.draining || state == HealthState::Down => None,
            PollKind::Load => Some(slot.due(now, self.poll?)),
            PollKind::Models => {
                let is_wanted = self.model_wanted_at.is_some_and(|at| slot.last.is_none_or(|last| last < at));
                let interval = match polled.knows_models {
                    _ if is_wanted => MODELS_WANTED_INTERVAL,
                    true => MODELS_INTERVAL,
                    false => MODELS_RETRY_INTERVAL,
                };
                Some(slot.due(now, interval))
            }
        }
    }
}

/// Returns when the health of a healthy replica is to be polled: when nothing was received from it
/// for long enough.
fn due_after_silence(now: Instant, replica: &Replica, slot: &PollSlot) -> Instant {
    let interval = if replica.load.own_calls() > 0 { SILENT_INTERVAL } else { IDLE_INTERVAL };
    match (slot.last, replica.health.last_alive) {
        (None, Some(alive)) => (alive + SILENT_INTERVAL).max(now),
        (Some(last), Some(alive)) if !slot.is_pending => last.max(alive) + interval.mul_f64(slot.jitter),
        _ => slot.due(now, interval),
    }
}
