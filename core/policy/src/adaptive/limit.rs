//! The controller: handles the events of calls and adjusts the limit.

mod cut;

use std::time::{Duration, Instant};

use super::evidence::{Evidence, UsualLatency};
use super::first_token_limit::FirstTokenLimit;
use super::first_token_rate::FirstTokenRate;
use super::growth::Growth;
use super::latency_class::{CLASSES, LatencyClass, class_of, is_streaming};
use super::load_tracker::{FEW_CALLS, LoadTracker};
use super::percentile::Percentile;
use super::slot_limit::SlotLimit;
use super::{CallKind, Decision, DecisionCause, Ended, LimitSettings, LimitView, Sample};
use tidegate_config::{Decrease, Detector};

/// Normalized latency of an overdue call. How late it will be is not known yet.
const OVERDUE_LATENCY: f64 = 1.5;
/// Weight of a call in the reported share of late calls.
const LATE_SHARE_WEIGHT: f64 = 0.05;
/// Minimum output tokens of a call whose token rate is evaluated.
const MIN_PACE_TOKENS: u64 = 8;
/// Time before the first token, expressed in output tokens. Calls that do not stream are compared
/// per token.
const PREFILL_TOKENS: f64 = 32.0;
/// Output length to which the latency of a call that does not stream is normalized.
const REFERENCE_OUTPUT: f64 = 128.0;

/// An adaptive concurrency limit. See the [module documentation](super).
///
/// Each method takes the current time as `now`.
#[derive(Debug)]
pub struct Limit {
    settings: LimitSettings,
    slots: SlotLimit,
    first_token_limit: FirstTokenLimit,
    growth: Growth,
    /// Evidence from the calls sent since the last trial began.
    trial_evidence: Evidence,
    load: LoadTracker,
    first_token_rate: FirstTokenRate,
    classes: [LatencyClass; CLASSES],
    /// Bit set of the classes with awaiting calls. Only these can have overdue calls.
    awaiting_classes: u32,
    /// Evidence from first tokens, from whole responses, and from the time between tokens.
    first_tokens: Evidence,
    answers: Evidence,
    pace_evidence: Evidence,
    /// Time between two tokens.
    pace_class: LatencyClass,
    percentile: Option<Percentile>,
    /// Slots when the last run of 429s began. The run cuts to a share of them at most.
    slots_before_refusals: f64,
    judged_calls: u64,
    late_share: f64,
    /// Last time that too many calls were in flight, even if the limit was already at its floor.
    last_breach_at: Option<Instant>,
}

impl Limit {
    /// Creates a limit without samples.
    pub fn new(settings: &LimitSettings, now: Instant) -> Self {
        let adaptive = &settings.adaptive;
        let slots = SlotLimit::new(adaptive.start, adaptive.min, settings.max);
        let first_token_limit = match adaptive.awaiting {
            Some(most) => FirstTokenLimit::Fixed(most.max(1)),
            None if adaptive.decrease == Decrease::Served && adaptive.detector == Detector::Exceedance => {
                FirstTokenLimit::adaptive(slots.slots())
            }
            None => FirstTokenLimit::Off,
        };
        let percentile = match &adaptive.detector {
            Detector::Exceedance => None,
            Detector::Percentile(percentile) => Some(Percentile::new(percentile.clone(), now)),
        };
        Self {
            slots_before_refusals: slots.value(),
            slots,
            first_token_limit,
            growth: Growth::SlowStart,
            trial_evidence: Evidence::new(now),
            load: LoadTracker::default(),
            first_token_rate: FirstTokenRate::default(),
            classes: Default::default(),
            awaiting_classes: 0,
            first_tokens: Evidence::new(now),
            answers: Evidence::new(now),
            pace_evidence: Evidence::new(now),
            pace_class: LatencyClass::default(),
            percentile,
            judged_calls: 0,
            late_share: 0.0,
            last_breach_at: None,
            settings: settings.clone(),
        }
    }

    /// Returns the number of slots in force.
    pub fn slots(&self) -> usize {
        self.slots.slots()
    }

    /// Returns the maximum number of streaming calls that may await their first token.
    pub fn first_token_limit(&self) -> usize {
        self.first_token_limit.limit().min(self.settings.max)
    }

    /// Returns `true` if another call may be sent.
    pub fn has_room(&self) -> bool {
        self.load.in_flight < self.slots() && self.load.awaiting < self.first_token_limit()
    }

