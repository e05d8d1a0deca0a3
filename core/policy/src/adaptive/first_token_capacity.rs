//! First-token capacity: how much prefill work keeps an upstream busy without a queue.
//!
//! # Algorithm
//!
//! By Little's law, the work in an upstream that does not queue is the rate of first tokens times
//! their *quiet* time, that is, the time that a first token takes on an uncongested upstream. If
//! the calls that await their first token have the work `w` and each takes `s` times its quiet
//! time, the upstream works on `w / s` of it, and the rest is queued. Throughput is in proportion
//! to `w / s` and delay to `s`, so the capacity follows `w / s²`, which also counts what the queue
//! costs. Like the window of TCP Vegas, it exceeds this by about a call, so that it can grow.
//!
//! The quiet time is learned per class of prompt length, from calls that were sent while others
//! used less than half of the capacity. It is the mean minus the mean deviation, because even few
//! calls sometimes queue behind each other, but at least a quarter of the mean.
//!
//! The first quiet times must be those of calls that are alone. If calls overlap from the start, as
//! after a restart during a burst, no call is alone until tenants are held for the capacity. Until
//! the quiet time of a class is *measured* by calls that are alone, it is therefore
//! [estimated](super::loaded_times) from calls under load. An estimate may hold tenants. It does
//! not raise the slots, and the capacity begins anew when a quiet time is measured.
//!
//! The capacity is updated only by calls that were sent when it was used up, because other calls
//! show nothing about a higher one. It starts with two calls and, as in slow start, grows by each
//! call that meets no queue until one does.
//!
//! # Sources
//!
//! - L. Kleinrock, *Power and deterministic rules of thumb for probabilistic problems in computer
//!   communications* (1979), for throughput divided by delay.
//! - L. Brakmo, L. Peterson, *TCP Vegas* (1995), for the estimate of what is queued.

use super::latency_class::PROMPT_CLASSES;
use super::loaded_times::LoadedTimes;

/// Work of a prompt without tokens. A step of an engine takes as long as some hundred tokens of
/// prefill, however short the prompts are.
const FIXED_WORK: u64 = 256;
/// Factor by which the capacity may grow if nothing is queued.
const GAIN: f64 = 1.05;
/// Number of calls by which the capacity exceeds what the upstream works on.
const EXTRA_CALLS: f64 = 1.0;
/// Number of calls with which the capacity begins.
const FIRST_CALLS: f64 = 2.0;
/// Weight of a new value in the exponentially decaying means.
const WEIGHT: f64 = 1.0 / 8.0;
/// Share of the capacity below which the other calls do not slow down a call.
const QUIET_SHARE: f64 = 0.5;
/// Minimum quiet time as a share of the mean time. If a few calls take many times as long as the
/// others, the deviation may exceed the mean.
const MIN_QUIET_SHARE: f64 = 0.25;
/// Upper bound of the time of a first token divided by its quiet time.
const MAX_SLOWDOWN: f64 = 100.0;
/// Number of calls from which the quiet time of a class is known.
const MIN_SAMPLES: u32 = 4;

/// Returns the work that the upstream does before the first token of a call with a prompt of
/// `input` tokens, in tokens of prefill.
pub(super) fn first_token_work(input: u64) -> u64 {
    input.saturating_add(FIXED_WORK)
}

/// The first-token capacity of an upstream, in tokens of prefill.
#[derive(Debug)]
pub(super) struct FirstTokenCapacity {
    /// The capacity, or `None` before the first measurement.
    work: Option<f64>,
    /// Mean work of a call.
    call: f64,
    /// Mean time of the first tokens that used up the capacity, divided by their quiet time.
    slowdown: f64,
    is_slow_start: bool,
    /// The quiet times, by class of prompt length.
    quiet: [QuietTime; PROMPT_CLASSES],
    /// Whether the quiet time of a class was measured.
    is_measured: bool,
    /// The times under load, by class, until a quiet time is measured.
    loaded: [LoadedTimes; PROMPT_CLASSES],
}

/// Statistics of the times to first token of one class on a quiet upstream, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct QuietTime {
    samples: u32,
    mean: f64,
    /// Mean absolute deviation from the mean.
    deviation: f64,
}

impl QuietTime {
    fn observe(&mut self, took: f64) {
        self.samples = self.samples.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.samples));
        self.mean += weight * (took - self.mean);
        self.deviation += weight * ((took - self.mean).abs() - self.deviation);
    }
}

impl FirstTokenCapacity {
    pub(super) fn new() -> Self {
        Self {
            work: None,
            call: 0.0,
            slowdown: 1.0,
            is_slow_start: true,
            quiet: Default::default(),
            is_measured: false,
            loaded: Default::default(),
        }
    }

    /// Returns the capacity. Infinite before the first quiet time is known.
    pub(super) fn work(&self) -> f64 {
        self.work.unwrap_or(f64::INFINITY)
    }

