//! The schedule of polls: when to ask a replica for its health, load and models.
//!
//! Replicas are polled only while the pool is used: calls are in flight, wait, or were sent within
//! [`ACTIVE`]. Health is polled only while a replica is silent, because any response is better
//! evidence. All intervals are jittered so that clients which started together do not poll
//! together. Each request is returned once, until its answer comes or it is lost.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::health::HealthState;
use super::replica::Replica;
use super::types::{PollKind, PollRequest, PollRequests};

/// How long polling continues after the last call.
const ACTIVE: Duration = Duration::from_secs(10);
/// The silence after which health is polled, with and without calls of this client. Without calls
/// nothing is lost before the next call, and each client polls, so the interval is longer.
const SILENT: Duration = Duration::from_millis(300);
const IDLE: Duration = Duration::from_millis(1_250);
/// The interval of health polls for suspect replicas and replicas on trial.
const SUSPECT: Duration = Duration::from_millis(250);
/// The interval of health polls for replicas that are down.
const DOWN: Duration = Duration::from_secs(1);
/// The intervals of model polls: normally, after a poll without a result, and when a call asks for
/// a model that no replica is known to serve.
const MODELS: Duration = Duration::from_secs(60);
const MODELS_AGAIN: Duration = Duration::from_secs(5);
const MODELS_WANTED: Duration = Duration::from_secs(1);
/// The time after which an unanswered request is lost.
const LOST: Duration = Duration::from_secs(5);

/// One kind of poll of one replica.
#[derive(Clone, Copy, Debug, Default)]
struct PollSlot {
    last: Option<Instant>,
    /// Whether an answer is awaited.
    out: bool,
    /// The fraction of the interval until the next poll, for jitter.
    part: f64,
}

impl PollSlot {
    /// Returns when the next poll is due if `after` is the interval.
    fn due(&self, after: Duration) -> Option<Instant> {
        let last = self.last?;
        Some(if self.out { last + LOST } else { last + after.mul_f64(self.part) })
    }

    fn ask(&mut self, now: Instant, part: f64) {
        *self = Self { last: Some(now), out: true, part };
    }
}

/// The polls of one replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PollState {
    health: PollSlot,
    load: PollSlot,
    models: PollSlot,
    /// When to poll health regardless of the interval.
    urgent: Option<Instant>,
    /// Whether the last model poll had a result.
    knows_models: bool,
}

impl PollState {
    /// Records an answer, and returns when it was requested.
    pub(super) fn answered(&mut self, ask: PollKind) -> Option<Instant> {
        let slot = match ask {
            PollKind::Health => &mut self.health,
            PollKind::Load => &mut self.load,
            PollKind::Models => &mut self.models,
        };
        slot.out = false;
        slot.last
    }

    /// Records that the replica reported its models.
    pub(super) fn on_models(&mut self) {
        self.knows_models = true;
    }

    /// Schedules a health poll.
    pub(super) fn poll_health_at(&mut self, at: Instant) {
        self.urgent = Some(at);
    }

    /// Schedules a model poll because the process has changed.
    pub(super) fn forget_models(&mut self) {
        self.models = PollSlot::default();
    }
}

/// The settings and the activity of the pool as far as they affect polls.
#[derive(Clone, Copy, Debug)]
pub(super) struct PollSchedule {
    /// Whether a health path is configured.
    pub(super) probes: bool,
    pub(super) poll: Option<Duration>,
    /// When a call was last sent or waited.
    pub(super) active: Option<Instant>,
    /// When a call last asked for a model that no replica is known to serve.
    pub(super) wanted: Option<Instant>,
}

impl PollSchedule {
    /// Returns the requests that are due.
    pub(super) fn due<'a>(
        &self,
        now: Instant,
        replicas: impl Iterator<Item = &'a mut Replica>,
        rng: &mut Rng,
    ) -> PollRequests {
        let mut replicas: Vec<&mut Replica> = replicas.collect();
        let mut poll_requests = PollRequests::default();
        let lately = self.active.is_some_and(|last| now <= last + ACTIVE);
        if !lately && replicas.iter().all(|replica| replica.load.calls() == 0) {
            return poll_requests;
        }
        for replica in &mut replicas {
            for ask in [PollKind::Health, PollKind::Load, PollKind::Models] {
                let Some(due) = self.next(now, replica, ask) else { continue };
                if due > now {
                    poll_requests.next = poll_requests.next.into_iter().chain([due]).min();
                    continue;
                }
                let polled = &mut replica.polled;
                let (slot, part) = match ask {
                    // Jitter makes health polls earlier only.
                    PollKind::Health => {
                        polled.urgent = None;
                        (&mut polled.health, 0.8 + 0.2 * rng.f64())
                    }
                    PollKind::Load => (&mut polled.load, 0.8 + 0.4 * rng.f64()),
                    PollKind::Models => {
                        polled.knows_models = false;
                        (&mut polled.models, 0.8 + 0.4 * rng.f64())
                    }
                };
                slot.ask(now, part);
                let again = self.next(now, replica, ask);
                poll_requests.next = poll_requests.next.into_iter().chain(again).min();
                let to = replica.placed.id;
                poll_requests.due.push(PollRequest { to, url: replica.placed.url.clone(), kind: ask });
            }
        }
        poll_requests
    }

    /// Returns when a replica is to be polled, or `None` for never.
    fn next(&self, now: Instant, replica: &Replica, ask: PollKind) -> Option<Instant> {
        let polled = &replica.polled;
        let state = replica.health.state();
        match ask {
            PollKind::Health if !self.probes => None,
            PollKind::Health => {
                let due = match state {
                    HealthState::In => quiet(now, replica),
                    HealthState::Suspect | HealthState::Trial => polled.health.due(SUSPECT).unwrap_or(now),
                    HealthState::Down => polled.health.due(DOWN).unwrap_or(now),
                };
                Some(polled.urgent.filter(|_| !polled.health.out).map_or(due, |urgent| due.min(urgent)))
            }
            PollKind::Load | PollKind::Models if replica.draining || state == HealthState::Down => None,
            PollKind::Load => Some(polled.load.due(self.poll?).unwrap_or(now)),
            PollKind::Models => {
                let wanted =
                    self.wanted.is_some_and(|wanted| polled.models.last.is_none_or(|last| last < wanted));
                let after = match (wanted, polled.knows_models) {
                    (true, _) => MODELS_WANTED,
                    (false, true) => MODELS,
                    (false, false) => MODELS_AGAIN,
                };
                Some(polled.models.due(after).unwrap_or(now))
            }
        }
    }
}

/// Returns when a healthy replica has been silent for long enough to be polled.
fn quiet(now: Instant, replica: &Replica) -> Instant {
    let slot = &replica.polled.health;
    let Some(last) = slot.last else {
        return replica.health.last_alive().map_or(now, |last_alive| (last_alive + SILENT).max(now));
    };
    if slot.out {
        return last + LOST;
    }
    let after = if replica.load.calls() > 0 { SILENT } else { IDLE };
    let since = replica.health.last_alive().map_or(last, |last_alive| last_alive.max(last));
    since + after.mul_f64(slot.part)
}
