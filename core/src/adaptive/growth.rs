//! How the slots grow, call in time by call in time.

/// Calls in time that the first trial waits for, and those that do after one failed: a trial that fails makes one or two calls late.
const FIRST: u32 = 64;
const LONGEST: u32 = 100;
/// Calls in time that a new level must have seen before it is trusted: so many, or a share of the slots.
const PROOF: u32 = 8;
const SHARE: f64 = 0.125;

/// What the next raise waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Growth {
    /// Slow start: each call in time raises by one, so that the slots double in the time that a call is judged in. Where calls awaiting their first
    /// token are bounded that is safe also later: a raise then only makes room for the call whose first token just came.
    Free,
    /// After the first cut: one more slot for each round of calls in time.
    Additive,
    /// A level is known that is too much, and only trying can tell whether it still is.
    Probing(Probing),
}

/// Trials, one after the other. One that fails makes the next wait longer; each that succeeds makes the next one bolder, so that what has come back is
/// found in a few.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probing {
    /// Calls in time until the next trial.
    left: u32,
    /// What a trial that fails waits for next time.
    wait: u32,
    /// By how many slots the next one raises.
    step: f64,
    /// By how many the one that is on raised; 0: none is.
    trial: f64,
    /// Calls in time until it has succeeded.
    proof: u32,
}

impl Growth {
    /// A level was found that is too much.
    pub(super) fn caught(self) -> Self {
        let wait = match self {
            Growth::Probing(probing) if probing.trial > 0.0 => (probing.wait * 2).min(LONGEST),
            Growth::Probing(probing) => probing.wait,
            Growth::Free | Growth::Additive => FIRST,
        };
        Growth::Probing(Probing { left: wait, wait, step: 1.0, trial: 0.0, proof: 0 })
    }

    /// A call was in time. `full`: all of so many slots were taken while it was on its way. Says by how much to raise them.
    pub(super) fn in_time(&mut self, slots: f64, full: bool) -> f64 {
        match self {
            Growth::Free if full => 1.0,
            Growth::Additive if full => 1.0 / slots,
            Growth::Free | Growth::Additive => 0.0,
            Growth::Probing(probing) => probing.in_time(slots, full),
        }
    }

    /// What is on trial, in slots; 0: nothing is.
    pub(super) fn trial(self) -> f64 {
        if let Growth::Probing(probing) = self { probing.trial } else { 0.0 }
    }
}

impl Probing {
    fn in_time(&mut self, slots: f64, full: bool) -> f64 {
        if self.trial > 0.0 {
            self.proof = self.proof.saturating_sub(1);
            if self.proof == 0 {
                self.trial = 0.0;
                self.left = 1;
                self.wait = FIRST;
                self.step = (2.0 * self.step).min(slots / 4.0).max(1.0);
            }
        }
        if !full || self.trial > 0.0 {
            return 0.0;
        }
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return 0.0;
        }
        self.trial = self.step;
        self.proof = PROOF.max((slots * SHARE) as u32);
        self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls in time until the next raise, and that raise.
    fn next(growth: &mut Growth, slots: f64) -> (u32, f64) {
        (1..).map(|n| (n, growth.in_time(slots, true))).find(|(_, by)| *by > 0.0).unwrap()
    }

    #[test]
    fn slow_start_doubles_and_what_comes_after_adds_one_a_round() {
        assert_eq!(Growth::Free.in_time(8.0, true), 1.0);
        assert_eq!(Growth::Additive.in_time(8.0, true), 0.125);
        assert_eq!(Growth::Free.in_time(8.0, false), 0.0, "nobody asks for more");
    }

    #[test]
    fn trials_that_fail_become_rare_and_those_that_succeed_bold() {
        let mut growth = Growth::Free.caught();
        assert_eq!(next(&mut growth, 40.0), (FIRST, 1.0));
        for wait in [LONGEST, LONGEST] {
            growth = growth.caught();
            assert_eq!(next(&mut growth, 40.0), (wait, 1.0));
        }
        for step in [2.0, 4.0, 8.0, 10.0] {
            assert_eq!(next(&mut growth, 40.0), (PROOF, step));
        }
        growth = growth.caught();
        assert_eq!(next(&mut growth, 40.0).1, 1.0, "what was known before is known no more");
    }

    #[test]
    fn a_trial_that_succeeded_is_none_any_more() {
        let mut growth = Growth::Free.caught();
        next(&mut growth, 40.0);
        assert_eq!(growth.trial(), 1.0);
        (0..PROOF).for_each(|_| assert_eq!(growth.in_time(41.0, false), 0.0));
        assert_eq!(growth.trial(), 0.0);
    }
}
