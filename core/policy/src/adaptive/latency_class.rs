//! Latency classes: the usual latency of similar calls, and the threshold beyond which a call is
//! late.
//!
//! # Algorithm
//!
//! The time to first token is flat in the prompt length at first and then linear, so the latency of
//! a long prompt is no sign of congestion. Calls are therefore grouped into classes: streaming
//! calls by their prompt, and other calls by their *work*, which is their answer and a part of
//! their prompt, because their latency contains both. Each class learns a *baseline*, its mean
//! latency, only while the upstream is uncongested. A baseline that followed all calls would accept
//! any congestion as usual after a while, and the limit would grow with it.

use std::time::{Duration, Instant};

use super::{CallKind, awaiting_calls::AwaitingCalls, evidence::UsualLatency};

/// Number of classes of streaming calls, by prompt length. The first class is for up to 256 tokens,
/// each further one for up to twice as many as the one before, and the last one has no maximum.
pub(crate) const PROMPT_CLASSES: usize = 10;
/// Number of classes of calls that do not stream, by [work](work_of). The first class is for up to
/// [`FIRST_CLASS_WORK`], each further one for up to twice as much, and the last one has no maximum.
const WORK_CLASSES: usize = 12;
/// Total number of classes.
pub(super) const CLASSES: usize = PROMPT_CLASSES + WORK_CLASSES;
/// Maximum work of the first class of calls that do not stream, in output tokens.
const FIRST_CLASS_WORK: u64 = 32;
/// Number of prompt tokens that take as long as one output token.
///
/// With the step costs that the simulator has by default, which are calibrated on vLLM, these are
/// 175 prompt tokens if one call runs. If eight run, each also waits for the prompts of the others,
/// and these are 22. The value is within a factor of three of both, which is how much a call may
/// exceed the baseline without being late. If it is wrong, it matters only within a class.
const PROMPT_TOKENS_PER_OUTPUT_TOKEN: u64 = 64;
/// Time that a call takes in addition to its work, in output tokens.
const FIXED_WORK: f64 = 32.0;

/// Number of calls after which the baseline of a class is known. These first calls update the
/// baseline at any load until the first uncongested one, and without an objective they are never
/// late.
const MIN_SAMPLES: u32 = 8;
/// Number of first calls of a class that count as uncongested if at most the initial number of
/// slots was in use when they were sent, and at most eight. The first answers are few and come from
/// the fastest calls, so what is learned from them alone would be too low. With an objective, the
/// baseline needs only the first [`MIN_SAMPLES`].
const WARMUP_SAMPLES: u32 = 48;
/// Weight with which a call that is faster than the baseline enters the baseline, an exponentially
/// decaying mean. Also the weight of each call in the deviation.
const FASTER_WEIGHT: f64 = 0.1;
/// Weight with which a call that is slower than the baseline enters the baseline.
const SLOWER_WEIGHT: f64 = 0.15;
/// Weight of a call in the exponentially decaying mean of recent latencies.
const RECENT_WEIGHT: f64 = 0.1;
/// The mean of recent latencies becomes the baseline if it falls below this multiple of the
/// baseline.
const RECENT_RATIO: f64 = 0.8;
/// Weight of a call that met no congestion in the exponentially decaying usual share of late calls.
const LATE_SHARE_WEIGHT: f64 = 0.05;
/// Upper limit of a latency that updates the baseline, as a multiple of the baseline. Longer
/// latencies are shortened to it.
const MAX_SAMPLE_RATIO: f64 = 6.0;
/// Upper limit of the baseline as a share of the objective, unless the class is slow (see
/// [`MIN_QUEUE_SHARE`]).
const MAX_OBJECTIVE_SHARE: f64 = 0.9;
/// Threshold without an objective, as a multiple of the baseline.
const DEFAULT_MULTIPLE: f64 = 3.0;
/// Minimum threshold without an objective, in seconds.
const MIN_THRESHOLD: f64 = 0.25;
/// Number of mean deviations by which a call may exceed the baseline without being late. Applies to
/// classes that have no objective or are slow.
const DEVIATIONS: f64 = 3.0;
/// A class of first tokens or answers is slow if its baseline exceeds this share of the objective.
/// The threshold of a slow class is at least the baseline plus this share of the objective, because
/// a lower limit does not make a slow class faster.
pub(super) const MIN_QUEUE_SHARE: f64 = 0.5;

