//! The adaptive limit: receives the events of calls, and raises or cuts the slots and the
//! first-token limit.

mod cut;

use std::iter;
use std::time::{Duration, Instant};

use tidegate_config::{AdaptiveConfig, Decrease, Detector};

use super::evidence::{CongestionEvidence, UsualLatency};
use super::first_token_capacity::first_token_work;
use super::latency_class::{CLASSES, LatencyClass, MIN_QUEUE_SHARE, class_of, is_streaming, latency_scale};
use super::load_tracker::{FEW_CALLS, LoadTracker};
use super::{CallKind, Decision, DecisionCause, Ended, LimitView, Sample, call_sample::Sent};
use super::{
    batch_size::BatchSize, engine_queue::EngineQueue, first_token_capacity::FirstTokenCapacity,
    first_token_limit::FirstTokenLimit, growth::Growth, percentile::Percentile, recent_calls::RecentCalls,
    slot_limit::SlotLimit,
};

/// Normalized latency that is assumed for an overdue call, whose latency is not known yet. Calls
/// above 1.0 are late.
const OVERDUE_LATENCY: f64 = 1.5;
/// Start and end of the period whose calls are compared with a late call, as shares of the time for
/// which that call has been awaiting its first token. Calls that are sent together arrive in any
/// order, and calls that were sent just now had no time to be answered. Two thirds of the calls
/// sent between the two are answered only if most first tokens take less than about three eighths
/// of that time.
const OVERTAKING_PERIOD: (f64, f64) = (0.125, 0.75);
/// Weight of a call in the exponentially decaying share of late calls ([`LimitView::late`]).
const LATE_SHARE_WEIGHT: f64 = 0.05;
/// Minimum number of output tokens of a call. The time between tokens is not checked for shorter
/// responses.
const MIN_PACE_TOKENS: u64 = 8;
/// Share of the objective for the time between tokens that the baseline exceeds if no limit can
/// meet the objective.
const UNREACHABLE: f64 = 1.0;
/// Maximum number of calls in flight at which the first calls of a class count as uncongested, also
/// if the configured initial slots are more.
const MAX_YOUNG_CALLS: usize = 8;

/// Settings of an adaptive limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitSettings {
    /// Maximum number of slots: the configured cap.
    pub max: usize,
    /// The part of the objective for the time to first token (TTFT) that the upstream may use: the
    /// maximum time from sending a call to its first token. `None`: three times what similar calls
    /// take on an uncongested upstream.
    pub objective: Option<Duration>,
    /// Maximum time from sending a call that does not stream to its end. `None`: three times what
    /// similar calls take on an uncongested upstream.
    pub latency: Option<Duration>,
    /// Maximum mean time between two tokens of a call. `None`: not checked.
    pub tpot: Option<Duration>,
    /// The settings that are configured directly: detector, decrease, initial and minimum slots,
    /// and the first-token limit.
    pub adaptive: AdaptiveConfig,
}