    /// Handles the sending of a call.
    pub fn on_sent(&mut self, now: Instant, kind: CallKind) -> Sample {
        let class = class_of(kind);
        self.load.on_sent(now, kind.streams);
        self.update_full(now);
        let at = self.load.in_flight;
        let queue_number = self.is_due(class).then(|| self.start_awaiting(class, now, at));
        Sample {
            class,
            output: kind.output,
            queue_number,
            awaits_first_token: kind.streams,
            judged: false,
            sent_at: now,
            in_flight: at,
            first_token_at: None,
        }
    }

    /// Handles the first token of a call.
    pub fn on_first_token(&mut self, now: Instant, sample: &mut Sample) {
        if !sample.awaits_first_token {
            return;
        }
        self.update_full(now);
        sample.awaits_first_token = false;
        sample.first_token_at = Some(now);
        self.first_token_rate.on_first_token(now);
        self.load.on_first_token(now);
        self.load.on_accepted(now, sample.in_flight);
        let took = now.saturating_duration_since(sample.sent_at).as_secs_f64();
        self.on_answer(now, sample, sample.class, took);
    }

    /// Handles a response whose tokens cannot be observed. The call is treated as one that does not
    /// stream, with `output` expected tokens (0 if unknown).
    pub fn mark_unobservable(&mut self, now: Instant, sample: &mut Sample, output: u64) {
        self.update_full(now);
        if std::mem::take(&mut sample.awaits_first_token) {
            self.load.on_awaiting_ended();
        }
        self.stop_awaiting(sample);
        sample.class = class_of(CallKind { output, ..CallKind::default() });
        sample.output = output;
    }

    /// Handles the end of a call.
    pub fn on_ended(&mut self, now: Instant, mut sample: Sample, how: Ended) {
        self.update_full(now);
        if let Ended::Completed { output } = how {
            self.load.on_accepted(now, sample.in_flight);
            self.completed(now, &mut sample, output);
        }
        if sample.awaits_first_token {
            self.load.on_awaiting_ended();
        }
        self.stop_awaiting(&mut sample);
        self.load.on_ended(sample.first_token_at.is_some());
        match how {
            Ended::Limited { by_rate: false } => self.on_refused(now, &sample),
            Ended::Overloaded => self.on_overloaded(now, &sample, DecisionCause::Overloaded),
            Ended::TimedOut => self.on_overloaded(now, &sample, DecisionCause::TimedOut),
            Ended::Completed { .. } | Ended::Cancelled | Ended::Limited { by_rate: true } | Ended::Failed => {
            }
        }
    }

    /// Returns when to call [`Limit::on_tick`] if no other event happens before.
    pub fn next_wake(&self) -> Option<Instant> {
        let tick = self.percentile.as_ref().filter(|_| self.load.in_flight > 0).map(Percentile::tick_at);
        self.awaiting_classes().filter_map(|class| self.overdue_at(class)).chain(tick).min()
    }

    /// Detects overdue calls, and evaluates the percentile detector if it is due.
    pub fn on_tick(&mut self, now: Instant) {
        for class in self.awaiting_classes() {
            while self.overdue_at(class).is_some_and(|at| at <= now) {
                let Some((sent_at, at)) = self.classes[class].awaiting.pop_oldest() else { break };
                self.update_awaiting_class(class);
                self.judge(now, sent_at, at, class, OVERDUE_LATENCY);
            }
        }
        if self.percentile.as_ref().is_some_and(|percentile| percentile.tick_at() <= now) {
            self.tick_percentile(now);
        }
    }

    /// Returns the last time that too many calls were in flight, even if the limit was already at
    /// its floor.
    pub fn last_breach(&self) -> Option<Instant> {
        self.last_breach_at
    }

    /// Returns the last change of the slots.
    pub fn last_change(&self) -> Option<Decision> {
        self.slots.last()
    }