    /// Returns `true` if another call does not exceed the capacity while calls with the work
    /// `awaiting` await their first token. One call may always await it.
    pub(super) fn has_room(&self, awaiting: u64) -> bool {
        awaiting == 0 || awaiting as f64 + self.call <= self.work()
    }

    /// Returns how many more calls of the mean work the capacity has room for while calls with the
    /// work `awaiting` await their first token. Zero before a quiet time is measured.
    pub(super) fn room(&self, awaiting: u64) -> f64 {
        let room = |capacity: f64| ((capacity - awaiting as f64) / self.call).max(0.0).floor();
        self.work.filter(|_| self.is_measured).map_or(0.0, room)
    }

    /// Returns the quiet time of a class in seconds, or `None` if it is not known. It is estimated
    /// until that of any class is measured.
    pub(super) fn quiet(&self, class: usize) -> Option<f64> {
        if self.is_measured { self.measured_quiet(class) } else { self.loaded.get(class)?.quiet() }
    }

    /// Returns the quiet time of a class in seconds, or `None` if it was not measured by calls that
    /// were alone.
    pub(super) fn measured_quiet(&self, class: usize) -> Option<f64> {
        let quiet = self.quiet.get(class).filter(|quiet| quiet.samples >= MIN_SAMPLES)?;
        Some((quiet.mean - quiet.deviation).max(MIN_QUIET_SHARE * quiet.mean).max(f64::MIN_POSITIVE))
    }

