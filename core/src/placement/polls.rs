//! When to ask a replica something.
//!
//! Only while the pool is used: calls in flight, waiting, or sent within [`ACTIVE`]. After its health only where it is silent: whatever came from it is better
//! evidence. Everything is jittered, so that clients which began together do not ask together. Each poll_request is told once, until its answer comes or it is lost.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::health::HealthState;
use super::replica::Replica;
use super::types::{PollKind, PollRequest, PollRequests};

/// For how long after the last call replicas are looked after.
const ACTIVE: Duration = Duration::from_secs(10);
/// For how long a replica may be silent with calls of ours, and without, before it is asked whether it is well. Without, nothing is lost before the next call, and each of
/// its clients asks: a second at least.
const SILENT: Duration = Duration::from_millis(300);
const IDLE: Duration = Duration::from_millis(1_250);
/// How often one is asked that is not what it should be.
const SUSPECT: Duration = Duration::from_millis(250);
/// At least this often is one asked that is down.
const DOWN: Duration = Duration::from_secs(1);
/// How often replicas are asked what they serve; when one did not say; and when a model is wanted that nobody serves.
const MODELS: Duration = Duration::from_secs(60);
const MODELS_AGAIN: Duration = Duration::from_secs(5);
const MODELS_WANTED: Duration = Duration::from_secs(1);
/// An poll_request that was not answered by then is lost.
const LOST: Duration = Duration::from_secs(5);

/// One kind of poll_request to one replica.
#[derive(Clone, Copy, Debug, Default)]
struct PollSlot {
    last: Option<Instant>,
    /// No answer has come yet.
    out: bool,
    /// This much of its period passes until the next, so that nobody keeps in step.
    part: f64,
}

impl PollSlot {
    /// When it is due, if `after` is to pass since the last.
    fn due(&self, after: Duration) -> Option<Instant> {
        let last = self.last?;
        Some(if self.out { last + LOST } else { last + after.mul_f64(self.part) })
    }

    fn ask(&mut self, now: Instant, part: f64) {
        *self = Self { last: Some(now), out: true, part };
    }
}

/// What one replica was asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PollState {
    health: PollSlot,
    load: PollSlot,
    models: PollSlot,
    /// When to ask after its health whatever else holds.
    urgent: Option<Instant>,
    /// Whether it said what it serves when it was last asked.
    knows_models: bool,
}

impl PollState {
    /// The answer came: when had it been asked?
    pub(super) fn answered(&mut self, ask: PollKind) -> Option<Instant> {
        let slot = match ask {
            PollKind::Health => &mut self.health,
            PollKind::Load => &mut self.load,
            PollKind::Models => &mut self.models,
        };
        slot.out = false;
        slot.last
    }

    /// It said what it serves.
    pub(super) fn on_models(&mut self) {
        self.knows_models = true;
    }

    /// Something happened: ask after its health then.
    pub(super) fn poll_health_at(&mut self, at: Instant) {
        self.urgent = Some(at);
    }

    /// It is another process now: ask what it serves.
    pub(super) fn forget_models(&mut self) {
        self.models = PollSlot::default();
    }
}

/// What the pool as a whole has to do with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PollSchedule {
    /// Whether there is a path to ask after health.
    pub(super) probes: bool,
    pub(super) poll: Option<Duration>,
    /// When a call was last sent, or waited.
    pub(super) active: Option<Instant>,
    /// When a model was last wanted that nobody is known to serve.
    pub(super) wanted: Option<Instant>,
}

impl PollSchedule {
    /// What is to be asked now.
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
                    // Never later than it is said to be.
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

    /// When a replica is to be asked that; `None`: never.
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

/// When one that is well has been silent for long enough to be asked.
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
