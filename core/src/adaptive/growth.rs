//! How the limit grows: quickly where calls say that there is room, by probing where only trying can tell.

/// Calls in time that a first probe waits for, and the most that one waits for.
const FIRST: u32 = 50;
const LONGEST: u32 = 400;
/// Calls in time at a new level before the next raise.
const SETTLED: u32 = 8;

/// What the next raise waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Growth {
    /// Each call in time raises by one, so that the limit doubles in the time that a call is judged in.
    Free,
    /// A level is known that was too much: each raise is a trial.
    Probing {
        /// Calls in time until the next one.
        left: u32,
        /// What a failed trial waits for next time.
        wait: u32,
        /// By how much the next one raises.
        step: f64,
        /// What the last one raised by; 0: none is on trial.
        trial: f64,
    },
}

impl Growth {
    /// A cut has found a level that is too much. A trial that failed waits twice as long as the last one.
    pub(super) fn caught(self) -> Self {
        let wait = match self {
            Growth::Probing { wait, trial, .. } if trial > 0.0 => (wait * 2).min(LONGEST),
            Growth::Probing { wait, .. } => wait,
            Growth::Free => FIRST,
        };
        Growth::Probing { left: wait, wait, step: 1.0, trial: 0.0 }
    }

    /// A call was in time at the full limit: by how much to raise it.
    pub(super) fn in_time(&mut self, slots: f64) -> f64 {
        match self {
            Growth::Free => 1.0,
            Growth::Probing { left, step, trial, wait } => {
                *left = left.saturating_sub(1);
                if *left > 0 {
                    return 0.0;
                }
                // A trial that was passed says that what was known is known no more.
                if *trial > 0.0 {
                    *wait = FIRST;
                    *step = (2.0 * *step).min(slots / 4.0).max(1.0);
                }
                *trial = *step;
                *left = SETTLED.max((slots / 8.0) as u32);
                *step
            }
        }
    }

    /// What is on trial, if anything is.
    pub(super) fn trial(self) -> f64 {
        match self {
            Growth::Probing { trial, .. } => trial,
            Growth::Free => 0.0,
        }
    }
}