    /// Returns the state of the limit for snapshots and metrics.
    pub fn view(&self, _now: Instant) -> LimitView {
        let evidence =
            self.first_tokens.fraction().max(self.answers.fraction()).max(self.pace_evidence.fraction());
        let moves = self.slots.counts();
        let count = |raises| {
            DecisionCause::ALL
                .iter()
                .zip(moves)
                .filter(|(cause, _)| cause.raises() == raises)
                .map(|(_, n)| n)
                .sum()
        };
        LimitView {
            limit: self.slots(),
            awaiting_limit: self.first_token_limit(),
            awaiting: self.load.awaiting,
            slow_start: self.percentile.is_none() && matches!(self.growth, Growth::SlowStart),
            objective: self.settings.objective,
            late: (self.judged_calls > 0).then_some(self.late_share),
            evidence: self.percentile.as_ref().map_or(evidence, Percentile::evidence),
            cuts: count(false),
            raises: count(true),
            moves,
            decisions: self.slots.changes(),
        }
    }

    /// Handles a complete response. Its evidence depends on whether the first token was observed.
    fn completed(&mut self, now: Instant, sample: &mut Sample, output: u64) {
        if let Some(first) = sample.first_token_at {
            return self.on_token_pace(now, sample, first, output);
        }
        let took = now.saturating_duration_since(sample.sent_at).as_secs_f64();
        if is_streaming(sample.class) {
            return self.on_answer(now, sample, sample.class, took);
        }
        let output = if output > 0 { output } else { sample.output };
        let class = class_of(CallKind { output, ..CallKind::default() });
        // An objective applies to the whole latency. Otherwise a long response may take long.
        let by_token = output > 0 && self.settings.latency.is_none();
        let took = if by_token { took * REFERENCE_OUTPUT / (output as f64 + PREFILL_TOKENS) } else { took };
        self.on_answer(now, sample, class, took);
    }

    /// Handles the latency of an answer, `took` seconds.
    fn on_answer(&mut self, now: Instant, sample: &mut Sample, class: usize, took: f64) {
        let objective = self.objective(class);
        let is_young = self.slots.was_never_cut() && self.classes[class].is_young(objective);
        let is_uncongested = is_young || self.load.is_uncongested(sample.sent_at, sample.in_flight);
        let normalized_latency = self.classes[class].normalized_latency(took, objective);
        let multiple = self.classes[class].threshold(objective).map(|threshold| took / threshold);
        self.classes[class].observe(took, is_uncongested);
        if let Some(normalized_latency) = normalized_latency.filter(|_| is_uncongested) {
            self.classes[class].observe_late(normalized_latency > 1.0);
        }
        if is_uncongested && self.classes[class].update_is_slow(objective) {
            // Levels found excessive before were found by treating this class as congested.
            self.growth = Growth::SlowStart;
            self.first_token_limit.restart_slow_start();
        }
        if let (Some(percentile), Some(multiple)) = (&mut self.percentile, multiple) {
            percentile.observe(now, class, multiple);
        }
        // Overdue calls were already evaluated.
        let fresh = sample.queue_number.is_none() || self.stop_awaiting(sample);
        if fresh && !std::mem::replace(&mut sample.judged, true) {
            self.judge(now, sample.sent_at, sample.in_flight, class, normalized_latency.unwrap_or(0.0));
        }
    }

    /// Evaluates the mean time between two tokens, if that has an objective.
    fn on_token_pace(&mut self, now: Instant, sample: &Sample, first: Instant, output: u64) {
        let objective = self.settings.tpot;
        if objective.is_none() || output < MIN_PACE_TOKENS {
            return;
        }
        let took = now.saturating_duration_since(first).as_secs_f64() / (output - 1) as f64;
        let normalized_latency = self.pace_class.normalized_latency(took, objective).unwrap_or(0.0);
        self.pace_class.observe(took, self.load.is_uncongested(sample.sent_at, sample.in_flight));
        if self.pace_evidence.applies_to(sample.sent_at)
            && sample.in_flight > FEW_CALLS
            && self.pace_evidence.observe(normalized_latency, UsualLatency::default())
        {
            self.cut_by_default(now, DecisionCause::Slow);
        }
    }

