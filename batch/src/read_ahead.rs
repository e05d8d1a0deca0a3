//! Decides how many lines are read ahead, so that a call always waits in the gate, but memory stays
//! bounded.
//!
//! The required number is not known in advance: when a rate limit's time window opens, hundreds of
//! calls can be sent at once, whereas a concurrency limit of eight admits one at a time. The number
//! starts at 16, doubles when a call is sent and no other call is waiting, and decreases slowly
//! while fewer calls would suffice. The type does no I/O and reads no clock.

/// Decides whether to read another input line, based on a target for the number of calls that wait
/// in the gate.
#[derive(Clone, Copy, Debug)]
pub struct ReadAhead {
    target_waiting: usize,
    /// Lowest number of waiting calls since the last tick or the last increase of the target.
    /// Equals the target if no call was sent since then.
    min_waiting: usize,
}

const MIN_WAITING: usize = 16;
const MAX_WAITING: usize = 2_048;
/// Maximum number of open calls. It bounds the memory, and the calls that a crash may cause to be
/// billed twice.
const MAX_OPEN_CALLS: usize = 8_192;
/// Maximum size of the bodies of all open requests, in bytes. A single request may exceed it.
const MAX_OPEN_BYTES: usize = 256 << 20;

/// The open calls: those that were handed to the gate and have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenCalls {
    /// Number of open calls.
    pub calls: usize,
    /// Number of open calls that were not sent to the provider yet.
    pub waiting: usize,
    /// Total size of the bodies of the open calls, in bytes.
    pub bytes: usize,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self { target_waiting: MIN_WAITING, min_waiting: MIN_WAITING }
    }
}

impl ReadAhead {
    /// Returns `true` if another line should be read now. Always returns `true` if no call is open.
    pub fn wants_line(&self, open: &OpenCalls) -> bool {
        open.calls == 0
            || (open.waiting < self.target_waiting
                && open.calls < MAX_OPEN_CALLS
                && open.bytes < MAX_OPEN_BYTES)
    }

    /// Updates the target after a call was sent. `waiting` is the number of calls that still wait
    /// in the gate. If it is 0, doubles the target, up to 2,048.
    pub fn on_sent(&mut self, waiting: usize) {
        self.min_waiting = self.min_waiting.min(waiting);
        if waiting == 0 {
            self.target_waiting = (2 * self.target_waiting).min(MAX_WAITING);
            // The next calls show whether the new number is enough.
            self.min_waiting = self.target_waiting;
        }
    }

    /// Called once per second. Decreases the target by one eighth, but not below 16, if the number
    /// of waiting calls was more than half of the target during the whole second.
    pub fn on_tick(&mut self) {
        if self.min_waiting > self.target_waiting / 2 {
            self.target_waiting = (self.target_waiting - self.target_waiting / 8).max(MIN_WAITING);
        }
        self.min_waiting = self.target_waiting;
    }

    /// Returns the target for the number of calls that wait in the gate, from 16 to 2,048.
    pub fn target_waiting(&self) -> usize {
        self.target_waiting
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Simulates a gate that can send `rate * every` calls every `every` milliseconds. Returns how
    /// many calls the gate could not send after the first 3 s because their lines were not read
    /// yet, and the maximum number of waiting calls.
    fn starved(rate: usize, every: usize, seconds: usize) -> (usize, usize) {
        let (mut window, mut open) = (ReadAhead::default(), OpenCalls::default());
        let (mut missed, mut max_waiting) = (0, 0);
        for ms in 0..1_000 * seconds {
            while window.wants_line(&open) {
                open.calls += 1;
                open.waiting += 1;
            }
            max_waiting = max_waiting.max(open.waiting);
            if ms % every == 0 {
                let sent = open.waiting.min(rate * every);
                // The first seconds are a learning phase.
                missed += if ms > 3_000 { rate * every - sent } else { 0 };
                for _ in 0..sent {
                    open.waiting -= 1;
                    open.calls -= 1;
                    window.on_sent(open.waiting);
                }
            }
            if ms % 1_000 == 999 {
                window.on_tick();
            }
        }
        (missed, max_waiting)
    }

    #[test]
    fn window_grows_for_bursts_and_stays_small_for_a_slow_gate() {
        assert_eq!(starved(1, 1, 20).0, 0);
        assert_eq!(starved(1, 500, 20).0, 0, "500 at once, twice a second");
        let (missed, max_waiting) = starved(4, 1, 20);
        assert!(missed == 0 && max_waiting <= 64, "{missed} {max_waiting}");
    }

    proptest! {
        /// For any sequence of events: a line is wanted while no call is open, and memory is
        /// bounded.
        #[test]
        fn window_is_bounded_and_never_blocks(steps in prop::collection::vec((0u8..4, 0usize..5_000, 0usize..20_000, 0usize..600), 0..200)) {
            let mut window = ReadAhead::default();
            for (event, waiting, calls, megabytes) in steps {
                match event {
                    0 => window.on_sent(waiting),
                    1 => window.on_tick(),
                    _ => {}
                }
                prop_assert!((MIN_WAITING..=MAX_WAITING).contains(&window.target_waiting()));
                let open = OpenCalls { calls: calls.max(waiting), waiting, bytes: megabytes << 20 };
                if open.calls >= MAX_OPEN_CALLS || (open.bytes >= MAX_OPEN_BYTES && open.calls > 0) { prop_assert!(!window.wants_line(&open)); }
                let idle = OpenCalls { calls: 0, waiting: 0, ..open };
                prop_assert!(window.wants_line(&idle));
            }
        }
    }
}
