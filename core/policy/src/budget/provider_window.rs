//! Predicts how much of a limit a provider has left now, from the `remaining` values of its
//! response headers.
//!
//! All amounts are requests or tokens, depending on what the limit counts.
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

use super::counting::PerRule;
use tidegate_share::rates::{after, seconds};

/// Time constant of the exponential smoothing of the measured refill rate, in seconds.
const REFILL_TIME_CONSTANT: f64 = 8.0;
/// Minimum time, in seconds, between two reports that are used to measure the refill rate. Over
/// shorter times, rounding in the headers hides the rate.
const MIN_SAMPLE_GAP: f64 = 0.25;
/// Number of samples (pairs of successive reports) after which another counting rule, or another
/// time of measurement, may be adopted.
const MIN_SAMPLES: u32 = 40;
/// Fraction of the limit above which a `remaining` value counts as nearly full. A nearly full
/// budget refills at the whole rate, so the difference to the limit shows how calls are counted.
const NEAR_FULL: f64 = 0.8;
/// A predictor replaces another one only if its prediction error is below this fraction of the
/// other one's error.
const MAX_ERROR_RATIO: f64 = 0.7;
/// Number of wins after which a counting rule is adopted. A rule wins with each report after which
/// its mean error is clearly below that of the rule in use, and loses one win with each other
/// report.
const MIN_WINS: u32 = 30;
/// Maximum number of times that [`MIN_WINS`] is multiplied by 4. Each 429 under a learned counting
/// rule adds a factor, and each [`EVIDENCE_DECAY`] without such a 429 removes one.
const MAX_DISTRUST: u32 = 3;
/// Time without a 429 under a learned counting rule after which the number of wins that a new rule
/// needs is divided by 4.
const EVIDENCE_DECAY: Duration = Duration::from_secs(1_800);
/// Weight with which a reported `remaining` below the estimated maximum of `remaining` lowers that
/// estimate.
const MAX_REMAINING_DECAY: f64 = 0.02;
/// Minimum refill per window, as a fraction of the limit, that is assumed if announced resets did
/// not refill the budget.
const PROBE_REFILL: f64 = 0.25;
/// Assumed time from sending a request to its arrival at the provider.
const NETWORK_DELAY: Duration = Duration::from_millis(250);
/// Number of counting rules, from the first of [`RULES`](super::counting::RULES), that can be
/// learned. Providers that use the last one, which counts only input, send no headers.
const LEARNABLE_RULES: usize = 3;
/// Minimum number of samples that confirm the counting rule in use. It is lower than the number for
/// a change of the rule.
const CONFIRMING_SAMPLES: u32 = MIN_SAMPLES / 2;
/// Index of the first counting rule that counts output tokens when they are generated. The rules
/// before it count all tokens when the request arrives.
const FIRST_LATE_RULE: usize = 2;
/// Fraction of the limit by which the predicted amount may be too high, in addition to a fifth of
/// the charges in flight, if the provider counts each call when it arrives.
const UNCERTAIN_FRACTION: f64 = 0.03;
/// Age of the last report above which its prediction is too uncertain to boost the rate of charges
/// (see `quota.rs`).
const MAX_REPORT_AGE: Duration = Duration::from_secs(30);
/// Minimum weight of the newest value in a [`Mean`].
const MIN_WEIGHT: f64 = 0.03;
/// Fraction of the limit that is never used, as a safety margin.
const MARGIN: f64 = 0.005;
/// Fraction of the limit that is not used as a safety margin while other clients use the same
/// limit. It is larger than [`MARGIN`], because their use is reported late.
const OUTSIDERS_MARGIN: f64 = 0.05;
/// Fraction of the limit that must be missing beyond what is known to be used, before others are
/// assumed to use the limit.
const UNEXPLAINED_FRACTION: f64 = 0.03;

/// A point in time, and the total that was charged until then under each counting rule.
pub(super) type ChargedAt = (Instant, PerRule);

/// A `remaining` value of a response, with the state of the budget at that time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) remaining: f64,
    /// Time from the response until the budget is full again. `None` if the response did not
    /// announce it.
    pub(super) reset: Option<Duration>,
    /// Time at which the request was sent, and the total charged until then, including this
    /// request.
    pub(super) sent: ChargedAt,
    /// Time at which the response was received, and the total charged until then.
    pub(super) received: ChargedAt,
    pub(super) limit: f64,
    pub(super) window: Duration,
    /// The limit, in requests or tokens per second.
    pub(super) rate: f64,
    /// Amount that this process charged within the last window.
    pub(super) own_usage: f64,
    /// The largest amount that all processes which share the limit may have charged within the last
    /// window. Infinite if it is not known yet.
    pub(super) all_usage: f64,
}

