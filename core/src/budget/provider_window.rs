//! What the provider's own books show, as told in `remaining`.
//!
//! A `remaining` is old when it comes: other calls were charged meanwhile, other clients were served, and some of the budget came back. What
//! the provider has now is worked out from what it said, from what was charged since, and from what comes back a second. That last figure is
//! measured, between one answer and the next, and not taken from the limit: a bucket that fills steadily gives the whole rate, a window that
//! opens again by the clock gives nothing until it does, and other clients of the same key take theirs out of either. So one rule serves them
//! all (a Smith predictor: control by a model that what was measured late corrects).
//!
//! Two things about a provider are not known and are found out by which of the possibilities foretells its next figure best: by which rule it
//! counts a call, and whether the figure is of the moment when the request came or when it was answered.

use std::time::{Duration, Instant};

use super::token_bucket::{after, seconds};

/// How fast what comes back is learned: the weight of the past falls to a third in so many seconds.
const REFILL_TIME_CONSTANT: f64 = 8.0;
/// Closer together than this, two answers say more about rounding than about a rate.
const MIN_SAMPLE_GAP: f64 = 0.25;
/// Surprises after which a rule may be replaced by one that foretells much better.
const MIN_SAMPLES: u32 = 40;
/// The share of the limit from which on a budget is nearly full: there, what comes back is known to be the whole rate, and what is missing
/// is what was counted.
const NEAR_FULL: f64 = 0.8;
/// How much smaller its error must be.
const MAX_ERROR_RATIO: f64 = 0.7;
/// And it must have foretold better so many times more than not.
const MIN_WINS: u32 = 30;
/// The most that is asked for after refusals, each of which makes it four times as many; a quarter of it, each time that so long nothing was.
const MAX_WINS: u32 = 64 * MIN_WINS;
const EVIDENCE_DECAY: Duration = Duration::from_secs(1_800);
/// How much smaller figures, one after the other, lower what is taken to be the most there can be.
const MAX_DECAY: f64 = 0.02;
/// The share of the limit that is taken to come back where the resets mean something else.
const PROBE_REFILL: f64 = 0.25;
/// What a request may take on its way.
const NETWORK_DELAY: Duration = Duration::from_millis(250);
/// The first so many rules may be learned. Providers that count input only send no headers.
const LEARNABLE_RULES: usize = 3;
/// So many surprises bear a rule out; to replace one takes more.
const CONFIRMING_SAMPLES: u32 = MIN_SAMPLES / 2;
/// Of those, the first that counts output when it is made.
const FIRST_LATE_RULE: usize = 2;
/// The share of a limit that is left alone where every call is counted at arrival, beside a fifth of what is under way.
const UNCERTAIN_FRACTION: f64 = 0.03;
/// Figures that are older say too little of now.
const MAX_REPORT_AGE: Duration = Duration::from_secs(30);
/// How much of the newest error goes into the mean.
const ERROR_WEIGHT: f64 = 0.03;
/// The share of the limit that is left alone. The second, while others use the budget too: what they take is not seen until later.
const MARGIN: f64 = 0.005;
const SHARED_MARGIN: f64 = 0.05;

/// One answer about a budget, as it concerns the books of one rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) remaining: f64,
    /// When the request was sent, and what had been charged by then, the request included, by each rule.
    pub(super) sent: (Instant, [i64; 4]),
    /// The same of the answer.
    pub(super) received: (Instant, [i64; 4]),
}

/// The last figure, and what it makes of the next.
#[derive(Clone, Copy, Debug)]
struct Predictor {
    remaining: f64,
    at: Instant,
    charged: i64,
    /// What comes back a second: below zero where others take more than comes back.
    refill_rate: f64,
    /// The mean error of what was foretold.
    mean_error: f64,
    samples: u32,
    /// The same of those that began with the budget nearly full.
    near_full_error: f64,
    near_full_samples: u32,
    /// Of those that did not: by how much more came back than a steady rate brings, beside what was charged meanwhile. In the mean.
    mean_surplus: f64,
    mean_charged: f64,
    steady_samples: u32,
}

