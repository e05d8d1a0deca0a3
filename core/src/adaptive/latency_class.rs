//! Calls that are held against their like: what an answer takes when there is room, and when it comes late.
//!
//! The time to a first token is flat in the length of the prompt, and then linear: so a long prompt is no sign of congestion, and calls are judged by
//! class. Each class keeps a *baseline*, learned only while there is room: a baseline that followed whatever is seen would call every congestion
//! usual after a while, and the limit would grow with it.

use std::time::{Duration, Instant};

use super::CallKind;
use super::awaiting_calls::AwaitingCalls;

/// Classes of calls that stream, by the length of the prompt: each is of prompts up to twice as long as the last. The first is of up to 256 tokens.
pub(super) const PROMPT_CLASSES: usize = 10;
/// Classes of calls that do not, by the length of the answer. The first is of up to 32 tokens.
const OUTPUT_CLASSES: usize = 12;
/// All of them.
pub(super) const CLASSES: usize = PROMPT_CLASSES + OUTPUT_CLASSES;

/// So many calls of a class must have been seen before it is known what they take: they teach it whatever the load is, and are not judged.
const MIN_SAMPLES: u32 = 8;
/// And until so many were seen, what is seen before the first cut teaches as well: the first to be answered are the quickest, and few.
const WARMUP_SAMPLES: u32 = 48;
/// Weight of a call in the baseline, where it was quicker, and where it was slower.
const FASTER_WEIGHT: f64 = 0.1;
const SLOWER_WEIGHT: f64 = 0.15;
/// Weight of a call in what calls take of late.
const RECENT_WEIGHT: f64 = 0.1;
/// What calls take of late must be below the baseline by this, before it is taken for what they take when there is room.
const RECENT_RATIO: f64 = 0.8;
/// Weight of a call in the share that is usually late.
const LATE_SHARE_WEIGHT: f64 = 0.05;
/// A call moves the baseline no further than one that took so many times as long.
const MAX_SAMPLE_RATIO: f64 = 6.0;
/// A baseline that was not seen with room counts as no more than this share of the objective.
const MAX_OBJECTIVE_SHARE: f64 = 0.9;
/// What counts as late where nobody set an objective: so many times the baseline, and no less than so many seconds.
const DEFAULT_MULTIPLE: f64 = 3.0;
const MIN_THRESHOLD: f64 = 0.25;
/// What differs by itself is not late: answers may take longer than the baseline by so many times what they differ from it by in the mean.
const DEVIATIONS: f64 = 3.0;
/// Calls may be kept waiting for this share of the objective, also where their baseline leaves less of it: what is slow by itself does not become
/// quicker by a lower limit.
const MIN_QUEUE_SHARE: f64 = 0.5;

/// Which class a call belongs to.
pub(super) fn class_of(kind: CallKind) -> usize {
    if kind.streams {
        doublings(kind.input, 256).min(PROMPT_CLASSES - 1)
    } else {
        PROMPT_CLASSES + doublings(kind.output, 32).min(OUTPUT_CLASSES - 1)
    }
}

/// Whether the calls of a class stream.
pub(super) fn is_streaming(class: usize) -> bool {
    class < PROMPT_CLASSES
}

/// How many times `first` must be doubled to reach that many tokens.
fn doublings(tokens: u64, first: u64) -> usize {
    let times = tokens.max(1).div_ceil(first).checked_next_power_of_two();
    times.map_or(usize::MAX, |times| times.trailing_zeros() as usize)
}

/// One class.
#[derive(Debug, Default)]
pub(super) struct LatencyClass {
    /// Seconds that its calls take when there is room.
    baseline: f64,
    /// What they differ from it by, in the mean.
    deviation: f64,
    /// What they take of late.
    recent: f64,
    samples: u32,
    /// Whether its calls were seen to take most of the objective when there was room.
    is_slow: bool,
    /// The share that is late when there is room.
    usual_late_share: f64,
    /// Those of its calls whose answer is awaited.
    pub(super) awaiting: AwaitingCalls,
}

impl LatencyClass {
    /// Whether it is known what its calls take.
    pub(super) fn is_known(&self) -> bool {
        self.samples >= MIN_SAMPLES
    }

    /// How many seconds are too many; `None`: not known yet.
    pub(super) fn threshold(&self, objective: Option<Duration>) -> Option<f64> {
        let by_itself = self.baseline + DEVIATIONS * self.deviation;
        match objective.map(|objective| objective.as_secs_f64()) {
            // What is quick enough by itself is held to the objective, however it differs.
            Some(objective) if self.is_slow => {
                Some(by_itself.max(self.baseline + MIN_QUEUE_SHARE * objective).max(objective))
            }
            Some(objective) => Some(objective),
            None => self
                .is_known()
                .then_some((DEFAULT_MULTIPLE * self.baseline).max(by_itself).max(MIN_THRESHOLD)),
        }
    }

    /// The strain that its calls have in the mean when there is room, for what they differ by.
    pub(super) fn usual_normalized_latency(&self, objective: Option<Duration>) -> f64 {
        let baseline = self.baseline(objective);
        self.threshold(objective)
            .map_or(0.0, |threshold| 0.5 * self.deviation / (threshold - baseline).max(1e-6))
    }