/// A running mean in which each new value has at least the weight [`MIN_WEIGHT`].
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    value: f64,
    samples: u32,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.samples = self.samples.saturating_add(1);
        self.value += (1.0 / f64::from(self.samples)).max(MIN_WEIGHT) * (value - self.value);
    }
}

/// Predicts `remaining` under one counting rule and one assumption about when the provider measures
/// it: when the request arrives, or when it responds.
#[derive(Clone, Copy, Debug)]
struct Predictor {
    remaining: f64,
    at: Instant,
    charged: i64,
    /// Measured refill per second. Negative if other clients use more than is refilled.
    refill_rate: f64,
    /// Mean absolute difference between predicted and reported `remaining`.
    error: Mean,
    /// Mean absolute difference between predicted and reported `remaining`, over samples that began
    /// above [`NEAR_FULL`] of the limit.
    near_full_error: Mean,
    /// Mean difference between the measured refill of a sample and the refill at the limit's rate,
    /// over samples below 90 % of the limit.
    surplus: Mean,
    /// Mean amount charged during a sample, over the samples that `surplus` includes.
    spent: Mean,
}

/// The state of one limit at the provider, as predicted from the provider's reports.
#[derive(Debug, Default)]
pub(super) struct ProviderWindow {
    /// The predictors of each counting rule: one that assumes measurement when the request is sent,
    /// and one when the response is received. `None` until the first report.
    predictors: Option<[[Predictor; 2]; 4]>,
    /// Index of the counting rule in use, in [`RULES`](super::counting::RULES).
    pub(super) rule: usize,
    /// When the budget is full again at the latest if nothing is charged. `None` until the first
    /// report.
    pub(super) full_at: Option<Instant>,
    /// Largest `remaining` value reported.
    max_seen: f64,
    /// Estimate of the largest possible `remaining` value: a slowly decreasing maximum of the
    /// reports that starts at the limit. 0 until the first report.
    max_remaining: f64,
    /// Time until which others are assumed to use the limit: processes that share it, or other
    /// clients. `None` if no report has shown any.
    used_by_others_until: Option<Instant>,
    /// Time until which clients are assumed to use the limit that do not share it. `None` if no
    /// report has shown any.
    outsiders_until: Option<Instant>,
    /// Lower bound on the assumed refill per second. `None` unless announced resets proved wrong.
    min_refill_rate: Option<f64>,
    /// Number of announced resets that refilled the budget minus those that did not, from -4 to 4.
    reset_score: i8,
    /// Time of the next expected reset. Later reports show whether it refilled the budget. `None`
    /// if no reset is expected.
    expected_reset: Option<Instant>,
    /// Time of the last 429. Samples that began before it are not used, because the provider may
    /// not have counted the rejected calls. `None` if there was no 429.
    pub(super) last_refused_at: Option<Instant>,
    /// Index of the counting rule that may replace the one in use, and its number of wins, which
    /// must reach [`MIN_WINS`].
    candidate: (usize, u32),
    /// How often [`MIN_WINS`] is multiplied by 4, from 0 to [`MAX_DISTRUST`].
    distrust: u32,
    distrusted_at: Option<Instant>,
}

impl ProviderWindow {
    /// Removes all reports because the limit has changed. Keeps the counting rule in use, and how
    /// many wins another rule needs to replace it.
    pub(super) fn clear(&mut self) {
        let Self { rule, distrust, distrusted_at, .. } = *self;
        *self = Self { rule, distrust, distrusted_at, ..Self::default() };
    }

    /// Updates the evidence for another counting rule. Returns the index of that rule if it has
    /// predicted much better than the rule in use for long enough, otherwise `None`.
    pub(super) fn learned_rule(&mut self) -> Option<usize> {
        let (errors, least, samples) = self.near_full_errors()?;
        // Of rules that are about equally good, the first is chosen, because the rules are ordered
        // by descending cost.
        let (best, error) = errors.into_iter().enumerate().find(|(_, error)| *error <= 1.2 * least)?;
        if samples < MIN_SAMPLES || error >= MAX_ERROR_RATIO * errors[self.rule] {
            self.candidate.1 = self.candidate.1.saturating_sub(1);
            return None;
        }
        let times = if self.candidate.0 == best { self.candidate.1 + 1 } else { 1 };
        self.candidate = (best, times);
        (times >= MIN_WINS << (2 * self.distrust)).then_some(best)
    }