/// An adaptive concurrency limit. See the [module documentation](super).
///
/// Each method takes the current time as `now`.
#[derive(Debug)]
pub struct Limit {
    pub(crate) settings: LimitSettings,
    slots: SlotLimit,
    /// See [`Limit::keep_free`].
    spare: usize,
    first_token_limit: FirstTokenLimit,
    first_token_capacity: FirstTokenCapacity,
    batch_size: BatchSize,
    growth: Growth,
    /// Evidence from the calls sent since the last raise. Used during trials only.
    trial_evidence: CongestionEvidence,
    /// The queue of the engine behind the upstream, as far as the engine reports it.
    engine_queue: EngineQueue,
    load: LoadTracker,
    recent_calls: RecentCalls,
    classes: [LatencyClass; CLASSES],
    /// Evidence from the times to first token of the streaming calls sent since the last cut.
    first_tokens: CongestionEvidence,
    /// Evidence from the latencies of the calls sent since the last cut that do not stream.
    answers: CongestionEvidence,
    /// Evidence from the time between the tokens of the calls sent since the last cut.
    pace_evidence: CongestionEvidence,
    /// Bit set of the indices of the classes in which calls await their answer. It keeps
    /// [`Limit::next_wake`] fast, which is called with each event: most classes are empty.
    awaiting_classes: u32,
    /// Statistics of the time between two tokens, over the streaming calls of all classes.
    pace_class: LatencyClass,
    /// The percentile detector, or `None` if the share of late calls is evaluated instead.
    percentile: Option<Percentile>,
    /// Number of recently used slots when the last run of 429s began. All cuts of one run together
    /// leave at least half of these slots.
    slots_before_refusals: f64,
    /// Number of calls that the upstream was seen to serve at the last cut for late first tokens,
    /// or 0 before the first one.
    served_at_cut: f64,
    /// Number of consecutive cuts for late first tokens at which the upstream served no more calls
    /// than at the cut before. Equal calls that end together cause such cuts: in the burst that
    /// follows, first tokens arrive fast, and the limit grows back to where it was.
    cuts_without_gain: u32,
    /// Decaying share of late calls, from 0 to 1, or `None` before the first call is evaluated.
    late_share: Option<f64>,
    /// Last time at which the limit detected that too many calls were in flight, or `None` if it
    /// never did.
    last_breach_at: Option<Instant>,
}

impl Limit {
    /// Creates a limit with the configured initial slots and without evidence.
    pub fn new(settings: &LimitSettings, now: Instant) -> Self {
        let adaptive = &settings.adaptive;
        let slots = SlotLimit::new(adaptive.start, adaptive.min, settings.max);
        let (is_learned, percentile) = match &adaptive.detector {
            Detector::Exceedance => (adaptive.decrease == Decrease::Served, None),
            Detector::Percentile(percentile) => (false, Some(Percentile::new(percentile.clone(), now))),
        };
        let first_token_limit = match adaptive.awaiting {
            None if is_learned => FirstTokenLimit::adaptive(slots.slots()),
            configured => FirstTokenLimit::Fixed(configured.unwrap_or(usize::MAX).max(1)),
        };
        let objective = |class| if is_streaming(class) { settings.objective } else { settings.latency };
        Self {
            slots_before_refusals: slots.value,
            slots,
            spare: 0,
            first_token_limit,
            first_token_capacity: FirstTokenCapacity::new(),
            batch_size: BatchSize::default(),
            growth: Growth::SlowStart,
            trial_evidence: CongestionEvidence::new(now),
            engine_queue: EngineQueue::new(settings.objective.or(settings.latency).is_some()),
            load: LoadTracker::default(),
            recent_calls: RecentCalls::default(),
            classes: std::array::from_fn(|class| LatencyClass::new(objective(class))),
            first_tokens: CongestionEvidence::new(now),
            answers: CongestionEvidence::new(now),
            pace_evidence: CongestionEvidence::new(now),
            awaiting_classes: 0,
            pace_class: LatencyClass::new(settings.tpot),
            percentile,
            served_at_cut: 0.0,
            cuts_without_gain: 0,
            late_share: None,
            last_breach_at: None,
            settings: settings.clone(),
        }
    }

    /// Returns the current number of slots: the maximum number of calls in flight.
    pub fn slots(&self) -> usize {
        self.slots.slots()
    }

    /// Returns the maximum number of streaming calls that may await their first token.
    pub fn first_token_limit(&self) -> usize {
        self.first_token_limit.limit().min(self.settings.max)
    }

    /// Returns the work, in tokens of prefill, at which calls that await their first token begin to
    /// queue at the upstream. Infinite if it is not known yet.
    pub fn first_token_capacity(&self) -> f64 {
        self.first_token_capacity.work()
    }

    /// Returns the number of calls that the upstream may serve at the same time soon: the size of
    /// its batch if that is known. Otherwise the maximum number of slots while the limit grows
    /// freely, and the current one once an overload has shown that it is about what the upstream
    /// serves.
    pub(crate) fn reachable_slots(&self) -> usize {
        let slots = if matches!(self.growth, Growth::SlowStart) { self.settings.max } else { self.slots() };
        self.batch_size.calls().map_or(slots, |size| size.min(slots))
    }

