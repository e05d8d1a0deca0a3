//! The provider's view of a budget, predicted from its `remaining` headers.
//!
//! # Algorithm
//!
//! A `remaining` value is outdated when it arrives: other calls were charged, other clients were
//! served, and some of the budget was refilled in the meantime. The current value is predicted from
//! the last report, the charges since, and the refill rate (a Smith predictor: a model bridges the
//! delay, and late measurements correct the model).
//!
//! The refill rate is measured between reports and not derived from the limit. A token bucket
//! refills at the whole rate, a fixed window refills nothing until it resets, and other clients of
//! the same key reduce both. One predictor serves all three.
//!
//! Two properties of a provider are unknown, and each combination has a predictor of its own: the
//! rule by which calls are counted, and whether `remaining` is measured when the request arrives or
//! when it is answered. The combination with the smallest prediction error is used.

use std::time::{Duration, Instant};

use super::token_bucket::{after, seconds};

/// Time constant of the measured refill rate, in seconds.
const REFILL_TIME_CONSTANT: f64 = 8.0;
/// Minimum time between two samples, in seconds. Closer reports show rounding rather than a rate.
const MIN_SAMPLE_GAP: f64 = 0.25;
/// Samples needed before another counting rule or another time of measurement may be adopted.
const MIN_SAMPLES: u32 = 40;
/// Fraction of the limit above which a budget counts as nearly full. There the refill is known to
/// be the whole rate, and what is missing is what was counted.
const NEAR_FULL: f64 = 0.8;
/// A rule must have at most this fraction of the current rule's prediction error to replace it.
const MAX_ERROR_RATIO: f64 = 0.7;
/// Net number of reports in which a rule must have predicted better before it is adopted.
const MIN_WINS: u32 = 30;
/// Upper limit of the net number of wins. It is multiplied by 4 after a refusal under a learned
/// rule, and divided by 4 after each [`EVIDENCE_DECAY`] without one.
const MAX_WINS: u32 = 64 * MIN_WINS;
const EVIDENCE_DECAY: Duration = Duration::from_secs(1_800);
/// Weight of a smaller report in the estimate of the largest possible `remaining`.
const MAX_DECAY: f64 = 0.02;
/// Fraction of the limit assumed to refill per window if the announced resets proved wrong.
const PROBE_REFILL: f64 = 0.25;
/// Assumed network delay of a request.
const NETWORK_DELAY: Duration = Duration::from_millis(250);
/// Number of counting rules, from the first, that can be learned. Providers that count only input
/// send no headers.
const LEARNABLE_RULES: usize = 3;
/// Samples that confirm the assumed rule. Replacing a rule takes more.
const CONFIRMING_SAMPLES: u32 = MIN_SAMPLES / 2;
/// Index of the first counting rule that counts output when it is generated.
const FIRST_LATE_RULE: usize = 2;
/// Fraction of the limit kept unused if every call is counted on arrival, in addition to a fifth of
/// the charges in flight.
const UNCERTAIN_FRACTION: f64 = 0.03;
/// Reports older than this say too little about the present.
const MAX_REPORT_AGE: Duration = Duration::from_secs(30);
/// Minimum weight of the newest error in the mean error.
const ERROR_WEIGHT: f64 = 0.03;
/// Fraction of the limit kept unused: normally, and while other clients use the budget, whose use
/// is reported late.
const MARGIN: f64 = 0.005;
const SHARED_MARGIN: f64 = 0.05;

/// One reported `remaining` value with the charges at the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) remaining: f64,
    /// When the request was sent, and the total charged by then under each rule, including the
    /// request.
    pub(super) sent: (Instant, [i64; 4]),
    /// When the response was received, and the total charged by then under each rule.
    pub(super) received: (Instant, [i64; 4]),
}

/// Prediction of the remaining budget under one counting rule and one time of measurement.
#[derive(Clone, Copy, Debug)]
struct Predictor {
    remaining: f64,
    at: Instant,
    charged: i64,
    /// Measured refill per second. Negative if other clients take more than is refilled.
    refill_rate: f64,
    /// Mean absolute prediction error.
    mean_error: f64,
    samples: u32,
    /// Mean absolute prediction error of the samples that began with a nearly full budget.
    near_full_error: f64,
    near_full_samples: u32,
    /// Mean refill beyond a steady rate, and mean charge, of the samples that did not begin nearly
    /// full.
    mean_surplus: f64,
    mean_charged: f64,
    steady_samples: u32,
}