    /// Returns the mean prediction error of each counting rule near the full budget, the smallest
    /// error of a learnable rule, and the number of samples. `None` until the first report.
    fn near_full_errors(&self) -> Option<([f64; 4], f64, u32)> {
        let predictors = self.predictors.as_ref()?;
        let errors =
            predictors.map(|[sent, received]| sent.near_full_error.value.min(received.near_full_error.value));
        let least = errors.iter().copied().take(LEARNABLE_RULES).fold(f64::MAX, f64::min);
        let samples = predictors.iter().flatten().map(|predictor| predictor.near_full_error.samples).max()?;
        Some((errors, least, samples))
    }

    /// Multiplies the wins that a new counting rule needs by 4, because a 429 followed a learned
    /// rule.
    pub(super) fn require_more_evidence(&mut self, now: Instant) {
        self.distrust = (self.distrust + 1).min(MAX_DISTRUST);
        self.candidate.1 = 0;
        self.distrusted_at = Some(now);
    }

    /// Divides the wins that a new counting rule needs by 4 if [`EVIDENCE_DECAY`] has passed since
    /// the last such division and since the last 429 under a learned rule.
    pub(super) fn decay_evidence(&mut self, now: Instant) {
        if self.distrusted_at.is_some_and(|at| now.saturating_duration_since(at) >= EVIDENCE_DECAY) {
            self.distrust = self.distrust.saturating_sub(1);
            self.distrusted_at = (self.distrust > 0).then_some(now);
        }
    }

    /// Updates the predictors from a report. A predictor ignores a report that was measured before
    /// its last one.
    pub(super) fn on_report(&mut self, report: &Report) {
        let measured = [report.sent, report.received];
        let Some(mut predictors) = self.predictors else {
            let new = |rule| measured.map(|(at, charged)| Predictor::new(report, at, charged[rule]));
            self.predictors = Some(std::array::from_fn(new));
            return self.update_bounds(report);
        };
        let limit = report.limit;
        let before = self.predictor().map_or(limit, |predictor| predictor.remaining);
        let (mut is_new, mut has_reset) = (false, false);
        for (rule, both) in predictors.iter_mut().enumerate() {
            for (predictor, (at, charged)) in both.iter_mut().zip(measured) {
                let is_countable = self.last_refused_at.is_none_or(|refused| refused < predictor.at);
                let reset = predictor.update(report, at, charged[rule], is_countable);
                is_new |= reset.is_some();
                has_reset |= reset == Some(true);
            }
        }
        self.predictors = Some(predictors);
        self.score_reset(report.sent.0, has_reset, limit - before > 0.1 * limit);
        // A response to a request sent before the one of the last report is outdated.
        if is_new {
            self.update_bounds(report);
        }
    }

    /// Updates the values that do not depend on a counting rule: the maximum of `remaining`, the
    /// next reset, and whether other clients use the limit.
    fn update_bounds(&mut self, report: &Report) {
        let Report { remaining, limit, window, .. } = *report;
        let now = report.received.0;
        self.max_seen = self.max_seen.max(remaining);
        let max_remaining = if self.max_remaining > 0.0 { self.max_remaining } else { limit };
        self.max_remaining = remaining.max(max_remaining + MAX_REMAINING_DECAY * (remaining - max_remaining));
        // Time to refill what is used, at the limit's own rate.
        let refill_time = seconds((limit - remaining) / limit * window.as_secs_f64());
        let is_wrong = self.reset_score < 0;
        let corrected = |reset: Duration| if is_wrong { reset.max(refill_time) } else { reset };
        let reset = report.reset.map_or(window, corrected);
        // If resets proved wrong and nothing is in flight that would bring a report, a call must be
        // tried. A reset assumed slightly too late costs little; one assumed too early costs a 429.
        self.min_refill_rate = is_wrong.then(|| PROBE_REFILL * limit / window.as_secs_f64());
        let from = if self.counts_at_arrival() { report.sent.0 } else { now } + NETWORK_DELAY;
        self.full_at = Some(from.checked_add(reset.min(window)).unwrap_or(from));
        self.expected_reset = self.expected_reset.or(self.full_at);
        let exceeds = |usage: f64| limit - remaining > usage + UNEXPLAINED_FRACTION * limit;
        if exceeds(report.own_usage) {
            self.used_by_others_until = now.checked_add(window);
        }
        if exceeds(report.all_usage) {
            self.outsiders_until = now.checked_add(window);
        }
    }