    /// Sets the number of slots that are kept free for other tenants. The slots count as full if
    /// only these are free.
    pub(crate) fn keep_free(&mut self, spare: usize) {
        self.spare = spare;
    }

    /// Returns `true` if another call can await its first token without exceeding the capacity.
    pub(crate) fn has_first_token_room(&self) -> bool {
        self.first_token_capacity.has_room(self.load.awaiting_work)
    }

    /// Returns the work of a call before its first token, multiplied by the seconds that it takes
    /// on an uncongested upstream: what the call contributes to the mean work in the upstream if
    /// nothing is queued. Zero if the call does not stream or the time is not known.
    pub(crate) fn first_token_work_seconds(&self, sample: &Sample) -> f64 {
        sample.work as f64 * self.first_token_capacity.quiet(sample.class).unwrap_or(0.0)
    }

    /// Returns `true` if another call may be sent: a slot is free, and fewer calls than permitted
    /// await their first token.
    pub fn has_room(&self) -> bool {
        self.load.in_flight < self.slots() && self.load.awaiting < self.first_token_limit()
    }

    /// Counts a call as in flight. Call this when the call is sent. Returns the sample that
    /// identifies the call in its later events.
    ///
    /// A call that exceeds the limit is counted too.
    pub fn on_sent(&mut self, now: Instant, kind: CallKind) -> Sample {
        self.on_sent_at(now, now, kind)
    }

    /// Counts a call as in flight that was sent at `at`. See [`Limit::on_sent`].
    pub(crate) fn on_sent_at(&mut self, now: Instant, at: Instant, kind: CallKind) -> Sample {
        let class = class_of(kind);
        let work = if kind.streams { first_token_work(kind.input) } else { 0 };
        self.load.on_sent(now, kind.streams, work);
        self.update_full(now);
        let number = self.recent_calls.push(at, class);
        let sent = Sent { at, in_flight: self.load.in_flight, number };
        // Without an objective, calls that do not stream are compared by their work, which is known
        // only at the end.
        let can_be_overdue = kind.streams || self.settings.latency.is_some();
        let queue_number = can_be_overdue.then(|| {
            self.awaiting_classes |= 1 << class;
            self.classes[class].awaiting.push(sent)
        });
        let awaiting_work = self.load.awaiting_work;
        Sample {
            class,
            input: kind.input,
            output: kind.output,
            queue_number,
            judged: false,
            sent,
            work,
            awaiting_work,
            first_token_at: None,
        }
    }

    /// Records that the first token of a call has arrived at `now`, and raises or cuts the limit if
    /// the evidence suffices. Does nothing if the call does not stream, or if its first token was
    /// already reported.
    pub fn on_first_token(&mut self, now: Instant, sample: &mut Sample) {
        if !sample.awaits_first_token() {
            return;
        }
        self.update_full(now);
        sample.first_token_at = Some(now);
        self.load.on_first_token(now, sample.work);
        self.load.recent_accepted.observe(now, sample.sent.in_flight);
        let took = sample.seconds_until(now);
        self.first_token_capacity.observe(sample.class, sample.work, sample.awaiting_work, took);
        let quiet = self.first_token_capacity.measured_quiet(sample.class);
        if let (Some(quiet), Some(served)) = (quiet, self.load.served_now()) {
            let prompts = sample.awaiting_work as f64 / sample.work as f64;
            self.batch_size.observe(now, served, took / (quiet * prompts));
        }
        self.on_answer(now, sample, sample.class, took);
    }

    /// Treats a call as one that does not stream from here on, because the tokens of its response
    /// cannot be observed. `output` is the expected number of output tokens, or 0 if unknown.
    pub fn mark_unobservable(&mut self, now: Instant, sample: &mut Sample, output: u64) {
        self.update_full(now);
        if sample.awaits_first_token() {
            self.load.on_awaiting_ended(sample.work);
        }
        self.stop_awaiting(sample);
        sample.class = class_of(CallKind { input: sample.input, output, streams: false });
        sample.output = output;
    }

