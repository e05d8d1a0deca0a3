//! Growth of the slots: by how much each call that is not late raises them.
//!
//! After slow start, slots grow additively or in *trials*. A trial raises the slots a little. It
//! succeeds after some calls that are not late, and the raise stays. It fails if calls lose their
//! headroom or become late, and the raise is taken back.

/// Number of calls that are not late from the cut that ends slow start to the first trial (a small
/// raise that is taken back if it fails). The number doubles with each failed trial, up to
/// [`MAX_WAIT`], because a failed trial makes one or two calls late.
const FIRST_WAIT: u32 = 64;
/// Maximum number of calls that are not late from a failed trial to the next one.
const MAX_WAIT: u32 = 100;
/// Upper limit of the number of calls that are not late before a trial, as a multiple of the slots,
/// because few slots produce few calls.
const MAX_WAIT_ROUNDS: f64 = 4.0;
/// Minimum number of calls that are not late after which a trial has succeeded.
const MIN_PROOF: u32 = 8;
/// Number of calls that are not late after which a trial has succeeded, as a share of the slots, if
/// that is more than [`MIN_PROOF`].
const PROOF_SHARE: f64 = 0.125;

/// How the slots grow. The variant changes when the slots are first found to be too many.
#[derive(Clone, Copy, Debug)]
pub(super) enum Growth {
    /// Slow start: each call that is not late raises the slots by one, so that they double within
    /// the latency of a call. [`Limit`](super::Limit) raises them further if the upstream could
    /// process more prompts: streams keep their slots, so few of the calls in flight still await
    /// the first token that raises the slots. Slow start ends with the first cut for which lowering
    /// the first-token limit does not suffice.
    SlowStart,
    /// Additive increase, used after the first cut if `decrease` is a factor or a step: `n` calls
    /// that are not late raise `n` slots by one.
    Additive,
    /// Growth in trials, used after the first cut if `decrease` is `Served`. The previous slots
    /// were too many, and each trial tests whether that is still so.
    Probing(Probing),
}

/// The state of growth in trials. After a failed trial, the wait before the next one is longer.
/// After each success, the next trial raises the slots by more, so that recovered capacity is found
/// in a few trials.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probing {
    /// Number of further calls that are not late after which the next trial begins or, during a
    /// trial, the trial has succeeded.
    calls_left: u32,
    /// Number of calls that are not late from the last cut or failed trial to the next trial.
    wait: u32,
    /// Slots by which the next trial raises the limit.
    step: f64,
    /// Slots by which the current trial raised the limit, or 0 if there is none.
    trial: f64,
}

impl Growth {
    /// Returns the growth to continue with after the slots were found to be too many: a wait before
    /// the next trial. The wait is doubled if a trial was running, because that trial has failed.
    pub(super) fn on_overload(self) -> Self {
        let wait = match self {
            Growth::Probing(probing) if probing.trial > 0.0 => (probing.wait * 2).min(MAX_WAIT),
            Growth::Probing(probing) => probing.wait,
            Growth::SlowStart | Growth::Additive => FIRST_WAIT,
        };
        Growth::Probing(Probing { calls_left: wait, wait, step: 1.0, trial: 0.0 })
    }

    /// Counts a call that was not late. Returns the number of slots by which to raise the limit, or
    /// 0.
    ///
    /// `was_full` is `true` if all slots were used while the call was in flight, and
    /// `sent_since_raise` if the call was sent after the last raise.
    pub(super) fn on_in_time(&mut self, slots: f64, was_full: bool, sent_since_raise: bool) -> f64 {
        match self {
            _ if !was_full => 0.0,
            Growth::SlowStart => 1.0,
            Growth::Additive => 1.0 / slots,
            Growth::Probing(probing) => probing.on_in_time(slots, sent_since_raise),
        }
    }

    /// Returns by how many slots the current trial raised the limit, or 0 if there is no trial.
    pub(super) fn trial_slots(self) -> f64 {
        if let Growth::Probing(probing) = self { probing.trial } else { 0.0 }
    }
}

impl Probing {
    /// Counts a call that was not late and was in flight while all slots were used. Returns the
    /// number of slots by which to raise the limit for the next trial, or 0 if none begins. The
    /// parameters are those of [`Growth::on_in_time`].
    fn on_in_time(&mut self, slots: f64, sent_since_raise: bool) -> f64 {
        let on_trial = self.trial > 0.0;
        if on_trial && !sent_since_raise {
            return 0.0;
        }
        let left = self.calls_left.saturating_sub(1);
        self.calls_left = if on_trial { left } else { left.min((MAX_WAIT_ROUNDS * slots) as u32) };
        if self.calls_left > 0 {
            return 0.0;
        }
        if on_trial {
            // The trial has succeeded, and the next one begins at once.
            self.wait = FIRST_WAIT;
            self.step = (2.0 * self.step).min(slots / 4.0).max(1.0);
        }
        self.calls_left = MIN_PROOF.max((slots * PROOF_SHARE) as u32);
        self.trial = self.step;
        self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts calls that are not late until one of them raises the limit. Returns the number of
    /// calls, and the raise in slots.
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