    /// Records a first token that took `seconds`. `work` is that of the call, and `awaiting` that
    /// of all calls that awaited their first token when the call was sent, including its own.
    pub(super) fn observe(&mut self, class: usize, work: u64, awaiting: u64, seconds: f64) {
        let (work, awaiting) = (work as f64, awaiting as f64);
        let others = awaiting - work;
        let is_quiet = match self.work {
            Some(capacity) if self.is_measured => others < QUIET_SHARE * capacity,
            _ => others <= 0.0,
        };
        if let Some(quiet) = self.quiet.get_mut(class).filter(|_| is_quiet) {
            quiet.observe(seconds);
            if !self.is_measured && quiet.samples >= MIN_SAMPLES {
                // The capacity begins anew, because the estimate may have been wrong.
                (self.is_measured, self.is_slow_start, self.work) = (true, true, None);
            }
        }
        if !self.is_measured
            && let Some(loaded) = self.loaded.get_mut(class)
        {
            loaded.observe(awaiting / work, seconds);
        }
        let Some(quiet) = self.quiet(class) else { return };
        let slowdown = (seconds / quiet).min(MAX_SLOWDOWN);
        let Some(capacity) = &mut self.work else {
            self.call = work;
            self.work = Some(FIRST_CALLS * work);
            return;
        };
        self.call += WEIGHT * (work - self.call);
        if awaiting + self.call <= *capacity {
            return;
        }
        let extra = EXTRA_CALLS * self.call;
        let sustainable = |slowdown: f64| GAIN * awaiting / slowdown.max(1.0).powi(2) + extra;
        if self.is_slow_start {
            if sustainable(slowdown) >= *capacity {
                *capacity += work;
                return;
            }
            self.is_slow_start = false;
            self.slowdown = slowdown;
        }
        self.slowdown += WEIGHT * (slowdown - self.slowdown);
        *capacity += WEIGHT * (sustainable(self.slowdown) - *capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a capacity that knows that a first token takes 1 s on a quiet upstream.
    fn quiet() -> FirstTokenCapacity {
        let mut capacity = FirstTokenCapacity::new();
        (0..8).for_each(|_| capacity.observe(0, 512, 512, 1.0));
        capacity
    }

    /// Returns the capacity in calls after 2,000 first tokens of equal calls. At least `least`
    /// calls await their first token, and more as long as there is room. `took` returns the time of
    /// a first token in seconds by their number.
    fn learned(mut capacity: FirstTokenCapacity, least: u64, took: impl Fn(u64) -> f64) -> f64 {
        let call = 512;
        for _ in 0..2_000 {
            let mut awaiting = least;
            while capacity.has_room(awaiting * call) && awaiting < 1_000 {
                awaiting += 1;
            }
            capacity.observe(0, call, awaiting * call, took(awaiting));
        }
        capacity.work() / call as f64
    }

    /// Returns the time of a first token in seconds at an upstream that reads `parallel` prompts at
    /// the same time, each in 1 s.
    fn parallel_time(parallel: f64) -> impl Fn(u64) -> f64 + Copy {
        move |awaiting| (awaiting as f64 / parallel).max(1.0)
    }

    /// Returns a capacity that has seen calls only while eight awaited their first token.
    fn overlapping(took: impl Fn(u64) -> f64) -> FirstTokenCapacity {
        let mut capacity = FirstTokenCapacity::new();
        (0..1_000).for_each(|_| capacity.observe(0, 512, 8 * 512, took(8)));
        capacity
    }

    #[test]
    fn capacity_is_unknown_before_the_first_measurement() {
        let capacity = FirstTokenCapacity::new();
        assert!(capacity.work().is_infinite() && capacity.has_room(u64::MAX / 2));
    }

    #[test]
    fn capacity_follows_what_upstream_serves_in_parallel() {
        for parallel in [1.0, 2.0, 5.0, 20.0, 60.0] {
            let capacity = learned(quiet(), 0, parallel_time(parallel));
            assert!((parallel..=1.25 * parallel + 1.5).contains(&capacity), "{parallel}: {capacity}");
        }
    }

    #[test]
    fn capacity_is_known_if_calls_overlap_from_the_start() {
        let capacity = overlapping(parallel_time(1.0));
        let calls = capacity.work() / 512.0;
        assert!((1.0..=2.0).contains(&calls), "one prompt is read at a time: {calls}");
        assert_eq!((capacity.room(0), capacity.measured_quiet(0)), (0.0, None));
    }

    /// Before it is corrected, the estimate is too low if the upstream reads several prompts at the
    /// same time.
    #[test]
    fn calls_that_are_alone_correct_the_estimate() {
        for parallel in [1.0, 5.0, 20.0, 60.0] {
            let took = parallel_time(parallel);
            let mut capacity = overlapping(took);
            assert!(capacity.has_room(0) && !capacity.has_room(2 * 512), "{parallel}");
            (0..8).for_each(|_| capacity.observe(0, 512, 512, took(1)));
            let time = capacity.quiet(0).unwrap();
            assert!((time - 1.0).abs() < 1e-9, "{parallel}: {time}");
            let calls = learned(capacity, 0, took);
            assert!((parallel..=1.25 * parallel + 1.5).contains(&calls), "{parallel}: {calls}");
        }
    }

    /// Two tenants are held to one call each, so that no call is alone.
    #[test]
    fn estimate_is_corrected_if_no_call_is_alone() {
        for parallel in [1.0, 5.0, 20.0, 60.0] {
            let took = parallel_time(parallel);
            let calls = learned(overlapping(took), 2, took);
            assert!((0.5 * parallel..=1.25 * parallel + 1.5).contains(&calls), "{parallel}: {calls}");
        }
    }

    /// Calls that arrive together after a restart show at once how the upstream reads prompts.
    #[test]
    fn burst_after_restart_shows_what_upstream_serves_in_parallel() {
        for parallel in [1.0, 5.0, 20.0] {
            let (took, mut capacity) = (parallel_time(parallel), FirstTokenCapacity::new());
            (1..=8).chain([8; 100]).for_each(|awaiting| {
                capacity.observe(0, 512, awaiting * 512, took(awaiting));
            });
            let calls = capacity.work() / 512.0;
            let least = 0.5 * parallel.min(8.0);
            assert!((least..=1.25 * parallel + 1.5).contains(&calls), "{parallel}: {calls}");
        }
    }

    #[test]
    fn capacity_grows_again_after_congestion() {
        let (mut capacity, call) = (quiet(), 512);
        for _ in 0..200 {
            let awaiting = (capacity.work() / call as f64).min(100.0) as u64;
            capacity.observe(0, call, awaiting.max(2) * call, 3.0);
        }
        let before = capacity.work();
        for _ in 0..400 {
            let awaiting = (capacity.work() / call as f64).min(100.0) as u64;
            capacity.observe(0, call, awaiting.max(1) * call, 1.0);
        }
        assert!(capacity.work() > 5.0 * before, "{before}, then {}", capacity.work());
    }

    #[test]
    fn few_slow_calls_leave_a_finite_capacity() {
        let mut capacity = FirstTokenCapacity::new();
        (0..500).for_each(|n| capacity.observe(0, 512, 512, if n % 6 == 0 { 15.0 } else { 1.0 }));
        assert!(capacity.quiet(0).is_some_and(|quiet| quiet > 0.2), "{:?}", capacity.quiet(0));
        (0..500).for_each(|n| capacity.observe(0, 512, 5_120, if n % 6 == 0 { 1e9 } else { 1.0 }));
        assert!(capacity.work().is_finite() && capacity.work() >= 512.0, "{}", capacity.work());
        assert_eq!(capacity.room(u64::MAX), 0.0);
    }

    #[test]
    fn calls_below_the_capacity_show_nothing() {
        let mut capacity = quiet();
        (0..50).for_each(|_| capacity.observe(0, 512, 10_000, 1.0));
        let before = capacity.work();
        (0..50).for_each(|_| capacity.observe(0, 512, 2_048, 4.0));
        assert!((capacity.work() - before).abs() < 1e-9);
    }
}
