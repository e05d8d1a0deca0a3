//! Reactions of the limit to congestion: how far the slots and the first-token limit are cut.

use std::time::{Duration, Instant};

use super::Limit;
use crate::adaptive::evidence::Evidence;
use crate::adaptive::growth::Growth;
use crate::adaptive::latency_class::is_streaming;
use crate::adaptive::load_tracker::FEW_CALLS;
use crate::adaptive::percentile::PercentileVerdict;
use crate::adaptive::{DecisionCause, Sample};
use crate::config::Decrease;

/// The share of the time that is late which calls may spend in the queue before the upstream itself.
const QUEUE_SHARE: f64 = 0.25;
/// A cut leaves this share at the least, and this much where nothing says how much the upstream serves.
const MIN_CUT_SHARE: f64 = 0.5;
const DEFAULT_CUT_FACTOR: f64 = 0.9;
/// The longest that a rate is taken over.
const MAX_RATE_WINDOW: Duration = Duration::from_secs(60);
/// A 429 speaks of how many are in flight, if so many of those that were taken in at once of late were.
const REFUSED_SHARE: f64 = 0.8;

impl Limit {
    pub(super) fn on_late(&mut self, now: Instant, class: usize) {
        let trial = self.growth.trial_slots();
        if trial > 0.0 {
            self.on_limit_found();
            // Of a bold one, what is served already was not too much.
            let served = self.load.served_now().unwrap_or(0) as f64;
            let to = (self.slots.value() - trial).max(served.min(self.slots.value() - 1.0));
            return self.cut(now, to, DecisionCause::Late);
        }
        let previous_first_token_limit = self.first_token_limit();
        let to = match self.settings.adaptive.decrease {
            Decrease::Served => match self.load.recent_served(now).filter(|_| is_streaming(class)) {
                Some(served) => self.cut_to_served(now, class, served as f64),
                // The number of served calls is not known if their first tokens cannot be seen.
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

    /// A level was found that is too much.
    fn on_limit_found(&mut self) {
        let probes = self.settings.adaptive.decrease == Decrease::Served;
        self.growth = if probes { self.growth.on_overload() } else { Growth::Additive };
    }

    /// Lowers the bound, and returns the slots to cut to: what the upstream is seen to serve, and
    /// as many more as can have their first token in time.
    fn cut_to_served(&mut self, now: Instant, class: usize, served: f64) -> f64 {
        let late = self.classes[class].threshold(self.objective(class)).unwrap_or(1.0);
        let base = self.classes[class].baseline(self.objective(class));
        // Of an upstream that had nothing to do the rate says nothing.
        let window = Duration::try_from_secs_f64(2.0 * late).unwrap_or(MAX_RATE_WINDOW);
        let busy = self.load.awaiting_for(now).max(window / 2).min(window);
        // By Little's law: those that are on their way, and those that may wait before it.
        let share = (base + QUEUE_SHARE * (late - base)) * self.first_token_rate.rate(now, busy);
        let recent_slots = self.recent_slots(now);
        if self.first_token_limit.on_late(share) {
            // Then it is the slots that are too many.
            self.on_limit_found();
            return (served + share).clamp(MIN_CUT_SHARE * recent_slots, recent_slots);
        }
        (served + share + 1.0).max(MIN_CUT_SHARE * recent_slots).min(self.slots.value())
    }

    /// A 429, and not for a rate. It speaks of how many are in flight if it came while many were: what is in flight still was taken in.
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

    pub(super) fn on_overloaded(&mut self, now: Instant, sample: &Sample, cause: DecisionCause) {
        let evidence = if is_streaming(sample.class) { &mut self.first_tokens } else { &mut self.answers };
        // One that was overdue has been judged; and one that was nearly alone was not too much.
        let counts = evidence.applies_to(sample.sent_at) && !sample.judged && sample.in_flight > FEW_CALLS;
        if counts && evidence.on_overload() {
            self.cut_by_default(now, cause);
        }
    }

    pub(super) fn tick_percentile(&mut self, now: Instant) {
        let Some(percentile) = &mut self.percentile else { return };
        match percentile.tick(now) {
            // In flight is demand: a queue that is kept short is empty most of the time.
            PercentileVerdict::Below if self.load.in_flight > 0 => {
                self.slots.raise(now, 1.0, DecisionCause::Headroom, self.first_token_limit());
            }
            PercentileVerdict::Above(class) => self.on_late(now, class),
            PercentileVerdict::Below | PercentileVerdict::Within => {}
        }
    }

    /// The slots that were used of late: what is cut is what was there. Where few were, nobody knows what more would do: a cut goes no deeper than the start.
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

    /// One cut for each epoch: what was sent before it is judged no more. `awaiting`: the bound
    /// before it was lowered, if it was.
    fn cut_both(&mut self, now: Instant, to: f64, cause: DecisionCause, previous_first_token_limit: usize) {
        self.last_breach_at = Some(now);
        self.first_tokens = Evidence::new(now);
        self.answers = Evidence::new(now);
        self.pace_evidence = Evidence::new(now);
        // What was turned away says itself how many are too many.
        let to = if cause == DecisionCause::Refused { to } else { self.load.limit_cut(to) };
        self.slots.cut(now, to, cause, [previous_first_token_limit, self.first_token_limit()]);
    }
}