/// Factor for the baseline below which a slow class is no longer slow, so that a baseline near the
/// bound does not change it with each call.
const HYSTERESIS: f64 = 0.9;

/// Returns the index of the latency class that a call belongs to, below [`CLASSES`]. The classes of
/// streaming calls come first.
pub(super) fn class_of(kind: CallKind) -> usize {
    if kind.streams { prompt_class(kind.input) } else { PROMPT_CLASSES + work_class(work_of(kind)) }
}

/// Returns the factor by which the latency of a call that does not stream is multiplied before it
/// is compared within its class: the usual latency of a call with the least work of the class,
/// divided by that of this call. 1 for calls without tokens.
pub(super) fn latency_scale(kind: CallKind) -> f64 {
    let work = work_of(kind);
    let least = match work_class(work) {
        0 => 0,
        class => (FIRST_CLASS_WORK / 2) << class,
    };
    (least as f64 + FIXED_WORK) / (work as f64 + FIXED_WORK)
}

/// Returns the work of a call, in output tokens.
fn work_of(kind: CallKind) -> u64 {
    kind.output.saturating_add(kind.input / PROMPT_TOKENS_PER_OUTPUT_TOKEN)
}

/// Returns the index of a class of calls that do not stream among these classes, below
/// [`WORK_CLASSES`].
fn work_class(work: u64) -> usize {
    doublings(work, FIRST_CLASS_WORK).min(WORK_CLASSES - 1)
}

/// Returns the index of the latency class of streaming calls with a prompt of `tokens`, below
/// [`PROMPT_CLASSES`].
pub(crate) fn prompt_class(tokens: u64) -> usize {
    doublings(tokens, 256).min(PROMPT_CLASSES - 1)
}

/// Returns `true` if the class with this index is one of streaming calls.
pub(super) fn is_streaming(class: usize) -> bool {
    class < PROMPT_CLASSES
}

/// Returns how many times `first` must be doubled to be at least `tokens`.
fn doublings(tokens: u64, first: u64) -> usize {
    let times = tokens.max(1).div_ceil(first).checked_next_power_of_two();
    times.map_or(usize::MAX, |times| times.trailing_zeros() as usize)
}

/// The latency statistics of the calls of one class. Latencies are in seconds.
#[derive(Debug, Default)]
pub(super) struct LatencyClass {
    /// Configured latency objective, in seconds. `None` if calls are compared with the baseline.
    objective: Option<f64>,
    /// Mean latency on an uncongested upstream, in seconds.
    baseline: f64,
    /// Mean absolute deviation from the baseline, in seconds.
    deviation: f64,
    /// Mean latency of recent calls, at any load, in seconds.
    recent: f64,
    /// Number of latencies recorded since the class was created.
    samples: u32,
    /// Number of recorded latencies of calls that met no congestion caused by this client.
    uncongested_samples: u32,
    /// Whether the baseline exceeds so much of the objective that a lower limit does not help.
    is_slow: bool,
    /// Share of late calls on an uncongested upstream, from 0 to 1.
    usual_late_share: f64,
    /// The calls of the class that have not been answered and are not overdue.
    pub(super) awaiting: AwaitingCalls,
}

impl LatencyClass {
    /// Creates a class without samples. Without an `objective`, calls are compared with the
    /// baseline.
    pub(super) fn new(objective: Option<Duration>) -> Self {
        Self { objective: objective.map(|objective| objective.as_secs_f64()), ..Self::default() }
    }

    /// Forgets the statistics. The calls that await their answer stay.
    pub(super) fn forget(&mut self) {
        let awaiting = std::mem::take(&mut self.awaiting);
        *self = Self { objective: self.objective, awaiting, ..Self::default() };
    }

    /// Returns `true` if the class has enough samples for a baseline.
    pub(super) fn is_known(&self) -> bool {
        self.samples >= MIN_SAMPLES
    }

    /// Returns `true` if the class has too few samples for a reliable baseline.
    pub(super) fn lacks_baseline(&self) -> bool {
        self.samples < if self.objective.is_none() { WARMUP_SAMPLES } else { MIN_SAMPLES }
    }

