//! Reactions of the limit to congestion: how far the slots and the first-token limit are cut.

use std::time::{Duration, Instant};

use super::Limit;
use crate::adaptive::evidence::Evidence;
use crate::adaptive::growth::Growth;
use crate::adaptive::latency_class::is_streaming;
use crate::adaptive::load_tracker::FEW_CALLS;
use crate::adaptive::percentile::PercentileVerdict;
use crate::adaptive::{DecisionCause, Sample};
use tidegate_config::Decrease;

/// Share of the time until lateness that calls may spend in the upstream's queue.
const QUEUE_SHARE: f64 = 0.25;
/// Smallest share of the slots that a cut leaves, and the share it leaves if the number of served
/// calls is unknown.
const MIN_CUT_SHARE: f64 = 0.5;
const DEFAULT_CUT_FACTOR: f64 = 0.9;
/// Longest window over which the rate of first tokens is measured.
const MAX_RATE_WINDOW: Duration = Duration::from_secs(60);
/// A 429 is about concurrency if at least this share of the recently accepted number of calls was
/// in flight.
const REFUSED_SHARE: f64 = 0.8;

impl Limit {
    /// Cuts the limits after late calls of a class, or ends a failed trial.
    pub(super) fn on_late(&mut self, now: Instant, class: usize) {
        let trial = self.growth.trial_slots();
        if trial > 0.0 {
            self.on_limit_found();
            // The part of a large trial that is already served was not excessive.
            let served = self.load.served_now().unwrap_or(0) as f64;
            let to = (self.slots.value() - trial).max(served.min(self.slots.value() - 1.0));
            return self.cut(now, to, DecisionCause::Late);
        }
        let previous_first_token_limit = self.first_token_limit();
        let to = match self.settings.adaptive.decrease {
            Decrease::Served => match self.load.recent_served(now).filter(|_| is_streaming(class)) {
                Some(served) => self.cut_to_served(now, class, served as f64),
                // The number of served calls is unknown if their first tokens cannot be observed.
                None => {
                    self.on_limit_found();
                    DEFAULT_CUT_FACTOR * self.recent_slots(now)
                }
            },
            Decrease::Factor(factor) => {
                self.on_limit_found();
                factor * self.slots.value()
            }
            Decrease::Step(step) => {
                self.on_limit_found();
                self.slots.value() - step as f64
            }
        };
        self.cut_both(now, to, DecisionCause::Late, previous_first_token_limit);
    }

    /// Changes the growth after an excessive level was found.
    fn on_limit_found(&mut self) {
        let probes = self.settings.adaptive.decrease == Decrease::Served;
        self.growth = if probes { self.growth.on_overload() } else { Growth::Additive };
    }

    /// Lowers the first-token limit. Returns the slots to cut to: what the upstream is seen to
    /// serve, plus the calls that can get their first token in time.
    fn cut_to_served(&mut self, now: Instant, class: usize, served: f64) -> f64 {
        let late = self.classes[class].threshold(self.objective(class)).unwrap_or(1.0);
        let base = self.classes[class].baseline(self.objective(class));
        // The rate of an idle upstream says nothing.
        let window = Duration::try_from_secs_f64(2.0 * late).unwrap_or(MAX_RATE_WINDOW);
        let busy = self.load.awaiting_for(now).max(window / 2).min(window);
        // By Little's law: the calls in progress and those that may be queued before them.
        let share = (base + QUEUE_SHARE * (late - base)) * self.first_token_rate.rate(now, busy);
        let recent_slots = self.recent_slots(now);
        if self.first_token_limit.on_late(share) {
            // The first-token limit cannot help, so there are too many slots.
            self.on_limit_found();
            return (served + share).clamp(MIN_CUT_SHARE * recent_slots, recent_slots);
        }
        (served + share + 1.0).max(MIN_CUT_SHARE * recent_slots).min(self.slots.value())
    }

    /// Handles a 429 that is not about a rate. If many calls were in flight, the calls still in
    /// flight are what the upstream accepts.
    pub(super) fn on_refused(&mut self, now: Instant, sample: &Sample) {
        let taken = self.load.recent_accepted(now);
        if taken == 0 || (sample.in_flight as f64) < REFUSED_SHARE * taken as f64 {
            return;
        }
        if self.first_tokens.applies_to(sample.sent_at) {
            self.slots_before_refusals = self.recent_slots(now);
            self.on_limit_found();
        }
        let to = (self.load.in_flight as f64).max(MIN_CUT_SHARE * self.slots_before_refusals);
        if to < self.slots.value() {
            self.cut(now, to, DecisionCause::Refused);
        }
    }

    /// Handles an overload response or a timeout.
    pub(super) fn on_overloaded(&mut self, now: Instant, sample: &Sample, cause: DecisionCause) {
        let evidence = if is_streaming(sample.class) { &mut self.first_tokens } else { &mut self.answers };
        // Overdue calls were already evaluated, and a call that was nearly alone did not cause the
        // overload.
        let counts = evidence.applies_to(sample.sent_at) && !sample.judged && sample.in_flight > FEW_CALLS;
        if counts && evidence.on_overload() {
            self.cut_by_default(now, cause);
        }
    }

    /// Evaluates the percentile detector.
    pub(super) fn tick_percentile(&mut self, now: Instant) {
        let Some(percentile) = &mut self.percentile else { return };
        match percentile.tick(now) {
            // Calls in flight count as demand, because a short local queue is empty most of the
            // time.
            PercentileVerdict::Below if self.load.in_flight > 0 => {
                self.slots.raise(now, 1.0, DecisionCause::Headroom, self.first_token_limit());
            }
            PercentileVerdict::Above(class) => self.on_late(now, class),
            PercentileVerdict::Below | PercentileVerdict::Within => {}
        }
    }

    /// Returns the slots used recently, which a cut starts from. If few were used, the cut starts
    /// from the configured start value.
    fn recent_slots(&mut self, now: Instant) -> f64 {
        let start = self.settings.adaptive.start as f64 / DEFAULT_CUT_FACTOR;
        self.slots.value().min(start.max(self.load.recent_max(now) as f64)).max(1.0)
    }

    /// Cuts the slots by 10 % of those recently used.
    pub(super) fn cut_by_default(&mut self, now: Instant, cause: DecisionCause) {
        self.on_limit_found();
        let to = DEFAULT_CUT_FACTOR * self.recent_slots(now);
        self.cut(now, to, cause);
    }

    /// Cuts the slots, with an unchanged first-token limit.
    fn cut(&mut self, now: Instant, to: f64, cause: DecisionCause) {
        self.cut_both(now, to, cause, self.first_token_limit());
    }

    /// Cuts the slots and starts a new epoch: calls sent before it are no evidence.
    ///
    /// `previous_first_token_limit` is the first-token limit before the current event.
    fn cut_both(&mut self, now: Instant, to: f64, cause: DecisionCause, previous_first_token_limit: usize) {
        self.last_breach_at = Some(now);
        self.first_tokens = Evidence::new(now);
        self.answers = Evidence::new(now);
        self.pace_evidence = Evidence::new(now);
        // After a 429, the upstream itself has shown what it accepts.
        let to = if cause == DecisionCause::Refused { to } else { self.load.limit_cut(to) };
        self.slots.cut(now, to, cause, [previous_first_token_limit, self.first_token_limit()]);
    }
}