    /// Updates `reset_score` and forgets the expected reset once it is decided whether it took
    /// place. `has_reset` is `true` if the last report showed a reset, and `sent` is when its
    /// request was sent. `is_visible` is `false` if so little was used before that a reset cannot
    /// be seen.
    fn score_reset(&mut self, sent: Instant, has_reset: bool, is_visible: bool) {
        let Some(expected_reset) = self.expected_reset else { return };
        if has_reset || sent.saturating_duration_since(expected_reset) > NETWORK_DELAY {
            self.expected_reset = None;
            if has_reset || is_visible {
                self.reset_score = (self.reset_score + if has_reset { 1 } else { -1 }).clamp(-4, 4);
            }
        }
    }

    /// Returns `true` if the reports show that `remaining` is measured when the request arrives.
    fn counts_at_arrival(&self) -> bool {
        self.predictors.is_some_and(|predictors| {
            let [sent, received] = predictors[self.rule];
            sent.is_clearly_better(&received)
        })
    }

    /// Subtracts a charge made at `then` from the predictors, because the call was never sent.
    pub(super) fn on_refund(&mut self, then: Instant, cost: &PerRule) {
        for (both, cost) in self.predictors.iter_mut().flatten().zip(cost) {
            for predictor in both.iter_mut().filter(|predictor| predictor.at >= then) {
                predictor.charged = predictor.charged.wrapping_sub(*cost);
            }
        }
    }

    /// Returns the amount that may be charged now. Negative if too much was charged. `None` if the
    /// reports do not limit it: there was none, or the budget has been full again since the last
    /// one.
    pub(super) fn available(&self, now: Instant, charged: &PerRule, limit: f64) -> Option<f64> {
        if now >= self.full_at? {
            return None;
        }
        let predictor = self.predictor()?;
        let refill_rate = self.refill_rate(predictor);
        let remaining = predictor.predict(now, charged[self.rule], refill_rate);
        Some(remaining.min(limit) - self.margin(now, limit))
    }

    /// Returns how far the predicted amount may be too high, because the charges in flight are
    /// estimates. `exact` is `true` for requests, which are counted exactly.
    ///
    /// Returns `None` if the error is unknown: the last report is older than [`MAX_REPORT_AGE`],
    /// others use the limit, or the provider counts output when it is generated.
    pub(super) fn max_error(&self, now: Instant, charged: &PerRule, limit: f64, exact: bool) -> Option<f64> {
        let predictor = self.predictor()?;
        let is_old = now.saturating_duration_since(predictor.at) > MAX_REPORT_AGE;
        if is_old || self.is_used_by_others(now) || predictor.is_shared() {
            return None;
        }
        if exact {
            return Some(0.0);
        }
        let in_flight = charged[self.rule].wrapping_sub(predictor.charged);
        let is_counted_at_arrival = self.rule < FIRST_LATE_RULE && self.is_rule_confirmed();
        is_counted_at_arrival.then(|| UNCERTAIN_FRACTION * limit + 0.2 * in_flight.max(0) as f64)
    }

    /// Returns `true` if the reports confirm the counting rule in use: the refill under this rule
    /// equals the limit's rate, or no other rule predicts clearly better.
    fn is_rule_confirmed(&self) -> bool {
        let fits = |predictor: &Predictor| {
            predictor.surplus.samples >= CONFIRMING_SAMPLES
                && predictor.surplus.value.abs() <= 0.1 * predictor.spent.value
        };
        self.predictor().is_some_and(fits)
            || self.near_full_errors().is_some_and(|(errors, least, samples)| {
                samples >= CONFIRMING_SAMPLES && errors[self.rule] <= 1.2 * least
            })
    }

    /// Returns the earliest time, not before `now`, at which `cost` is available if nothing else is
    /// charged.
    pub(super) fn ready_at(&self, now: Instant, charged: &PerRule, limit: f64, cost: f64) -> Instant {
        let (Some(available), Some(predictor), Some(full_at)) =
            (self.available(now, charged, limit), self.predictor(), self.full_at)
        else {
            return now;
        };
        // A call larger than the provider ever reported is admitted when that maximum is available.
        let missing = cost.min(self.max_available(now, limit)) - available;
        let refill_rate = self.refill_rate(predictor);
        if missing <= 0.0 {
            now
        } else if refill_rate > 0.0 {
            after(now, missing / refill_rate).min(full_at)
        } else {
            full_at
        }
    }

