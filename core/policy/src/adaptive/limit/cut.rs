//! Reactions of the limit to congestion: how far the slots and the first-token limit are cut.

use std::time::{Duration, Instant};

use tidegate_protocol::vllm::EngineMetrics;

use super::super::percentile::PercentileVerdict;
use super::{DecisionCause, Decrease, FEW_CALLS, Growth, Limit, Sample, is_streaming};

/// Share of the time between baseline and threshold of a latency class that calls may spend in the
/// upstream's queue after a cut.
const QUEUE_SHARE: f64 = 0.25;
/// Minimum share of the recently used slots that one cut leaves.
const MIN_CUT_SHARE: f64 = 0.5;
/// Share of the recently used slots that a cut leaves if the number of served calls is unknown.
const DEFAULT_CUT_FACTOR: f64 = 0.9;
/// Number of consecutive cuts without gain (see [`Limit::cuts_without_gain`]) that end slow start:
/// more slots did not let the upstream serve more calls.
const MAX_CUTS_WITHOUT_GAIN: u32 = 4;
/// Window for the rate of first tokens if the window computed from the threshold is too long to be
/// represented.
const MAX_RATE_WINDOW: Duration = Duration::from_secs(60);
/// Minimum load at which a 429 for concurrency cuts the slots: the calls in flight when the
/// rejected call was sent, as a share of the recent maximum of accepted calls. A 429 at a lower
/// load has another reason.
const REFUSED_SHARE: f64 = 0.8;

impl Limit {
    /// Applies a report of the engine behind the upstream, and cuts the slots if too many calls
    /// wait in the engine's queue. Without an objective, this queue alone decides while it is
    /// reported: latencies also vary for other reasons. Has no effect with the percentile detector.
    pub fn on_engine_metrics(&mut self, now: Instant, engine: &EngineMetrics) {
        if self.percentile.is_some() {
            return;
        }
        self.update_full(now);
        let to = self.engine_queue.observe(now, self.load.in_flight, engine);
        if let Some(to) = to.filter(|to| *to < self.slots.value) {
            self.on_limit_found();
            self.cut(now, to, DecisionCause::Queued);
        }
    }

    /// Cuts the slots, and the first-token limit if it is learned, because calls of a latency class
    /// were late. During a trial, only takes back the raise of the trial.
    pub(super) fn on_late(&mut self, now: Instant, class: usize) {
        let trial = self.growth.trial_slots();
        if trial > 0.0 {
            self.on_limit_found();
            // The part of a large trial that is already served was not excessive.
            let served = self.load.served_now().unwrap_or(0) as f64;
            let to = (self.slots.value - trial).max(served.min(self.slots.value - 1.0));
            return self.cut(now, to, DecisionCause::Late);
        }
        let decrease = self.settings.adaptive.decrease;
        if decrease == Decrease::Served
            && is_streaming(class)
            && let Some(served) = self.load.recent_served(now)
        {
            return self.cut_to_served(now, class, served as f64);
        }
        self.on_limit_found();
        let to = match decrease {
            // The number of served calls is unknown if their first tokens cannot be observed.
            Decrease::Served => DEFAULT_CUT_FACTOR * self.recent_slots(now),
            Decrease::Factor(factor) => factor * self.slots.value,
            Decrease::Step(step) => self.slots.value - step as f64,
        };
        self.cut(now, to, DecisionCause::Late);
    }

    /// Ends slow start or the current trial, and starts the next phase of growth, because the
    /// current number of slots was found to be too high.
    fn on_limit_found(&mut self) {
        let is_probing = self.settings.adaptive.decrease == Decrease::Served;
        self.growth = if is_probing { self.growth.on_overload() } else { Growth::Additive };
    }

    /// Lowers the first-token limit, and cuts the slots to what the upstream is seen to serve
    /// (`served` calls) plus the calls that can get their first token in time. Ends slow start if
    /// the first-token limit cannot help, or if the last cuts showed that more slots do not either.
    fn cut_to_served(&mut self, now: Instant, class: usize, served: f64) {
        let previous_limit = self.first_token_limit();
        let late = self.classes[class].threshold().unwrap_or(1.0);
        let base = self.classes[class].baseline();
        // Time without awaiting calls is left out of the window: it does not show the rate.
        let window = Duration::try_from_secs_f64(2.0 * late).unwrap_or(MAX_RATE_WINDOW);
        let busy = self.load.awaiting_for(now).max(window / 2).min(window);
        // By Little's law: the calls in progress and those that may be queued before them.
        let sustainable = (base + QUEUE_SHARE * (late - base)) * self.load.first_token_rate.rate(now, busy);
        let recent_slots = self.recent_slots(now);
        let min = MIN_CUT_SHARE * recent_slots;
        let serves_more = served > std::mem::replace(&mut self.served_at_cut, served);
        self.cuts_without_gain = if serves_more { 0 } else { self.cuts_without_gain.saturating_add(1) };
        // Some late calls among the first few do not show that the initial slots are too many.
        let grew = recent_slots > self.settings.adaptive.start as f64;
        let cannot_help = self.first_token_limit.on_late(sustainable) && grew;
        let to = if cannot_help || self.cuts_without_gain >= MAX_CUTS_WITHOUT_GAIN {
            self.on_limit_found();
            let to = served + sustainable;
            // Slots that are already this few were still too many.
            let to = if to < self.slots.value { to } else { served };
            to.clamp(min, recent_slots)
        } else {
            (served + sustainable + 1.0).max(min).min(self.slots.value)
        };
        self.cut_both(now, to, DecisionCause::Late, previous_limit);
    }