/// What the provider has, as far as it said.
#[derive(Debug)]
pub(super) struct ProviderWindow {
    /// By rule, and by whether the figure is of the sending or of the answer. Nothing is believed before the first answer.
    predictors: Option<[[Predictor; 2]; 4]>,
    rule: usize,
    /// The last moment at which the budget is whole again if nobody takes of it.
    full_at: Instant,
    /// The largest figure seen.
    max_seen: f64,
    /// What is taken to be all there can be: the limit at first, and in the end the largest of the last figures.
    max_remaining: f64,
    /// Until when others are taken to be using it.
    shared_until: Option<Instant>,
    /// The least that is taken to come back a second.
    min_refill_rate: f64,
    /// How often a reset was seen to make it whole, less how often not.
    reset_score: i8,
    /// The moment of the next one to be judged.
    expected_reset: Option<Instant>,
    /// The last refusal: what was charged before it may not have been counted.
    last_refused_at: Option<Instant>,
    /// The rule that has foretold better so many times more than not, and how many it takes.
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

    /// Forgets it all: the limit is another.
    pub(super) fn clear(&mut self, now: Instant) {
        *self = Self {
            rule: self.rule,
            wins_needed: self.wins_needed,
            distrusted_at: self.distrusted_at,
            ..Self::new(now)
        };
    }

    /// Starts from another rule: of several only where it may be learned.
    pub(super) fn assume_rule(&mut self, rule: usize) {
        self.rule = rule;
    }

    /// The rule that foretells best, where it is clear which: much better, and for a good while.
    pub(super) fn learned_rule(&mut self) -> Option<usize> {
        let predictors = self.predictors.as_ref()?;
        let near_full_error = |rule: usize| {
            predictors
                .get(rule)
                .map_or(f64::MAX, |[sent, received]| sent.near_full_error.min(received.near_full_error))
        };
        let near_full_samples = near_full_samples(predictors);
        let least = (0..LEARNABLE_RULES).map(near_full_error).fold(f64::MAX, f64::min);
        // The first that is about as good: the dearest stands first.
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

    /// The rule that was learned was followed by a refusal: the next needs more to show for it.
    pub(super) fn require_more_evidence(&mut self, now: Instant) {
        self.wins_needed = self.wins_needed.saturating_mul(4).min(MAX_WINS);
        self.candidate.1 = 0;
        self.distrusted_at = Some(now);
    }

    /// Nothing was refused: what distrust asks for more falls with time.
    pub(super) fn decay_evidence(&mut self, now: Instant) {
        if self.distrusted_at.is_some_and(|at| now.saturating_duration_since(at) >= EVIDENCE_DECAY) {
            self.wins_needed = (self.wins_needed / 4).max(MIN_WINS);
            self.distrusted_at = (self.wins_needed > MIN_WINS).then_some(now);
        }
    }

    /// A call was refused, and may not have been counted.
    pub(super) fn on_refused(&mut self, now: Instant) {
        self.last_refused_at = Some(now);
    }

    /// Takes an answer. `rate` and `limit` are the budget's; `own_usage` what we charged in the last window.
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
        // An answer to a request that was sent before the last one's says nothing new.
        if is_new {
            self.update_bounds(report, reset, limit, window, own_usage, now);
        }
    }

