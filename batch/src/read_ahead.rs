//! How many lines are read ahead: so many that the gate never looks for a call and finds none, and no more.
//!
//! A slot or a quota that opens is to find calls waiting. How many is not known beforehand: a window that opens by the clock takes hundreds at once, a limit of eight takes
//! one at a time. So the policy begins small, doubles each time that nobody was left waiting, and forgets slowly what it did not need. Pure: told what happened,
//! it says how many.

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct ReadAhead {
    keep: usize,
    /// The fewest that waited since the last tick.
    low: usize,
}

const MIN_WAITING: usize = 16;
const MAX_WAITING: usize = 2_048;
/// Lines that have been given to the gate and have not ended, in flight or not: memory, and what a crash may bill twice.
const MAX_OPEN_CALLS: usize = 8_192;
/// And their text, unless it is a single one.
const MAX_OPEN_BYTES: usize = 256 << 20;

/// What the gate has of us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenCalls {
    /// Calls that have not ended.
    pub calls: usize,
    /// Those of them that were not sent yet.
    pub waiting: usize,
    /// Bytes of all of them.
    pub bytes: usize,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self { keep: MIN_WAITING, low: MIN_WAITING }
    }
}

impl ReadAhead {
    /// Whether another line is to be read.
    pub fn wants(&self, open: &OpenCalls) -> bool {
        open.calls == 0
            || (open.waiting < self.keep && open.calls < MAX_OPEN_CALLS && open.bytes < MAX_OPEN_BYTES)
    }

    /// A call was sent: so many still wait.
    pub fn sent(&mut self, waiting: usize) {
        self.low = self.low.min(waiting);
        if waiting == 0 {
            self.keep = (2 * self.keep).min(MAX_WAITING);
            // What comes now shows whether that is enough.
            self.low = self.keep;
        }
    }

    /// A second has passed.
    pub fn tick(&mut self) {
        if self.low > self.keep / 2 {
            self.keep = (self.keep - self.keep / 8).max(MIN_WAITING);
        }
        self.low = self.keep;
    }

    /// How many are to wait.
    pub fn keep(&self) -> usize {
        self.keep
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A gate that sends `rate` calls a millisecond in one burst at the end of every `every`, and whether it ever found too few.
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
                // The first seconds are for learning.
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
        /// Whatever happens: something goes on, and memory is bounded.
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