    /// Cuts the slots after a 429 that is not about a rate, if many calls were in flight when the
    /// rejected call was sent. Cuts to the number of calls that are still in flight, because the
    /// upstream has accepted them, or to half of the recently used slots if that is more.
    pub(super) fn on_refused(&mut self, now: Instant, sample: &Sample) {
        let accepted = self.load.recent_accepted.max(now);
        if accepted == 0 || (sample.sent.in_flight as f64) < REFUSED_SHARE * accepted as f64 {
            return;
        }
        if self.first_tokens.applies_to(sample.sent.at) {
            self.slots_before_refusals = self.recent_slots(now);
            self.on_limit_found();
        }
        let to = (self.load.in_flight as f64).max(MIN_CUT_SHARE * self.slots_before_refusals);
        if to < self.slots.value {
            self.cut(now, to, DecisionCause::Refused);
        }
    }

    /// Adds an overload response or a timeout to the evidence, and cuts the slots if the evidence
    /// suffices.
    pub(super) fn on_overloaded(&mut self, now: Instant, sample: &Sample, cause: DecisionCause) {
        let evidence = if is_streaming(sample.class) { &mut self.first_tokens } else { &mut self.answers };
        // Overdue calls were already evaluated, and a call that was nearly alone did not cause the
        // overload.
        let is_new = !sample.judged && sample.sent.in_flight > FEW_CALLS;
        if is_new && evidence.applies_to(sample.sent.at) && evidence.on_overload() {
            self.cut_by_default(now, cause);
        }
    }

    /// Runs the tick of the percentile detector if it is due. Depending on its verdict, raises the
    /// slots by one, cuts the limit, or changes nothing. Does nothing if another detector is
    /// configured.
    pub(super) fn tick_percentile(&mut self, now: Instant) {
        let due = self.percentile.as_mut().filter(|percentile| percentile.tick_at <= now);
        match due.map(|percentile| percentile.tick(now)) {
            // Calls in flight count as demand, because a short local queue is empty most of the
            // time.
            Some(PercentileVerdict::Below) if self.load.in_flight > 0 => {
                self.slots.raise(now, 1.0, DecisionCause::Headroom, self.first_token_limit());
            }
            Some(PercentileVerdict::Above(class)) => self.on_late(now, class),
            Some(PercentileVerdict::Below | PercentileVerdict::Within) | None => {}
        }
    }

    /// Returns the number of slots that a cut starts from: the recent maximum of calls in flight,
    /// but at least the configured start value divided by [`DEFAULT_CUT_FACTOR`], and at most the
    /// current slots.
    fn recent_slots(&mut self, now: Instant) -> f64 {
        let start = self.settings.adaptive.start as f64 / DEFAULT_CUT_FACTOR;
        let in_flight = self.load.recent_in_flight.max(now).max(self.load.in_flight) as f64;
        self.slots.value.min(start.max(in_flight)).max(1.0)
    }

    /// Cuts the slots to 90 % of those recently used (see [`Limit::recent_slots`]).
    pub(super) fn cut_by_default(&mut self, now: Instant, cause: DecisionCause) {
        self.on_limit_found();
        let to = DEFAULT_CUT_FACTOR * self.recent_slots(now);
        self.cut(now, to, cause);
    }

    /// Cuts the slots to `to`, with an unchanged first-token limit.
    fn cut(&mut self, now: Instant, to: f64, cause: DecisionCause) {
        self.cut_both(now, to, cause, self.first_token_limit());
    }

    /// Cuts the slots to `to`, and discards the evidence, so that only calls sent from now on
    /// count. Except after a 429, a single cut does not go below a quarter of the recent peak of
    /// calls in flight.
    ///
    /// `previous_limit` is the first-token limit before the current event.
    fn cut_both(&mut self, now: Instant, to: f64, cause: DecisionCause, previous_limit: usize) {
        self.last_breach_at = Some(now);
        self.discard_evidence(now);
        let to = match cause {
            // The upstream itself has shown what it accepts.
            DecisionCause::Refused => to,
            // How fast tokens come at best is seen only at a quarter of the peak if the limit is
            // always full.
            DecisionCause::Slow => self.load.limit_cut(self.slots.value, to),
            _ => self.load.limit_cut(to, to),
        };
        self.slots.cut(now, to, cause, [previous_limit, self.first_token_limit()]);
    }
}
