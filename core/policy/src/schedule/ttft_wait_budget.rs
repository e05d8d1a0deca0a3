//! Wait budgets that follow from the objective for the time to first token (TTFT).
//!
//! A call that was admitted too late to meet its objective takes capacity from calls that can still
//! meet theirs. Under a lasting overload, a queue without a bound makes every call late. A call
//! with an objective and without a configured wait budget may therefore wait for the part of the
//! objective that the upstream does not need.
//!
//! # Algorithm
//!
//! The time that the upstream needs is estimated per class of prompt length, as TCP estimates its
//! retransmission timeout: the mean of recent times to first token plus four mean deviations.
//! Before the first measurement, and if the upstream alone exceeds the objective, half of the
//! objective remains for the wait. An estimate that exceeds half of the objective only because of
//! its deviation counts as half: the adaptive limit keeps the upstream below that. If the mean
//! alone exceeds half, the deviation is not added, and at least an eighth of the objective
//! ([`MAX_UPSTREAM_PART`]) remains. With the deviation, nothing would remain after the first
//! measurement, and no call could be queued, although it would often be in time.
//!
//! Calls that do not stream may wait as long as streams of their class. Their own latencies are not
//! used: a model produces their first token as early as that of a stream, but it arrives with the
//! end of the answer. An objective for the first token therefore neither makes a whole answer late
//! nor shortens the wait of later calls because of it.
//!
//! # Sources
//!
//! - V. Jacobson, M. Karels, *Congestion avoidance and control* (1988), and RFC 6298, for the
//!   estimate.
//! - K. Nichols, V. Jacobson, *Controlling queue delay* (2012), for bounding the time in the queue
//!   instead of its length.

use std::time::{Duration, Instant};

use tidegate_config::Predict;

use super::{SchedulerSettings, Ticket};
use crate::adaptive::{PROMPT_CLASSES, prompt_class};

/// Weight of a new time to first token in the exponentially decaying mean.
const MEAN_WEIGHT: f64 = 1.0 / 8.0;
/// Weight of a new deviation in the exponentially decaying mean deviation.
const DEVIATION_WEIGHT: f64 = 1.0 / 4.0;
/// Number of mean deviations by which the estimate exceeds the mean.
const DEVIATIONS: f64 = 4.0;
/// Maximum part of an objective that the upstream is estimated to need, if it needs less than the
/// objective.
const MAX_UPSTREAM_PART: f64 = 7.0 / 8.0;

/// The TTFT objectives of the lanes, and what the upstream needs of them.
#[derive(Debug)]
pub(super) struct ObjectiveWait {
    /// The objective of each lane whose calls have no configured wait budget.
    objectives: [Option<Duration>; 3],
    /// Whether the times to first token are needed.
    is_measured: bool,
    /// The times to first token, by class of prompt length.
    first_tokens: [FirstTokenTime; PROMPT_CLASSES],
    /// The class of the most recent first token, or `None` before the first one.
    recent_class: Option<usize>,
}

/// When a streamed call got its slot, and the class of its prompt length.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedFirstToken {
    admitted_at: Instant,
    class: usize,
}

impl ObjectiveWait {
    pub(super) fn new(settings: &SchedulerSettings) -> Self {
        let objectives = settings.wait_objectives;
        let predicts = settings.predict == Predict::Objective;
        let is_measured = predicts || objectives.iter().any(Option::is_some);
        Self { objectives, is_measured, first_tokens: Default::default(), recent_class: None }
    }

    /// Returns the maximum wait with which a new call can still meet its objective. Returns `None`
    /// if its lane has no objective that bounds the wait, and for retries: their objective was
    /// missed by the failure, not by the queue.
    pub(super) fn budget(&self, ticket: &Ticket) -> Option<Duration> {
        let objective = self.objectives[ticket.lane as usize].filter(|_| ticket.queue_tag.is_none())?;
        Some(self.max_wait(objective, ticket))
    }

    /// Returns the part of an objective that the upstream does not need for the call.
    pub(super) fn max_wait(&self, objective: Duration, ticket: &Ticket) -> Duration {
        let class = &self.first_tokens[prompt_class(ticket.demand.input)];
        let recent = || self.recent_class.map(|class| &self.first_tokens[class]);
        let known = Some(class).filter(|class| class.mean > 0.0).or_else(recent);
        let (all, half) = (objective.as_secs_f64(), 0.5 * objective.as_secs_f64());
        let upstream = known.map_or(half, |known| match known.mean {
            mean if mean >= all => half,
            mean if mean > half => mean.min(MAX_UPSTREAM_PART * all),
            _ => known.estimate().min(half),
        });
        Duration::from_secs_f64(all - upstream)
    }

    /// Returns what [`ObjectiveWait::on_first_token`] needs to know about a call that gets its slot
    /// now. Returns `None` if it is not needed, or if the call does not stream.
    pub(super) fn on_admitted(&self, now: Instant, ticket: &Ticket) -> Option<AwaitedFirstToken> {
        (ticket.streams && self.is_measured)
            .then(|| AwaitedFirstToken { admitted_at: now, class: prompt_class(ticket.demand.input) })
    }

    /// Records that the first token of a call has arrived now.
    pub(super) fn on_first_token(&mut self, now: Instant, awaited: AwaitedFirstToken) {
        let took = now.saturating_duration_since(awaited.admitted_at).as_secs_f64();
        self.first_tokens[awaited.class].observe(took);
        self.recent_class = Some(awaited.class);
    }
}

/// Statistics of the times to first token of one class, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct FirstTokenTime {
    /// The exponentially decaying mean, or 0 before the first time.
    mean: f64,
    /// The exponentially decaying mean deviation from the mean.
    deviation: f64,
}

impl FirstTokenTime {
    fn observe(&mut self, took: f64) {
        if self.mean == 0.0 {
            *self = Self { mean: took.max(f64::MIN_POSITIVE), deviation: took / 2.0 };
            return;
        }
        self.deviation += DEVIATION_WEIGHT * ((took - self.mean).abs() - self.deviation);
        self.mean += MEAN_WEIGHT * (took - self.mean);
    }

    /// Returns a time within which nearly all first tokens arrive.
    fn estimate(&self) -> f64 {
        self.mean + DEVIATIONS * self.deviation
    }
}