    /// Returns `true` if the class has too few samples for a reliable usual share of late calls.
    pub(super) fn lacks_late_share(&self) -> bool {
        self.samples < WARMUP_SAMPLES
    }

    /// Returns `true` if an objective is configured for the class.
    pub(super) fn has_objective(&self) -> bool {
        self.objective.is_some()
    }

    /// Returns the latency in seconds beyond which a call is late, or `None` if the class has
    /// neither an objective nor a baseline yet.
    pub(super) fn threshold(&self) -> Option<f64> {
        // The upper end of the usual range.
        let upper = self.baseline + DEVIATIONS * self.deviation;
        match self.objective {
            Some(objective) if self.is_slow => {
                Some(upper.max(self.baseline + MIN_QUEUE_SHARE * objective).max(objective))
            }
            None if self.is_known() => Some((DEFAULT_MULTIPLE * self.baseline).max(upper).max(MIN_THRESHOLD)),
            // A class that is fast enough is held to the objective, whatever its deviation.
            objective => objective,
        }
    }

    /// Returns the baseline in seconds, or 0 if it is not known.
    ///
    /// Unless the class is slow, the result is at most [`MAX_OBJECTIVE_SHARE`] of the objective:
    /// the latencies of the first calls may include time in a queue.
    pub(super) fn baseline(&self) -> f64 {
        match self.objective {
            _ if !self.is_known() => 0.0,
            Some(objective) if !self.is_slow => self.baseline.min(MAX_OBJECTIVE_SHARE * objective),
            _ => self.baseline,
        }
    }

    /// Returns a latency of `took` seconds on the scale from the baseline (0.0) to the threshold
    /// (1.0). Above 1.0, the call is late. Returns `None` if the threshold is not known.
    pub(super) fn normalized_latency(&self, took: f64) -> Option<f64> {
        let baseline = self.baseline();
        self.threshold().map(|threshold| (took - baseline) / (threshold - baseline).max(1e-6))
    }

    /// Returns the share of late calls and the deviation of the normalized latency that the class
    /// has on an uncongested upstream.
    pub(super) fn usual(&self) -> UsualLatency {
        let baseline = self.baseline();
        let normalize = |threshold: f64| self.deviation / (threshold - baseline).max(1e-6);
        let deviation = self.threshold().map_or(0.0, normalize);
        UsualLatency { late_share: self.usual_late_share, deviation }
    }

    /// Updates whether the class is slow, and returns `true` only if it was not slow before and is
    /// slow now. A class is slow if its baseline, learned from uncongested calls, exceeds `share`
    /// of the objective. It remains slow until its baseline is a tenth below that.
    ///
    /// Earlier late calls of a class that becomes slow were wrongly attributed to congestion.
    pub(super) fn update_is_slow(&mut self, share: f64) -> bool {
        let is_measured = self.uncongested_samples >= MIN_SAMPLES;
        let share = if self.is_slow { HYSTERESIS * share } else { share };
        let exceeds = |objective| is_measured && self.baseline > share * objective;
        let is_slow = self.objective.is_some_and(exceeds);
        let was_slow = std::mem::replace(&mut self.is_slow, is_slow);
        is_slow && !was_slow
    }

    /// Records a latency of `took` seconds. `is_uncongested` is `true` if the call met no
    /// congestion caused by this client. Only such calls raise a known baseline.
    pub(super) fn observe(&mut self, took: f64, is_uncongested: bool) {
        self.samples = self.samples.saturating_add(1);
        self.uncongested_samples = self.uncongested_samples.saturating_add(u32::from(is_uncongested));
        // The first uncongested calls replace what was learned under load.
        let number = if self.uncongested_samples == 0 { self.samples } else { self.uncongested_samples };
        if number <= MIN_SAMPLES && (is_uncongested || self.uncongested_samples == 0) {
            let weight = 1.0 / f64::from(number);
            self.baseline += weight * (took - self.baseline);
            self.deviation += weight * ((took - self.baseline).abs() - self.deviation);
            self.recent = self.baseline;
            return;
        }
        self.recent += RECENT_WEIGHT * (took - self.recent);
        if is_uncongested {
            let took = took.min(MAX_SAMPLE_RATIO * self.baseline);
            let weight = if took < self.baseline { FASTER_WEIGHT } else { SLOWER_WEIGHT };
            self.deviation += FASTER_WEIGHT * ((took - self.baseline).abs() - self.deviation);
            self.baseline += weight * (took - self.baseline);
        }
        // Calls that are faster despite congestion would be faster still without it.
        if self.recent < RECENT_RATIO * self.baseline {
            self.baseline = self.recent;
        }
    }