    /// Whether it is held against what it takes by itself, and has seen so few that this may be off.
    pub(super) fn is_young(&self, objective: Option<Duration>) -> bool {
        self.samples < WARMUP_SAMPLES && objective.is_none()
    }

    /// Notes, after a call that met room, whether the objective can be kept. `true`: it is new that it cannot, so that calls were held against the upstream which
    /// were slow by themselves.
    pub(super) fn update_is_slow(&mut self, objective: Option<Duration>) -> bool {
        let slow = objective.is_some_and(|objective| {
            self.is_known() && self.baseline > MIN_QUEUE_SHARE * objective.as_secs_f64()
        });
        let new = slow && !self.is_slow;
        self.is_slow = slow;
        new
    }

    /// How much of the time between what is usual and what is late an answer took: above 1, it was late. `None`: nothing is known of such calls.
    pub(super) fn normalized_latency(&self, took: f64, objective: Option<Duration>) -> Option<f64> {
        let baseline = self.baseline(objective);
        self.threshold(objective).map(|threshold| (took - baseline) / (threshold - baseline).max(1e-6))
    }

    /// An answer took so long. `is_uncongested`: there was room, so that this is what such calls take.
    pub(super) fn observe(&mut self, took: f64, is_uncongested: bool) {
        self.samples = self.samples.saturating_add(1);
        if self.samples <= MIN_SAMPLES {
            let weight = 1.0 / f64::from(self.samples);
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
        // What is quick though there is no room is quicker yet when there is.
        if self.recent < RECENT_RATIO * self.baseline {
            self.baseline = self.recent;
        }
    }

    /// A call was late, or not, though there was room.
    pub(super) fn observe_late(&mut self, late: bool) {
        self.usual_late_share += LATE_SHARE_WEIGHT * (f64::from(u8::from(late)) - self.usual_late_share);
    }

    /// The share that is late when there is room.
    pub(super) fn usual_late_share(&self) -> f64 {
        self.usual_late_share
    }

    /// Seconds that its calls take when there is room; 0: not known. Where the objective holds, it was not seen to be more than leaves room before that: what the
    /// first calls took may have been a queue.
    pub(super) fn baseline(&self, objective: Option<Duration>) -> f64 {
        match objective {
            _ if !self.is_known() => 0.0,
            Some(objective) if !self.is_slow => {
                self.baseline.min(MAX_OBJECTIVE_SHARE * objective.as_secs_f64())
            }
            _ => self.baseline,
        }
    }

    /// When its oldest call that waits is late.
    pub(super) fn overdue_at(&self, objective: Option<Duration>) -> Option<Instant> {
        let sent_at = self.awaiting.oldest()?;
        let threshold = Duration::try_from_secs_f64(self.threshold(objective)?).ok()?;
        sent_at.checked_add(threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(input: u64) -> usize {
        class_of(CallKind { input, output: 0, streams: true })
    }

    fn class_of_one(took: f64) -> LatencyClass {
        let mut class = LatencyClass::default();
        (0..20).for_each(|_| class.observe(took, true));
        class.update_is_slow(Some(Duration::from_secs(1)));
        class
    }

    #[test]
    fn calls_of_similar_length_share_a_class() {
        assert_eq!([0, 1, 256, 257, 512, 513, 1_024].map(prompt), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(prompt(u64::MAX), PROMPT_CLASSES - 1);
        let answer = |output| class_of(CallKind { input: 9, output, streams: false }) - PROMPT_CLASSES;
        assert_eq!([0, 32, 33, 64, 65, 128, u64::MAX].map(answer), [0, 0, 1, 1, 2, 2, OUTPUT_CLASSES - 1]);
    }

    #[test]
    fn reachable_objective_is_the_threshold() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(LatencyClass::default().threshold(second), Some(1.0), "also before anything is known");
        assert_eq!(class_of_one(0.2).threshold(second), Some(1.0));
        let slow = class_of_one(2.0).threshold(second).unwrap();
        assert!((slow - 2.5).abs() < 1e-9, "what takes longer by itself is given half of it more: {slow}");
    }

    #[test]
    fn without_objective_threshold_is_multiple_of_baseline() {
        assert_eq!(LatencyClass::default().threshold(None), None);
        let threshold = class_of_one(2.0).threshold(None).unwrap();
        assert!((threshold - 6.0).abs() < 1e-9, "{threshold}");
        assert_eq!(class_of_one(0.01).threshold(None), Some(MIN_THRESHOLD));
    }

    #[test]
    fn baseline_ignores_congested_samples() {
        let mut class = class_of_one(0.2);
        (0..10_000).for_each(|_| class.observe(3.0, false));
        assert!((class.baseline - 0.2).abs() < 1e-9, "{}", class.baseline);
        (0..200).for_each(|_| class.observe(3.0, true));
        assert!(class.baseline > 2.9, "but what they take when there is room is: {}", class.baseline);
    }
}
