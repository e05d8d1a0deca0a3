//! How the slots grow, call in time by call in time.

/// Calls in time that the first trial waits for, and those that do after one failed: a trial that fails makes one or two calls late.
const FIRST_WAIT: u32 = 64;
const MAX_WAIT: u32 = 100;
/// But no more than so many rounds of the slots: few slots see few calls.
const MAX_WAIT_ROUNDS: f64 = 4.0;
/// Calls in time that a new level must have seen before it is trusted: so many, or a share of the slots.
const MIN_PROOF: u32 = 8;
const PROOF_SHARE: f64 = 0.125;

/// What the next raise waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Growth {
    /// Slow start: each call in time raises by one, so that the slots double in the time that a call is judged in. Where calls awaiting their first
    /// token are bounded that is safe also later: a raise then only makes room for the call whose first token just came.
    SlowStart,
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
    calls_until_trial: u32,
    /// What a trial that fails waits for next time.
    wait: u32,
    /// By how many slots the next one raises.
    step: f64,
    /// By how many the one that is on raised; 0: none is.
    trial: f64,
    /// Calls in time until it has succeeded.
    calls_until_proven: u32,
}

impl Growth {
    /// A level was found that is too much.
    pub(super) fn on_overload(self) -> Self {
        let wait = match self {
            Growth::Probing(probing) if probing.trial > 0.0 => (probing.wait * 2).min(MAX_WAIT),
            Growth::Probing(probing) => probing.wait,
            Growth::SlowStart | Growth::Additive => FIRST_WAIT,
        };
        Growth::Probing(Probing {
            calls_until_trial: wait,
            wait,
            step: 1.0,
            trial: 0.0,
            calls_until_proven: 0,
        })
    }

    /// A call was in time. `was_full`: all of so many slots were taken while it was on its way. Says by how much to raise them.
    ///
    /// `sent_since_raise`: it was sent since the last raise.
    pub(super) fn on_in_time(&mut self, slots: f64, was_full: bool, sent_since_raise: bool) -> f64 {
        match self {
            Growth::SlowStart if was_full => 1.0,
            Growth::Additive if was_full => 1.0 / slots,
            Growth::SlowStart | Growth::Additive => 0.0,
            Growth::Probing(probing) => probing.on_in_time(slots, was_full, sent_since_raise),
        }
    }

    /// What is on trial, in slots; 0: nothing is.
    pub(super) fn trial_slots(self) -> f64 {
        if let Growth::Probing(probing) = self { probing.trial } else { 0.0 }
    }
}

impl Probing {
    fn on_in_time(&mut self, slots: f64, was_full: bool, sent_since_raise: bool) -> f64 {
        if !was_full {
            return 0.0;
        }
        if self.trial > 0.0 {
            if !sent_since_raise {
                return 0.0;
            }
            self.calls_until_proven = self.calls_until_proven.saturating_sub(1);
            if self.calls_until_proven == 0 {
                self.trial = 0.0;
                self.calls_until_trial = 1;
                self.wait = FIRST_WAIT;
                self.step = (2.0 * self.step).min(slots / 4.0).max(1.0);
            }
        }
        if self.trial > 0.0 {
            return 0.0;
        }
        self.calls_until_trial =
            self.calls_until_trial.saturating_sub(1).min((MAX_WAIT_ROUNDS * slots) as u32);
        if self.calls_until_trial > 0 {
            return 0.0;
        }
        self.trial = self.step;
        self.calls_until_proven = MIN_PROOF.max((slots * PROOF_SHARE) as u32);
        self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls in time until the next raise, and that raise.
    fn next(growth: &mut Growth, slots: f64) -> (u32, f64) {
        (1..).map(|n| (n, growth.on_in_time(slots, true, true))).find(|(_, by)| *by > 0.0).unwrap()
    }

    #[test]
    fn slow_start_doubles_and_additive_adds_one_per_round() {
        assert_eq!(Growth::SlowStart.on_in_time(8.0, true, true), 1.0);
        assert_eq!(Growth::Additive.on_in_time(8.0, true, true), 0.125);
        assert_eq!(Growth::SlowStart.on_in_time(8.0, false, true), 0.0, "nobody asks for more");
    }

    #[test]
    fn failed_trials_wait_longer_and_successful_ones_step_further() {
        let mut growth = Growth::SlowStart.on_overload();
        assert_eq!(next(&mut growth, 40.0), (FIRST_WAIT, 1.0));
        for wait in [MAX_WAIT, MAX_WAIT] {
            growth = growth.on_overload();
            assert_eq!(next(&mut growth, 40.0), (wait, 1.0));
        }
        for step in [2.0, 4.0, 8.0, 10.0] {
            assert_eq!(next(&mut growth, 40.0), (MIN_PROOF, step));
        }
        growth = growth.on_overload();
        assert_eq!(next(&mut growth, 40.0).1, 1.0, "what was known before is known no more");
    }

    #[test]
    fn only_calls_sent_since_the_raise_prove_a_trial() {
        let mut growth = Growth::SlowStart.on_overload();
        next(&mut growth, 40.0);
        (0..100).for_each(|_| assert_eq!(growth.on_in_time(41.0, true, false), 0.0));
        assert_eq!(growth.trial_slots(), 1.0);
        (1..MIN_PROOF).for_each(|_| assert_eq!(growth.on_in_time(41.0, true, true), 0.0));
        assert_eq!(growth.on_in_time(41.0, true, true), 2.0);
    }

    #[test]
    fn trial_wait_is_limited_for_few_slots() {
        let mut growth = Growth::SlowStart.on_overload();
        assert!(next(&mut growth, 1.0).0 <= 5);
    }
}