    /// Removes a call from the calls in flight, and raises or cuts the limit if the end of the call
    /// (`how`) is sufficient evidence.
    pub fn on_ended(&mut self, now: Instant, mut sample: Sample, how: Ended) {
        self.update_full(now);
        if let Ended::Completed { output } = how {
            self.load.recent_accepted.observe(now, sample.sent.in_flight);
            self.on_completed(now, &mut sample, output);
        }
        if sample.awaits_first_token() {
            self.load.on_awaiting_ended(sample.work);
        }
        self.stop_awaiting(&mut sample);
        self.load.on_ended(sample.first_token_at.is_some());
        match how {
            Ended::Limited { by_rate: false } => self.on_refused(now, &sample),
            Ended::Overloaded => self.on_overloaded(now, &sample, DecisionCause::Overloaded),
            Ended::TimedOut => self.on_overloaded(now, &sample, DecisionCause::TimedOut),
            Ended::DeadlinePassed if self.shows_congestion(now, &sample) => {
                self.on_overloaded(now, &sample, DecisionCause::TimedOut);
            }
            Ended::Completed { .. }
            | Ended::Cancelled
            | Ended::Limited { .. }
            | Ended::DeadlinePassed
            | Ended::Failed => {}
        }
    }

    /// Returns when to call [`Limit::on_tick`] if no other event happens before, or `None` if time
    /// alone changes nothing.
    pub fn next_wake(&self) -> Option<Instant> {
        let percentile = self.percentile.as_ref().filter(|_| self.load.in_flight > 0);
        let tick_at = percentile.map(|percentile| percentile.tick_at);
        self.awaiting_classes().filter_map(|class| self.classes[class].overdue_at()).chain(tick_at).min()
    }

    /// Returns the classes in which calls await their answer, in ascending order.
    fn awaiting_classes(&self) -> impl Iterator<Item = usize> + use<> {
        let mut classes = self.awaiting_classes;
        iter::from_fn(move || {
            let class = (classes != 0).then(|| classes.trailing_zeros() as usize);
            classes &= classes.wrapping_sub(1);
            class
        })
    }

    /// Removes a class from the set of classes with awaiting calls if its last awaiting call was
    /// removed.
    fn on_removed(&mut self, class: usize) {
        if self.classes[class].awaiting.oldest().is_none() {
            self.awaiting_classes &= !(1 << class);
        }
    }

    /// Adds the calls that have become overdue to the evidence, and runs the tick of the percentile
    /// detector if it is due. Both may change the limit. Call this at [`Limit::next_wake`].
    pub fn on_tick(&mut self, now: Instant) {
        for class in self.awaiting_classes() {
            while self.classes[class].overdue_at().is_some_and(|at| at <= now)
                && let Some(sent) = self.classes[class].awaiting.pop_oldest()
            {
                self.on_removed(class);
                self.judge(now, sent, class, OVERDUE_LATENCY);
            }
        }
        self.tick_percentile(now);
    }

    /// Follows a limit that another process finds: these slots and this first-token limit are in
    /// force. Until [`Limit::lead`] is called, the events of calls do not change the slots. They
    /// may change the first-token limit, so this must be called after each of them.
    pub(crate) fn follow(&mut self, slots: usize, first_tokens: usize) {
        self.slots.set_followed(slots);
        self.first_token_limit.set(first_tokens);
    }

    /// Makes this process the leader again: the events of calls change the limit from now on,
    /// beginning with the bounds that are in force.
    pub(crate) fn lead(&mut self, now: Instant) {
        self.slots.is_followed = false;
        self.discard_evidence(now);
        self.trial_evidence = CongestionEvidence::new(now);
        // A trial that began meanwhile has raised nothing.
        if matches!(self.growth, Growth::Probing(_)) {
            self.growth = self.growth.on_overload();
        }
    }

    /// Discards the evidence, so that only calls sent from now on count.
    pub(super) fn discard_evidence(&mut self, now: Instant) {
        self.first_tokens = CongestionEvidence::new(now);
        self.answers = CongestionEvidence::new(now);
        self.pace_evidence = CongestionEvidence::new(now);
    }