/// What the provider has left, as far as its reports show.
#[derive(Debug)]
pub(super) struct ProviderWindow {
    /// Predictors by counting rule and by time of measurement (request sent, response received).
    /// `None` until the first report.
    predictors: Option<[[Predictor; 2]; 4]>,
    rule: usize,
    /// Latest time at which the budget is full again if nothing is charged.
    full_at: Instant,
    /// Largest `remaining` reported.
    max_seen: f64,
    /// Estimate of the largest possible `remaining`: the limit at first, later a slowly decreasing
    /// maximum of the reports.
    max_remaining: f64,
    /// Time until which other clients are assumed to use the budget.
    shared_until: Option<Instant>,
    /// Lower bound on the assumed refill per second.
    min_refill_rate: f64,
    /// How often an announced reset refilled the budget minus how often it did not, from -4 to 4.
    reset_score: i8,
    /// The announced reset that is verified next.
    expected_reset: Option<Instant>,
    /// Time of the last 429. The provider may not have counted charges before it.
    last_refused_at: Option<Instant>,
    /// The rule that predicts best with its net number of wins, and the number of wins needed.
    candidate: (usize, u32),
    wins_needed: u32,
    distrusted_at: Option<Instant>,
}

impl ProviderWindow {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            predictors: None,
            rule: 0,
            full_at: now,
            max_seen: 0.0,
            max_remaining: 0.0,
            min_refill_rate: f64::MIN,
            shared_until: None,
            reset_score: 0,
            expected_reset: None,
            last_refused_at: None,
            candidate: (0, 0),
            wins_needed: MIN_WINS,
            distrusted_at: None,
        }
    }

    /// Forgets all reports, because the limit has changed.
    pub(super) fn clear(&mut self, now: Instant) {
        *self = Self {
            rule: self.rule,
            wins_needed: self.wins_needed,
            distrusted_at: self.distrusted_at,
            ..Self::new(now)
        };
    }

    /// Sets the counting rule.
    pub(super) fn assume_rule(&mut self, rule: usize) {
        self.rule = rule;
    }

    /// Returns the counting rule that predicts best, if it has been much better for long enough.
    pub(super) fn learned_rule(&mut self) -> Option<usize> {
        let predictors = self.predictors.as_ref()?;
        let near_full_error = |rule: usize| {
            predictors
                .get(rule)
                .map_or(f64::MAX, |[sent, received]| sent.near_full_error.min(received.near_full_error))
        };
        let near_full_samples = near_full_samples(predictors);
        let least = (0..LEARNABLE_RULES).map(near_full_error).fold(f64::MAX, f64::min);
        // Of rules that are about equally good, the first is chosen, because the rules are ordered
        // by descending cost.
        let best = (0..LEARNABLE_RULES).find(|rule| near_full_error(*rule) <= 1.2 * least)?;
        if near_full_samples < MIN_SAMPLES
            || near_full_error(best) >= MAX_ERROR_RATIO * near_full_error(self.rule)
        {
            self.candidate.1 = self.candidate.1.saturating_sub(1);
            return None;
        }
        let times = if self.candidate.0 == best { self.candidate.1 + 1 } else { 1 };
        self.candidate = (best, times);
        (times >= self.wins_needed).then_some(best)
    }

    /// Requires more evidence for the next rule, because a learned rule was followed by a refusal.
    pub(super) fn require_more_evidence(&mut self, now: Instant) {
        self.wins_needed = self.wins_needed.saturating_mul(4).min(MAX_WINS);
        self.candidate.1 = 0;
        self.distrusted_at = Some(now);
    }

    /// Reduces the required evidence after a time without refusals.
    pub(super) fn decay_evidence(&mut self, now: Instant) {
        if self.distrusted_at.is_some_and(|at| now.saturating_duration_since(at) >= EVIDENCE_DECAY) {
            self.wins_needed = (self.wins_needed / 4).max(MIN_WINS);
            self.distrusted_at = (self.wins_needed > MIN_WINS).then_some(now);
        }
    }

    /// Records a 429: the provider may not have counted the call.
    pub(super) fn on_refused(&mut self, now: Instant) {
        self.last_refused_at = Some(now);
    }

    /// Updates the predictors from a report.
    ///
    /// `rate` is the budget's rate per second, and `own_usage` the cost that this process charged
    /// within the last window.
    pub(super) fn on_report(
        &mut self,
        report: &Report,
        reset: Option<Duration>,
        rate: f64,
        limit: f64,
        window: Duration,
        own_usage: f64,
    ) {
        let now = report.received.0;
        let Some(mut predictors) = self.predictors else {
            let predictor = |(at, charged): (Instant, [i64; 4]), rule: usize| Predictor {
                remaining: report.remaining,
                at,
                charged: charged.get(rule).copied().unwrap_or(0),
                refill_rate: rate,
                mean_error: 0.0,
                samples: 0,
                near_full_error: 0.0,
                near_full_samples: 0,
                mean_surplus: 0.0,
                mean_charged: 0.0,
                steady_samples: 0,
            };
            self.predictors = Some(std::array::from_fn(|rule| {
                [predictor(report.sent, rule), predictor(report.received, rule)]
            }));
            return self.update_bounds(report, reset, limit, window, own_usage, now);
        };
        let (mut is_new, mut has_reset, before) =
            (false, false, self.predictor().map_or(limit, |predictor| predictor.remaining));
        for (rule, both) in predictors.iter_mut().enumerate() {
            for (predictor, (at, charged)) in both.iter_mut().zip([report.sent, report.received]) {
                let charged = charged.get(rule).copied().unwrap_or(0);
                let is_countable = self.last_refused_at.is_none_or(|refused| refused < predictor.at);
                let reset = predictor.update(report.remaining, at, charged, rate, limit, is_countable);
                is_new |= reset.is_some();
                has_reset |= reset == Some(true);
            }
        }
        self.predictors = Some(predictors);
        self.score_reset(report.sent.0, has_reset, limit - before > 0.1 * limit);
        // A response to a request sent before the one of the last report is outdated.
        if is_new {
            self.update_bounds(report, reset, limit, window, own_usage, now);
        }
    }

    /// Returns the latest time at which the budget is full again if nothing is charged.
    pub(super) fn full_at(&self) -> Instant {
        self.full_at
    }

    /// Updates the largest report, the next reset and the assumption about other clients.
    fn update_bounds(
        &mut self,
        report: &Report,
        reset: Option<Duration>,
        limit: f64,
        window: Duration,
        own_usage: f64,
        now: Instant,
    ) {
        self.max_seen = self.max_seen.max(report.remaining);
        let max_remaining = if self.max_remaining > 0.0 { self.max_remaining } else { limit };
        self.max_remaining =
            report.remaining.max(max_remaining + MAX_DECAY * (report.remaining - max_remaining));
        // Time to refill what is used, at the limit's own rate.
        let refill_time = seconds((limit - report.remaining) / limit * window.as_secs_f64());
        let reset =
            reset.map_or(window, |reset| if self.reset_score < 0 { reset.max(refill_time) } else { reset });
        // If resets proved wrong and nothing is in flight that would bring a report, a call must be
        // tried. A reset assumed slightly too late costs little; one assumed too early costs a 429.
        self.min_refill_rate =
            if self.reset_score < 0 { PROBE_REFILL * limit / window.as_secs_f64() } else { f64::MIN };
        let from = if self.counts_at_arrival() { report.sent.0 } else { now } + NETWORK_DELAY;
        self.full_at = from.checked_add(reset.min(window)).unwrap_or(from);
        self.expected_reset = self.expected_reset.or(Some(self.full_at));
        if limit - report.remaining > own_usage + 0.03 * limit {
            self.shared_until = now.checked_add(window);
        }
    }

    /// Scores whether the budget was full at the announced reset. Nothing is visible if little was
    /// used.
    fn score_reset(&mut self, sent: Instant, has_reset: bool, is_visible: bool) {
        let Some(expected_reset) = self.expected_reset else { return };
        if has_reset || sent.saturating_duration_since(expected_reset) > NETWORK_DELAY {
            self.expected_reset = None;
            if has_reset || is_visible {
                self.reset_score = (self.reset_score + if has_reset { 1 } else { -1 }).clamp(-4, 4);
            }
        }
    }

    /// Returns `true` if `remaining` is known to be measured when the request arrives.
    fn counts_at_arrival(&self) -> bool {
        let predictors = self.predictors.as_ref().and_then(|predictors| predictors.get(self.rule));
        predictors.is_some_and(|[sent, received]| {
            sent.samples >= MIN_SAMPLES && sent.mean_error < 0.7 * received.mean_error
        })
    }

    /// Removes a charge made at `then` for a call that never reached the provider.
    pub(super) fn on_refund(&mut self, then: Instant, cost: &[i64; 4]) {
        for (both, cost) in self.predictors.iter_mut().flatten().zip(cost) {
            for predictor in both.iter_mut().filter(|predictor| predictor.at >= then) {
                predictor.charged = predictor.charged.wrapping_sub(*cost);
            }
        }
    }

    /// Returns the cost that may be charged now. Returns `None` if nothing is known or if the
    /// budget is full again.
    pub(super) fn available(&self, now: Instant, charged: &[i64; 4], limit: f64) -> Option<f64> {
        if now >= self.full_at {
            return None;
        }
        let predictor = self.predictor()?;
        let refill_rate = predictor.refill_rate.max(self.min_refill_rate);
        let remaining = predictor.predict(now, charged.get(self.rule).copied().unwrap_or(0), refill_rate);
        Some(remaining.min(limit) - self.margin(now, limit))
    }

    /// Returns the part of the budget to leave unused because charges in flight may turn out
    /// higher.
    ///
    /// Returns `None` if that is unknown: reports are too old, other clients use the budget, or
    /// output is counted when it is generated, so that charges in flight are not counted yet.
    pub(super) fn uncertainty(
        &self,
        now: Instant,
        charged: &[i64; 4],
        limit: f64,
        exact: bool,
    ) -> Option<f64> {
        let predictor = self.predictor()?;
        if now.saturating_duration_since(predictor.at) > MAX_REPORT_AGE {
            return None;
        }
        if self.shared_until.is_some_and(|until| now < until) || predictor.is_shared() {
            return None;
        }
        if exact {
            return Some(0.0);
        }
        let in_flight = charged.get(self.rule).copied().unwrap_or(0).wrapping_sub(predictor.charged);
        let is_counted_at_arrival = self.rule < FIRST_LATE_RULE && self.is_rule_confirmed();
        is_counted_at_arrival.then(|| UNCERTAIN_FRACTION * limit + 0.2 * in_flight.max(0) as f64)
    }

    /// Returns `true` if samples confirm the assumed rule: the refill under it equals the rate, or
    /// no other rule predicts clearly better.
    fn is_rule_confirmed(&self) -> bool {
        let Some(predictors) = self.predictors.as_ref() else { return false };
        if self.predictor().is_some_and(|predictor| {
            predictor.steady_samples >= CONFIRMING_SAMPLES
                && predictor.mean_surplus.abs() <= 0.1 * predictor.mean_charged
        }) {
            return true;
        }
        let errors = || {
            predictors
                .iter()
                .take(LEARNABLE_RULES)
                .map(|[sent, received]| sent.near_full_error.min(received.near_full_error))
        };
        let near_full_samples = near_full_samples(predictors);
        let least = errors().fold(f64::MAX, f64::min);
        near_full_samples >= CONFIRMING_SAMPLES
            && errors().nth(self.rule).is_some_and(|error| error <= 1.2 * least)
    }

    /// Returns the earliest time, not before `now`, at which `cost` fits if nothing else is
    /// charged.
    pub(super) fn ready_at(&self, now: Instant, charged: &[i64; 4], limit: f64, cost: f64) -> Instant {
        let (Some(available), Some(predictor)) = (self.available(now, charged, limit), self.predictor())
        else {
            return now;
        };
        // A call larger than the provider ever reported is admitted when that maximum is available.
        let missing = cost.min(self.max_available(now, limit)) - available;
        if missing <= 0.0 {
            now
        } else if predictor.refill_rate.max(self.min_refill_rate) > 0.0 {
            after(now, missing / predictor.refill_rate.max(self.min_refill_rate)).min(self.full_at)
        } else {
            self.full_at
        }
    }

    /// Returns the largest cost that can become available. Larger calls are admitted when this much
    /// is available.
    pub(super) fn max_available(&self, now: Instant, limit: f64) -> f64 {
        (0.9 * self.max_remaining - self.margin(now, limit)).max(1.0)
    }

    /// Returns the part of the budget that is always left unused.
    fn margin(&self, now: Instant, limit: f64) -> f64 {
        let is_shared = self.shared_until.is_some_and(|until| now < until);
        let margin = if is_shared { SHARED_MARGIN } else { MARGIN };
        (margin * limit).min(0.25 * self.max_seen)
    }

    /// Returns the predictor of the assumed rule with the better time of measurement.
    fn predictor(&self) -> Option<&Predictor> {
        let [sent, received] = self.predictors.as_ref()?.get(self.rule)?;
        // The predictor of the sending time is the more cautious one, because it subtracts the
        // charges made since.
        Some(if received.samples >= MIN_SAMPLES && received.mean_error < 0.7 * sent.mean_error {
            received
        } else {
            sent
        })
    }
}