    /// Adds a call to the evidence, and raises or cuts the limit if that suffices.
    fn judge(
        &mut self,
        now: Instant,
        sent_at: Instant,
        in_flight: usize,
        class: usize,
        normalized_latency: f64,
    ) {
        let late = normalized_latency > 1.0;
        self.judged_calls += 1;
        self.late_share += LATE_SHARE_WEIGHT * (f64::from(u8::from(late)) - self.late_share);
        let streams = is_streaming(class);
        let objective = self.objective(class);
        let latency_class = &self.classes[class];
        let usual = UsualLatency {
            late_share: latency_class.usual_late_share(),
            normalized_latency: latency_class.usual_normalized_latency(objective),
        };
        let evidence = if streams { &mut self.first_tokens } else { &mut self.answers };
        // A call that was nearly alone is not late because of this client, and a new class has no
        // baseline.
        let is_inconclusive = late && (in_flight <= FEW_CALLS || !self.classes[class].is_known());
        if self.percentile.is_some() || !evidence.applies_to(sent_at) || is_inconclusive {
            return;
        }
        let is_breach = evidence.observe(normalized_latency, usual);
        let has_headroom = evidence.has_headroom();
        let on_trial = self.growth.trial_slots() > 0.0;
        let fresh = self.trial_evidence.applies_to(sent_at);
        if on_trial && fresh {
            self.trial_evidence.observe(normalized_latency, usual);
        }
        // A trial fails if its calls lose their headroom, even if none is late.
        let failed = on_trial
            && fresh
            && (late || self.trial_evidence.judged() > 1 && !self.trial_evidence.has_headroom());
        if is_breach || failed {
            self.on_late(now, class);
        } else if !late && self.pace_evidence.fraction() < 0.5 {
            let in_slow_start = streams && matches!(self.growth, Growth::SlowStart);
            if has_headroom {
                self.on_in_time(now, sent_at, streams, fresh);
            } else if in_slow_start && self.load.were_slots_full_since(sent_at) {
                // The first-token limit delays new calls. The slot is for the call that no longer
                // awaits.
                self.slots.raise(now, 1.0, DecisionCause::SlowStart, self.first_token_limit());
            }
        }
    }

    /// Raises the limits after a call in time, if they were full.
    fn on_in_time(&mut self, now: Instant, sent_at: Instant, streams: bool, fresh: bool) {
        if streams && self.load.was_first_token_limit_full_since(sent_at) {
            self.first_token_limit.on_in_time(self.settings.max);
        }
        let cause = if let Growth::SlowStart = self.growth {
            DecisionCause::SlowStart
        } else {
            DecisionCause::Headroom
        };
        let full = self.load.were_slots_full_since(sent_at);
        let by = self.growth.on_in_time(self.slots.value(), full, fresh);
        if by > 0.0 {
            self.trial_evidence = Evidence::new(now);
            self.slots.raise(now, by, cause, self.first_token_limit());
        }
    }

    /// Returns the objective of a class.
    fn objective(&self, class: usize) -> Option<Duration> {
        if is_streaming(class) { self.settings.objective } else { self.settings.latency }
    }

    /// Returns `true` if lateness is known before the call ends. Calls that do not stream are
    /// compared by their output length, which is known only at the end, unless they have an
    /// objective.
    fn is_due(&self, class: usize) -> bool {
        is_streaming(class) || self.settings.latency.is_some()
    }

    /// Returns when the oldest awaiting call of a class becomes late.
    fn overdue_at(&self, class: usize) -> Option<Instant> {
        self.classes[class].overdue_at(self.objective(class))
    }

    /// Records whether the limits are full.
    fn update_full(&mut self, now: Instant) {
        self.load.update_full(now, self.slots.slots(), self.first_token_limit.limit());
    }

    /// Adds a call to its class's awaiting calls. Returns its number.
    fn start_awaiting(&mut self, class: usize, now: Instant, in_flight: usize) -> u64 {
        self.awaiting_classes |= 1 << class;
        self.classes[class].awaiting.push(now, in_flight)
    }

    /// Removes a call from its class's awaiting calls. Returns `false` if it was already overdue.
    fn stop_awaiting(&mut self, sample: &mut Sample) -> bool {
        let Some(queue_number) = sample.queue_number.take() else { return false };
        let fresh = self.classes[sample.class].awaiting.remove(queue_number);
        sample.judged |= !fresh;
        self.update_awaiting_class(sample.class);
        fresh
    }

    /// Removes a class without awaiting calls from the bit set.
    fn update_awaiting_class(&mut self, class: usize) {
        if self.classes[class].awaiting.oldest().is_none() {
            self.awaiting_classes &= !(1 << class);
        }
    }

    /// Returns the classes with awaiting calls.
    fn awaiting_classes(&self) -> impl Iterator<Item = usize> + use<> {
        let awaiting_classes = self.awaiting_classes;
        (0..CLASSES).filter(move |class| awaiting_classes & (1 << class) != 0)
    }
}
