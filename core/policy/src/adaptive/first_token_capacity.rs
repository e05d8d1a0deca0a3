//! First-token capacity: how much prefill work keeps an upstream busy without a queue.
//!
//! # Algorithm
//!
//! By Little's law, the work in an upstream that does not queue is the rate of first tokens times
//! their *quiet* time, that is, the time that a first token takes on an uncongested upstream. If the
//! calls that await their first token have the work `w` and each takes `s` times its quiet time, the
//! upstream works on `w / s` of it, and the rest is queued. Throughput is in proportion to `w / s` and
//! delay to `s`, so the capacity follows `w / s²`, which also counts what the queue costs. Like the
//! window of TCP Vegas, it exceeds this by about a call, so that it can grow.
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

/// Work of a prompt without tokens. A step of an engine takes as long as some hundred tokens of
/// prefill, however short the prompts are.
const FIXED_WORK: u64 = 256;
/// Factor by which the capacity may grow if nothing is queued.
const GAIN: f64 = 1.05;
/// Number of calls by which the capacity exceeds what the upstream works on.
const EXTRA_CALLS: f64 = 1.0;
/// Number of calls that are permitted before the first measurement.
const FIRST_CALLS: f64 = 2.0;
/// Weight of a new value in the exponentially decaying means.
const WEIGHT: f64 = 1.0 / 8.0;

/// Returns the work that the upstream does before the first token of a call with a prompt of `input`
/// tokens, in tokens of prefill.
pub(crate) fn first_token_work(input: u64) -> u64 {
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
}

impl FirstTokenCapacity {
    pub(super) fn new() -> Self {
        Self { work: None, call: 0.0, slowdown: 1.0, is_slow_start: true }
    }

    /// Returns the capacity. Infinite before the first measurement.
    pub(super) fn work(&self) -> f64 {
        self.work.unwrap_or(f64::INFINITY)
    }

    /// Returns `true` if another call does not exceed the capacity while calls with the work
    /// `awaiting` await their first token. One call may always await it.
    pub(super) fn has_room(&self, awaiting: u64) -> bool {
        awaiting == 0 || awaiting as f64 + self.call <= self.work()
    }

    /// Records a first token that took `slowdown` times its quiet time. `work` is that of the call,
    /// and `awaiting` that of all calls that awaited their first token when the call was sent,
    /// including its own.
    pub(super) fn observe(&mut self, work: u64, awaiting: u64, slowdown: f64) {
        let (work, awaiting) = (work as f64, awaiting as f64);
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

    /// Returns the capacity in calls after `tokens` first tokens of equal calls, where `slowdown`
    /// returns the slowdown by the number of calls that await their first token.
    fn learned(tokens: usize, slowdown: impl Fn(u64) -> f64) -> f64 {
        let (mut capacity, call) = (FirstTokenCapacity::new(), 512);
        for _ in 0..tokens {
            let mut awaiting = 0;
            while capacity.has_room(awaiting * call) && awaiting < 1_000 {
                awaiting += 1;
            }
            capacity.observe(call, awaiting * call, slowdown(awaiting));
        }
        capacity.work() / call as f64
    }

    #[test]
    fn capacity_is_unknown_before_the_first_measurement() {
        let capacity = FirstTokenCapacity::new();
        assert!(capacity.work().is_infinite() && capacity.has_room(u64::MAX / 2));
    }

    #[test]
    fn capacity_follows_what_upstream_serves_in_parallel() {
        for parallel in [1.0, 2.0, 5.0, 20.0, 60.0] {
            let capacity = learned(2_000, |awaiting| (awaiting as f64 / parallel).max(1.0));
            assert!((parallel..=1.25 * parallel + 1.5).contains(&capacity), "{parallel}: {capacity}");
        }
    }

    #[test]
    fn capacity_grows_again_after_congestion() {
        let (mut capacity, call) = (FirstTokenCapacity::new(), 512);
        for _ in 0..200 {
            let awaiting = (capacity.work() / call as f64).min(100.0) as u64;
            capacity.observe(call, awaiting.max(1) * call, 3.0);
        }
        let before = capacity.work();
        for _ in 0..400 {
            let awaiting = (capacity.work() / call as f64).min(100.0) as u64;
            capacity.observe(call, awaiting * call, 1.0);
        }
        assert!(capacity.work() > 5.0 * before, "{before}, then {}", capacity.work());
    }

    #[test]
    fn calls_below_the_capacity_show_nothing() {
        let mut capacity = FirstTokenCapacity::new();
        (0..50).for_each(|_| capacity.observe(512, 10_000, 1.0));
        let before = capacity.work();
        (0..50).for_each(|_| capacity.observe(512, 512, 4.0));
        assert!((capacity.work() - before).abs() < 1e-9);
    }
}