    /// Forgets what is usual for calls, because it was learned while other processes congested the
    /// upstream with calls that this limit did not see. Calls in flight stay counted.
    pub(crate) fn forget_usual(&mut self) {
        self.classes.iter_mut().for_each(LatencyClass::forget);
        self.pace_class.forget();
        self.first_token_capacity = FirstTokenCapacity::new();
        self.batch_size = BatchSize::default();
        if self.settings.adaptive.decrease == Decrease::Served {
            self.growth = self.growth.on_overload();
        }
    }

    /// Returns the last time at which the limit detected that too many calls were in flight, even
    /// if it was already at its minimum then. Returns `None` if it never did.
    pub(crate) fn last_breach(&self) -> Option<Instant> {
        self.last_breach_at
    }

    /// Returns the last change of the limit, or `None` if it never changed.
    pub(crate) fn last_change(&self) -> Option<Decision> {
        self.slots.last
    }

    /// Returns the state of the limit for snapshots and metrics.
    pub fn view(&self, now: Instant) -> LimitView {
        let of_calls = self.first_tokens.fraction().max(self.answers.fraction());
        let evidence = of_calls.max(self.pace_evidence.fraction());
        LimitView {
            limit: self.slots(),
            awaiting_limit: self.first_token_limit(),
            awaiting: self.load.awaiting,
            awaiting_work: self.load.awaiting_work,
            first_token_capacity: Some(self.first_token_capacity())
                .filter(|work| work.is_finite())
                .map(|work| work as u64),
            slow_start: self.percentile.is_none() && matches!(self.growth, Growth::SlowStart),
            objective: self.settings.objective,
            late: self.late_share,
            evidence: self.percentile.as_ref().map_or(evidence, |percentile| percentile.evidence(now)),
            cuts: self.slots.count(false),
            raises: self.slots.count(true),
            moves: self.slots.counts,
            decisions: self.slots.changes.iter().copied().collect(),
        }
    }

    /// Adds a complete response to the statistics and the evidence, which may raise or cut the
    /// limit. Uses the time between its tokens if the first token was observed, otherwise its whole
    /// latency. `output` is the number of output tokens, or 0 if unknown.
    fn on_completed(&mut self, now: Instant, sample: &mut Sample, output: u64) {
        if let Some(first) = sample.first_token_at {
            return self.on_token_pace(now, sample.sent, first, output);
        }
        let took = sample.seconds_until(now);
        if is_streaming(sample.class) {
            return self.on_answer(now, sample, sample.class, took);
        }
        let output = if output > 0 { output } else { sample.output };
        let (class, scale) = self.class_by_work(sample, output);
        self.on_answer(now, sample, class, took * scale);
    }

    /// Returns the latency class of a call that does not stream and has `output` tokens, and the
    /// factor for its latency.
    fn class_by_work(&self, sample: &Sample, output: u64) -> (usize, f64) {
        let kind = CallKind { input: sample.input, output, streams: false };
        // An objective applies to the whole latency. Otherwise a call with more work may take
        // longer.
        (class_of(kind), if self.settings.latency.is_none() { latency_scale(kind) } else { 1.0 })
    }

    /// Returns `true` if a call whose deadline has passed shows congestion: it has taken longer
    /// than similar calls may take, or that is not known, and later calls have not overtaken it.
    fn shows_congestion(&mut self, now: Instant, sample: &Sample) -> bool {
        let streams = is_streaming(sample.class);
        let (class, scale) =
            if streams { (sample.class, 1.0) } else { self.class_by_work(sample, sample.output) };
        let normalized_latency = self.classes[class].normalized_latency(sample.seconds_until(now) * scale);
        normalized_latency.is_none_or(|latency| latency > 1.0)
            && !self.compare_with_later_calls(now, sample.sent, class)
    }