    /// Returns the largest amount that can become available, at least 1. Larger calls are admitted
    /// when this amount is available.
    pub(super) fn max_available(&self, now: Instant, limit: f64) -> f64 {
        (0.9 * self.max_remaining - self.margin(now, limit)).max(1.0)
    }

    /// Returns the amount that is never used, as a safety margin.
    fn margin(&self, now: Instant, limit: f64) -> f64 {
        let has_outsiders = self.outsiders_until.is_some_and(|until| now < until);
        // Rounded down, because a part of a request would cost a whole one: the tenth of ten per
        // minute.
        let margin = if has_outsiders { OUTSIDERS_MARGIN * limit } else { (MARGIN * limit).floor() };
        margin.min(0.25 * self.max_seen)
    }

    /// Returns `true` if others are assumed to use the limit at `now`.
    fn is_used_by_others(&self, now: Instant) -> bool {
        self.used_by_others_until.is_some_and(|until| now < until)
    }

    /// Returns the refill per second that the predictor measured, or the assumed lower bound if
    /// that is more.
    fn refill_rate(&self, predictor: &Predictor) -> f64 {
        self.min_refill_rate.map_or(predictor.refill_rate, |min| predictor.refill_rate.max(min))
    }

    /// Returns the more accurate of the two predictors of the counting rule in use. `None` until
    /// the first report.
    fn predictor(&self) -> Option<&Predictor> {
        let [sent, received] = &self.predictors.as_ref()?[self.rule];
        // The predictor of the sending time is the more cautious one, because it subtracts the
        // charges made since.
        Some(if received.is_clearly_better(sent) { received } else { sent })
    }
}

impl Predictor {
    fn new(report: &Report, at: Instant, charged: i64) -> Self {
        Self {
            remaining: report.remaining,
            at,
            charged,
            refill_rate: report.rate,
            error: Mean::default(),
            near_full_error: Mean::default(),
            surplus: Mean::default(),
            spent: Mean::default(),
        }
    }

    /// Returns `true` if this predictor has enough samples, and at most [`MAX_ERROR_RATIO`] of the
    /// error of `other`.
    fn is_clearly_better(&self, other: &Self) -> bool {
        self.error.samples >= MIN_SAMPLES && self.error.value < MAX_ERROR_RATIO * other.error.value
    }

    /// Returns `true` if clearly less was refilled than the limit's rate: other clients use the
    /// limit, or calls are counted higher than they are charged here.
    fn is_shared(&self) -> bool {
        self.surplus.samples >= CONFIRMING_SAMPLES && self.surplus.value < -0.1 * self.spent.value
    }

    /// Returns the predicted `remaining` at `now`, given the total that was charged until then.
    fn predict(&self, now: Instant, charged: i64, refill_rate: f64) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.remaining - charged.wrapping_sub(self.charged) as f64 + refill_rate * passed
    }

    /// Replaces the last report by a report that was measured at `at`. Also learns from the
    /// difference between the two, unless `is_countable` is `false`.
    ///
    /// Returns `Some(true)` if more was refilled in between than the rate explains, because the
    /// window was reset, and otherwise `Some(false)`. Returns `None` if the report was measured
    /// before the last one.
    fn update(&mut self, report: &Report, at: Instant, charged: i64, is_countable: bool) -> Option<bool> {
        let Report { remaining, limit, rate, .. } = *report;
        let passed = at.checked_duration_since(self.at)?.as_secs_f64();
        if passed < MIN_SAMPLE_GAP {
            // Too soon to learn from, but a clearly smaller value is valid.
            if remaining < self.predict(at, charged, self.refill_rate) - 0.01 * limit {
                (self.remaining, self.at, self.charged) = (remaining, at, charged);
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
            self.error.add(error);
            if self.remaining > NEAR_FULL * limit {
                self.near_full_error.add(error);
            }
            if self.remaining.max(remaining) < 0.9 * limit && remaining > 0.0 {
                self.surplus.add(refilled - rate * passed);
                self.spent.add(spent);
            }
            let weight = 1.0 - (-passed / REFILL_TIME_CONSTANT).exp();
            // A nearly full budget is not refilled, whatever its rate.
            let refill = if remaining > 0.9 * limit { rate } else { (refilled / passed).clamp(-rate, rate) };
            self.refill_rate += weight * (refill - self.refill_rate);
        }
        (self.remaining, self.at, self.charged) = (remaining, at, charged);
        Some(has_reset)
    }
}