/// Returns the largest number of samples near the full budget that any predictor has.
fn near_full_samples(predictors: &[[Predictor; 2]; 4]) -> u32 {
    predictors.iter().flatten().map(|predictor| predictor.near_full_samples).max().unwrap_or(0)
}

impl Predictor {
    /// Returns `true` if the refill is clearly below the rate: other clients take part of it, or
    /// calls cost more than they are charged.
    fn is_shared(&self) -> bool {
        self.steady_samples >= CONFIRMING_SAMPLES && self.mean_surplus < -0.1 * self.mean_charged
    }

    /// Returns the predicted remaining budget at `now`.
    fn predict(&self, now: Instant, charged: i64, refill_rate: f64) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.remaining - charged.wrapping_sub(self.charged) as f64 + refill_rate * passed
    }

    /// Updates the prediction with the next report.
    ///
    /// Returns `None` if the report is older than the last one, otherwise whether the budget was
    /// reset in between.
    fn update(
        &mut self,
        remaining: f64,
        at: Instant,
        charged: i64,
        rate: f64,
        limit: f64,
        is_countable: bool,
    ) -> Option<bool> {
        let passed = at.checked_duration_since(self.at)?.as_secs_f64();
        if passed < MIN_SAMPLE_GAP {
            // Too soon to learn from, but a clearly smaller value is valid.
            if remaining < self.predict(at, charged, self.refill_rate) - 0.01 * limit {
                self.remaining = remaining;
                self.charged = charged;
                self.at = at;
            }
            return Some(false);
        }
        let spent = charged.wrapping_sub(self.charged) as f64;
        let refilled = remaining - self.remaining + spent;
        let has_reset = refilled > 1.5 * rate * passed + 0.05 * limit;
        if !has_reset && is_countable {
            // The refill stops at the limit, before the charges are subtracted.
            let predicted = (self.remaining + self.refill_rate * passed).min(limit) - spent;
            let error = (predicted - remaining).abs();
            let weight = (1.0 / f64::from(self.samples.saturating_add(1))).max(ERROR_WEIGHT);
            self.mean_error += weight * (error - self.mean_error);
            self.samples = self.samples.saturating_add(1);
            if self.remaining > NEAR_FULL * limit {
                let weight = (1.0 / f64::from(self.near_full_samples.saturating_add(1))).max(ERROR_WEIGHT);
                self.near_full_error += weight * (error - self.near_full_error);
                self.near_full_samples = self.near_full_samples.saturating_add(1);
            }
            if self.remaining.max(remaining) < 0.9 * limit && remaining > 0.0 {
                let weight = (1.0 / f64::from(self.steady_samples.saturating_add(1))).max(ERROR_WEIGHT);
                self.mean_surplus += weight * (refilled - rate * passed - self.mean_surplus);
                self.mean_charged += weight * (spent - self.mean_charged);
                self.steady_samples = self.steady_samples.saturating_add(1);
            }
            let weight = 1.0 - (-passed / REFILL_TIME_CONSTANT).exp();
            // A nearly full budget is not refilled, whatever its rate.
            let refill_rate =
                if remaining > 0.9 * limit { rate } else { (refilled / passed).clamp(-rate, rate) };
            self.refill_rate += weight * (refill_rate - self.refill_rate);
        }
        (self.remaining, self.at, self.charged) = (remaining, at, charged);
        Some(has_reset)
    }
}