    /// Updates the usual share of late calls with one call that met no congestion caused by this
    /// client.
    pub(super) fn observe_late(&mut self, is_late: bool) {
        self.usual_late_share += LATE_SHARE_WEIGHT * (f64::from(is_late) - self.usual_late_share);
    }

    /// Returns when the oldest unanswered call becomes late, or `None` if no call of the class is
    /// unanswered or the threshold is not known.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        let sent_at = self.awaiting.oldest()?.at;
        sent_at.checked_add(Duration::try_from_secs_f64(self.threshold()?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(input: u64) -> usize {
        class_of(CallKind { input, output: 0, streams: true })
    }

    /// Returns a class to which 20 uncongested calls of `took` seconds were reported.
    fn class_of_one(took: f64, objective: Option<Duration>) -> LatencyClass {
        let mut class = LatencyClass::new(objective);
        (0..20).for_each(|_| class.observe(took, true));
        class.update_is_slow(MIN_QUEUE_SHARE);
        class
    }

    #[test]
    fn calls_of_similar_length_share_a_class() {
        assert_eq!([0, 1, 256, 257, 512, 513, 1_024].map(prompt), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(prompt(u64::MAX), PROMPT_CLASSES - 1);
        let answer = |output| class_of(CallKind { input: 9, output, streams: false }) - PROMPT_CLASSES;
        assert_eq!([0, 32, 33, 64, 65, 128, u64::MAX].map(answer), [0, 0, 1, 1, 2, 2, WORK_CLASSES - 1]);
    }

    #[test]
    fn work_of_calls_that_do_not_stream_includes_their_prompt() {
        let whole = |input, output| CallKind { input, output, streams: false };
        assert_eq!(class_of(whole(6_400, 0)), class_of(whole(0, 100)));
        assert_ne!(class_of(whole(50_000, 100)), class_of(whole(100, 100)));
        assert_eq!([whole(0, 0), whole(63, 0)].map(latency_scale), [1.0; 2], "no work");
        let scaled = |kind: CallKind| latency_scale(kind) * (work_of(kind) as f64 + FIXED_WORK);
        let of_class = [whole(0, 65), whole(0, 128), whole(6_400, 0), whole(3_200, 40)].map(scaled);
        assert!(of_class.iter().all(|scaled| (scaled - of_class[0]).abs() < 1e-9), "{of_class:?}");
        assert!(latency_scale(whole(u64::MAX, u64::MAX)) > 0.0);
    }

    #[test]
    fn reachable_objective_is_the_threshold() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(LatencyClass::new(second).threshold(), Some(1.0), "also without samples");
        assert_eq!(class_of_one(0.2, second).threshold(), Some(1.0));
        let slow = class_of_one(2.0, second).threshold().unwrap();
        assert!((slow - 2.5).abs() < 1e-9, "the baseline and half of the objective: {slow}");
    }

    #[test]
    fn without_objective_threshold_is_multiple_of_baseline() {
        assert_eq!(LatencyClass::new(None).threshold(), None);
        let threshold = class_of_one(2.0, None).threshold().unwrap();
        assert!((threshold - 6.0).abs() < 1e-9, "{threshold}");
        assert_eq!(class_of_one(0.01, None).threshold(), Some(MIN_THRESHOLD));
    }

    #[test]
    fn baseline_ignores_congested_samples() {
        let mut class = class_of_one(0.2, Some(Duration::from_secs(1)));
        (0..10_000).for_each(|_| class.observe(3.0, false));
        assert!((class.baseline - 0.2).abs() < 1e-9, "{}", class.baseline);
        (0..200).for_each(|_| class.observe(3.0, true));
        assert!(class.baseline > 2.9, "uncongested samples raise it: {}", class.baseline);
    }
}