    /// Records a latency of `took` seconds in the latency class, and adds the call to the evidence
    /// unless it was added before as overdue.
    fn on_answer(&mut self, now: Instant, sample: &mut Sample, class: usize, took: f64) {
        self.recent_calls.on_answer(sample.sent.number, class);
        let latencies = &mut self.classes[class];
        let met_no_congestion = self.load.is_uncongested(sample.sent);
        // What grew beyond the initial slots may itself congest the upstream.
        let below_start = sample.sent.in_flight <= self.settings.adaptive.start.min(MAX_YOUNG_CALLS);
        let is_uncongested = met_no_congestion || below_start && latencies.lacks_baseline();
        let shows_late_share = met_no_congestion || below_start && latencies.lacks_late_share();
        let normalized_latency = latencies.normalized_latency(took);
        let multiple = latencies.threshold().map(|threshold| took / threshold);
        latencies.observe(took, is_uncongested);
        if let Some(normalized_latency) = normalized_latency.filter(|_| shows_late_share) {
            latencies.observe_late(normalized_latency > 1.0);
        }
        if met_no_congestion && latencies.update_is_slow(MIN_QUEUE_SHARE) {
            // Earlier cuts treated the latency of this class as congestion, which was wrong.
            self.growth = Growth::SlowStart;
            self.first_token_limit.restart_slow_start();
        }
        if let (Some(percentile), Some(multiple)) = (&mut self.percentile, multiple) {
            percentile.observe(now, class, multiple);
        }
        let is_first = sample.queue_number.is_none() || self.stop_awaiting(sample);
        if is_first && !std::mem::replace(&mut sample.judged, true) {
            self.judge(now, sample.sent, class, normalized_latency.unwrap_or(0.0));
        }
    }

    /// Adds the mean time between two tokens of a complete response to the evidence, and cuts the
    /// slots if that suffices. `first` is the time at which the first token arrived, and `output`
    /// the number of output tokens. Does nothing without an objective for the time between tokens,
    /// or if the response is short.
    fn on_token_pace(&mut self, now: Instant, sent: Sent, first: Instant, output: u64) {
        if self.settings.tpot.is_none() || output < MIN_PACE_TOKENS {
            return;
        }
        let took = now.saturating_duration_since(first).as_secs_f64() / (output - 1) as f64;
        let normalized_latency = self.pace_class.normalized_latency(took).unwrap_or(0.0);
        let is_uncongested = self.load.is_uncongested(sent);
        self.pace_class.observe(took, is_uncongested);
        if is_uncongested && self.pace_class.update_is_slow(UNREACHABLE) {
            // No lower limit would meet the objective, so earlier cuts were wrong.
            self.growth = Growth::SlowStart;
            self.pace_evidence = CongestionEvidence::new(now);
            return;
        }
        if self.pace_evidence.applies_to(sent.at)
            && sent.in_flight > FEW_CALLS
            && self.pace_evidence.observe(normalized_latency, UsualLatency::default())
        {
            self.cut_by_default(now, DecisionCause::Slow);
        }
    }

    /// Adds a call to the evidence, and raises or cuts the limit if the evidence suffices.
    ///
    /// `normalized_latency` is that of [`LatencyClass::normalized_latency`]: above 1.0, the call is
    /// late.
    fn judge(&mut self, now: Instant, sent: Sent, class: usize, normalized_latency: f64) {
        let is_late = normalized_latency > 1.0;
        let share = self.late_share.unwrap_or(0.0);
        self.late_share = Some(share + LATE_SHARE_WEIGHT * (f64::from(is_late) - share));
        if !self.classes[class].has_objective() && self.engine_queue.is_known(now) {
            let since_raise = self.trial_evidence.applies_to(sent.at);
            return self.on_in_time(now, sent.at, is_streaming(class), since_raise);
        }
        let streams = is_streaming(class);
        let usual = self.classes[class].usual();
        let is_overtaken = is_late && self.compare_with_later_calls(now, sent, class);
        let evidence = if streams { &mut self.first_tokens } else { &mut self.answers };
        // A call that was nearly alone is not late because of this client, and a new class has no
        // baseline.
        let is_inconclusive = is_late && (sent.in_flight <= FEW_CALLS || !self.classes[class].is_known());
        if self.percentile.is_some() || !evidence.applies_to(sent.at) || is_inconclusive {
            return;
        }
        if is_overtaken {
            if evidence.observe_overtaken(usual) {
                self.on_late(now, class);
            }
            return;
        }
        let is_breach = evidence.observe(normalized_latency, usual);
        let has_headroom = evidence.has_headroom(usual);
        let since_raise = self.trial_evidence.applies_to(sent.at);
        // A trial fails if its calls lose their headroom, even if none is late.
        let trial_failed = since_raise && self.growth.trial_slots() > 0.0 && {
            self.trial_evidence.observe(normalized_latency, usual);
            is_late || self.trial_evidence.judged > 1 && !self.trial_evidence.has_headroom(usual)
        };
        if is_breach || trial_failed {
            self.on_late(now, class);
        } else if !is_late && self.pace_evidence.fraction() < 0.5 {
            let in_slow_start = streams && matches!(self.growth, Growth::SlowStart);
            if has_headroom {
                self.on_in_time(now, sent.at, streams, since_raise);
            } else if in_slow_start && self.load.were_slots_full_since(sent.at) {
                // The first-token limit delays new calls. The new slot replaces that of the call
                // that no longer awaits its first token.
                self.slots.raise(now, 1.0, DecisionCause::SlowStart, self.first_token_limit());
            }
        }
    }

