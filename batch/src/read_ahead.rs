//! Decides how many lines are read ahead, so that the gate always finds a waiting call but memory
//! stays bounded.
//!
//! The required number is not known in advance: a time window that opens takes hundreds of calls at
//! once, a limit of eight takes one at a time. The number starts small, doubles whenever no call
//! was left waiting, and slowly decreases when it was not needed. Pure: all events are inputs.

/// The number of lines to read ahead.
#[derive(Clone, Copy, Debug)]
pub struct ReadAhead {
    keep: usize,
    /// Minimum number of waiting calls since the last tick.
    low: usize,
}

const MIN_WAITING: usize = 16;
const MAX_WAITING: usize = 2_048;
/// Maximum number of calls that have not ended, which bounds memory and the calls that a crash may
/// bill twice.
const MAX_OPEN_CALLS: usize = 8_192;
/// Maximum size of all open requests, in bytes, unless there is only one.
const MAX_OPEN_BYTES: usize = 256 << 20;

/// The calls that were handed to the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenCalls {
    /// Calls that have not ended.
    pub calls: usize,
    /// Calls that were not sent yet.
    pub waiting: usize,
    /// Total size of their requests, in bytes.
    pub bytes: usize,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self { keep: MIN_WAITING, low: MIN_WAITING }
    }
}

impl ReadAhead {
    /// Returns `true` if another line should be read.
    pub fn wants(&self, open: &OpenCalls) -> bool {
        open.calls == 0
            || (open.waiting < self.keep && open.calls < MAX_OPEN_CALLS && open.bytes < MAX_OPEN_BYTES)
    }

    /// Records that a call was sent and how many calls still wait.
    pub fn sent(&mut self, waiting: usize) {
        self.low = self.low.min(waiting);
        if waiting == 0 {
            self.keep = (2 * self.keep).min(MAX_WAITING);
            // The next calls show whether the new number is enough.
            self.low = self.keep;
        }
    }

    /// Records that a second has passed.
    pub fn tick(&mut self) {
        if self.low > self.keep / 2 {
            self.keep = (self.keep - self.keep / 8).max(MIN_WAITING);
        }
        self.low = self.keep;
    }

    /// Returns the intended number of waiting calls.
    pub fn keep(&self) -> usize {
        self.keep
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Simulates a gate that sends `rate` calls per millisecond, in one burst per `every`
    /// milliseconds. Returns how many calls were missing, and the maximum number of waiting calls.
    fn starved(rate: usize, every: usize, seconds: usize) -> (usize, usize) {
        let (mut window, mut open) = (ReadAhead::default(), OpenCalls::default());
        let (mut missed, mut most) = (0, 0);
        for ms in 0..1_000 * seconds {
            while window.wants(&open) {
                open.calls += 1;
                open.waiting += 1;
            }
            most = most.max(open.waiting);
            if ms % every == 0 {
                let sent = open.waiting.min(rate * every);
                // The first seconds are a learning phase.
                missed += if ms > 3_000 { rate * every - sent } else { 0 };
                for _ in 0..sent {
                    open.waiting -= 1;
                    open.calls -= 1;
                    window.sent(open.waiting);
                }
            }
            if ms % 1_000 == 999 {
                window.tick();
            }
        }
        (missed, most)
    }

    #[test]
    fn window_grows_for_bursts_and_stays_small_for_a_slow_gate() {
        assert_eq!(starved(1, 1, 20).0, 0);
        assert_eq!(starved(1, 500, 20).0, 0, "500 at once, twice a second");
        let (missed, most) = starved(4, 1, 20);
        assert!(missed == 0 && most <= 64, "{missed} {most}");
    }

    proptest! {
        /// Reading never blocks while nothing is open, and memory is bounded, for any sequence of
        /// events.
        #[test]
        fn window_is_bounded_and_never_blocks(steps in prop::collection::vec((0u8..4, 0usize..5_000, 0usize..20_000, 0usize..600), 0..200)) {
            let mut window = ReadAhead::default();
            for (what, waiting, calls, megabytes) in steps {
                match what {
                    0 => window.sent(waiting),
                    1 => window.tick(),
                    _ => {}
                }
                prop_assert!((MIN_WAITING..=MAX_WAITING).contains(&window.keep()));
                let open = OpenCalls { calls: calls.max(waiting), waiting, bytes: megabytes << 20 };
                if open.calls >= MAX_OPEN_CALLS || (open.bytes >= MAX_OPEN_BYTES && open.calls > 0) { prop_assert!(!window.wants(&open)); }
                let idle = OpenCalls { calls: 0, waiting: 0, ..open };
                prop_assert!(window.wants(&idle));
            }
        }
    }
}