    /// When it is whole again at the latest, if nobody takes of it.
    pub(super) fn full_at(&self) -> Instant {
        self.full_at
    }

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
        // At the limit's own rate, what is used comes back within this.
        let refill_time = seconds((limit - report.remaining) / limit * window.as_secs_f64());
        let reset =
            reset.map_or(window, |reset| if self.reset_score < 0 { reset.max(refill_time) } else { reset });
        // A moment late costs little, a moment early is a refusal.
        // Where nothing says when it is whole again, and nothing is under way that would bring an answer, it must be tried.
        self.min_refill_rate =
            if self.reset_score < 0 { PROBE_REFILL * limit / window.as_secs_f64() } else { f64::MIN };
        let from = if self.counts_at_arrival() { report.sent.0 } else { now } + NETWORK_DELAY;
        self.full_at = from.checked_add(reset.min(window)).unwrap_or(from);
        self.expected_reset = self.expected_reset.or(Some(self.full_at));
        if limit - report.remaining > own_usage + 0.03 * limit {
            self.shared_until = now.checked_add(window);
        }
    }

    /// Whether the budget was whole again when the reset said so. Where little is used nothing shows.
    fn score_reset(&mut self, sent: Instant, has_reset: bool, is_visible: bool) {
        let Some(expected_reset) = self.expected_reset else { return };
        if has_reset || sent.saturating_duration_since(expected_reset) > NETWORK_DELAY {
            self.expected_reset = None;
            if has_reset || is_visible {
                self.reset_score = (self.reset_score + if has_reset { 1 } else { -1 }).clamp(-4, 4);
            }
        }
    }

    /// Whether the figures are known to be of the moment when the request came.
    fn counts_at_arrival(&self) -> bool {
        let predictors = self.predictors.as_ref().and_then(|predictors| predictors.get(self.rule));
        predictors.is_some_and(|[sent, received]| {
            sent.samples >= MIN_SAMPLES && sent.mean_error < 0.7 * received.mean_error
        })
    }

    /// A call that was charged at `then` never came to the provider: answers to later ones did not count it.
    pub(super) fn on_refund(&mut self, then: Instant, cost: &[i64; 4]) {
        for (both, cost) in self.predictors.iter_mut().flatten().zip(cost) {
            for predictor in both.iter_mut().filter(|predictor| predictor.at >= then) {
                predictor.charged = predictor.charged.wrapping_sub(*cost);
            }
        }
    }

    /// What may be taken, of what the provider is believed to have; `None` where nothing is known, or it is whole again.
    pub(super) fn available(&self, now: Instant, charged: &[i64; 4], limit: f64) -> Option<f64> {
        if now >= self.full_at {
            return None;
        }
        let predictor = self.predictor()?;
        let refill_rate = predictor.refill_rate.max(self.min_refill_rate);
        let remaining = predictor.predict(now, charged.get(self.rule).copied().unwrap_or(0), refill_rate);
        Some(remaining.min(limit) - self.margin(now, limit))
    }

    /// How much of the limit is better left to what the figures do not show: what is under way may turn out dearer. `None`: nobody can tell. Nothing recent is known,
    /// others use it too, or output is counted as it is made, or may be: then what is under way was not counted yet.
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

    /// Whether figures have borne out the rule that is assumed: with it what comes back is the rate, or no other foretells clearly better.
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

    /// When there is room for so much, if nothing else is charged: `now`, or later.
    pub(super) fn ready_at(&self, now: Instant, charged: &[i64; 4], limit: f64, cost: f64) -> Instant {
        let (Some(available), Some(predictor)) = (self.available(now, charged, limit), self.predictor())
        else {
            return now;
        };
        // One that is larger than what the provider ever showed goes when that is there.
        let missing = cost.min(self.max_available(now, limit)) - available;
        if missing <= 0.0 {
            now
        } else if predictor.refill_rate.max(self.min_refill_rate) > 0.0 {
            after(now, missing / predictor.refill_rate.max(self.min_refill_rate)).min(self.full_at)
        } else {
            self.full_at
        }
    }

    /// The largest room there has been: a call that is larger goes when that much is there.
    pub(super) fn max_available(&self, now: Instant, limit: f64) -> f64 {
        (0.9 * self.max_remaining - self.margin(now, limit)).max(1.0)
    }

    fn margin(&self, now: Instant, limit: f64) -> f64 {
        let is_shared = self.shared_until.is_some_and(|until| now < until);
        let margin = if is_shared { SHARED_MARGIN } else { MARGIN };
        (margin * limit).min(0.25 * self.max_seen)
    }

    fn predictor(&self) -> Option<&Predictor> {
        let [sent, received] = self.predictors.as_ref()?.get(self.rule)?;
        // The sending's is the more careful of the two: what was charged since is taken off.
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
    /// Whether clearly less comes back than what a steady rate brings: somebody else takes it, or calls cost more than they are charged.
    fn is_shared(&self) -> bool {
        self.steady_samples >= CONFIRMING_SAMPLES && self.mean_surplus < -0.1 * self.mean_charged
    }

    fn predict(&self, now: Instant, charged: i64, refill_rate: f64) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.remaining - charged.wrapping_sub(self.charged) as f64 + refill_rate * passed
    }

    /// Takes the next figure. `None`: it is older than the last; else, whether the budget has opened again meanwhile.
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
            // Too soon to learn from, but a figure that is clearly smaller holds.
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
            // What came back before it was full, and then what was taken.
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
            // A budget that is nearly full takes nothing back, whatever its rate.
            let refill_rate =
                if remaining > 0.9 * limit { rate } else { (refilled / passed).clamp(-rate, rate) };
            self.refill_rate += weight * (refill_rate - self.refill_rate);
        }
        (self.remaining, self.at, self.charged) = (remaining, at, charged);
        Some(has_reset)
    }
}