    /// Compares a late call with the calls that were sent after it, early enough to be answered by
    /// now. Returns `true` if they have overtaken it: see [`RecentCalls::compare`].
    fn compare_with_later_calls(&mut self, now: Instant, sent: Sent, class: usize) -> bool {
        let waited = now.saturating_duration_since(sent.at);
        let (from, to) = OVERTAKING_PERIOD;
        let (from, to) = (sent.at + waited.mul_f64(from), sent.at + waited.mul_f64(to));
        self.recent_calls.compare(class, from, to)
    }

    /// Counts a call that was sent at `sent_at` and was not late. Raises the slots and, if the call
    /// `streams`, the first-token limit. Each of the two is raised only if it was fully used at
    /// some time after `sent_at`.
    ///
    /// `since_raise` is `true` if the call was sent after the last raise.
    fn on_in_time(&mut self, now: Instant, sent_at: Instant, streams: bool, since_raise: bool) {
        if streams && self.load.was_first_token_limit_full_since(sent_at) {
            self.first_token_limit.on_in_time(self.settings.max);
        }
        let cause = match self.growth {
            Growth::SlowStart => DecisionCause::SlowStart,
            Growth::Additive | Growth::Probing(_) => DecisionCause::Headroom,
        };
        let was_full = self.load.were_slots_full_since(sent_at);
        let by = self.growth.on_in_time(self.slots.value, was_full, since_raise);
        let by = match self.growth {
            Growth::SlowStart if by > 0.0 && streams => {
                by.max(self.slots_that_fill_prefill() - self.slots.value)
            }
            _ => by,
        };
        let by = by.min(self.engine_queue.room(now));
        if by > 0.0 {
            self.trial_evidence = CongestionEvidence::new(now);
            self.slots.raise(now, by, cause, self.first_token_limit());
        }
    }

    /// Returns the number of slots with which the calls that await their first token use up the
    /// first-token capacity, or reach the first-token limit if that is lower.
    fn slots_that_fill_prefill(&self) -> f64 {
        let room = self.first_token_capacity.room(self.load.awaiting_work);
        let limit = self.first_token_limit().saturating_sub(self.load.awaiting);
        self.load.in_flight as f64 + room.min(limit as f64)
    }

    /// If all slots are used, records `now` as the last time at which all slots were used. Does the
    /// same if the first-token limit is reached.
    fn update_full(&mut self, now: Instant) {
        let slots = self.slots().saturating_sub(self.spare);
        self.load.update_full(now, slots, self.first_token_limit.limit());
    }

    /// Removes a call from the awaiting calls of its class. Returns `true` if the call was among
    /// them. If the call was removed before as overdue, marks it as already counted as evidence.
    fn stop_awaiting(&mut self, sample: &mut Sample) -> bool {
        let Some(queue_number) = sample.queue_number.take() else { return false };
        let was_awaiting = self.classes[sample.class].awaiting.remove(queue_number);
        self.on_removed(sample.class);
        sample.judged |= !was_awaiting;
        was_awaiting
    }
}
