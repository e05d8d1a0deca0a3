//! Infers the window of a limit whose header does not name it.
//!
//! # Algorithm
//!
//! Most limits are per minute, but Groq announces requests per day under the same header name. A
//! token bucket refills at the limit's rate, so `reset * limit / used` is its window whatever
//! amount is used. For a fixed window, that figure is meaningless and changes with the amount used.
//!
//! A window is therefore accepted if the figure is close to a common window in two responses in a
//! row with clearly different amounts used. The amounts need not differ if the reset is longer than
//! a minute, because such a reset cannot belong to a minute. A window of one second needs more
//! responses, because a wrong guess would send sixty times too much.

use std::time::Duration;

use tidegate_protocol::rate::Window;

const MINUTE: u64 = 60;
const COMMON_WINDOWS: [u64; 4] = [1, MINUTE, 3_600, 86_400];

/// Relative tolerance of a window. For a fixed window, two figures within this tolerance have
/// amounts that differ by less than [`MIN_USAGE_RATIO`].
const TOLERANCE: f64 = 1.15;
/// Factor by which the amounts used must differ.
const MIN_USAGE_RATIO: f64 = 1.5;
/// Responses that must agree on a window of one second.
const SECOND_MIN_AGREEING: u32 = 10;

/// Responses that must agree before the provider counts as a token bucket, and that must disagree
/// in a row before it no longer does.
const PROOF_RESPONSES: u32 = 20;

/// The windows suggested by the responses so far.
#[derive(Debug, Default)]
pub(super) struct WindowHint {
    last: Option<Guess>,
    /// Number of responses in a row that disagreed since the provider was found to be a token
    /// bucket per minute. `None` if it was not.
    proven: Option<u32>,
}

/// A window that consecutive responses agree on.
#[derive(Clone, Copy, Debug)]
struct Guess {
    window: u64,
    /// Smallest and largest amount used in the responses that agreed.
    least: u64,
    most: u64,
    agreed: u32,
}

impl WindowHint {
    /// Returns `true` if the provider is a token bucket per minute, because `remaining` and `reset`
    /// have matched one for a while.
    pub(super) fn is_token_bucket(&self) -> bool {
        self.proven.is_some()
    }

    /// Records a response. Returns the window of the limit once it is known.
    pub(super) fn observe(&mut self, report: &Window) -> Option<Duration> {
        let window = self.update_guess(report);
        let proof = self.last.filter(|last| last.window == MINUTE && last.agreed >= PROOF_RESPONSES);
        self.proven = match self.proven {
            _ if proof.is_some_and(|proof| proof.most as f64 >= MIN_USAGE_RATIO * proof.least as f64) => {
                Some(0)
            }
            Some(differed) if self.last.is_none() => {
                Some(differed + 1).filter(|differed| *differed < PROOF_RESPONSES)
            }
            // Responses that agree but prove nothing do not disagree either.
            proven => proven.map(|_| 0),
        };
        window
    }

    /// Updates the guess with a response. Returns the window if enough responses agree.
    fn update_guess(&mut self, report: &Window) -> Option<Duration> {
        let (limit, remaining, reset) = (report.limit?, report.remaining?, report.reset?);
        let used = limit.checked_sub(remaining).filter(|used| *used > 0)?;
        let seconds = reset.as_secs_f64() * limit as f64 / used as f64;
        let near = |window: &u64| {
            let ratio = seconds / *window as f64;
            ratio < TOLERANCE && ratio > 1.0 / TOLERANCE
        };
        let Some(window) = COMMON_WINDOWS.into_iter().find(near) else {
            self.last = None;
            return None;
        };
        let fresh = Guess { window, least: used, most: used, agreed: 0 };
        let mut guess = self.last.filter(|last| last.window == window).unwrap_or(fresh);
        guess.least = guess.least.min(used);
        guess.most = guess.most.max(used);
        guess.agreed = guess.agreed.saturating_add(1);
        self.last = Some(guess);
        let needed = if window < MINUTE { SECOND_MIN_AGREEING } else { 2 };
        let apart = reset.as_secs() > MINUTE || guess.most as f64 >= MIN_USAGE_RATIO * guess.least as f64;
        let believed = guess.agreed >= needed && apart;
        believed.then(|| Duration::from_secs(window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(limit: u64, remaining: u64, reset: f64) -> Window {
        let reset = Some(Duration::from_secs_f64(reset));
        Window { limit: Some(limit), remaining: Some(remaining), reset, over: None }
    }

    #[test]
    fn groq_request_limit_is_daily() {
        let mut hint = WindowHint::default();
        assert_eq!(hint.observe(&report(14_400, 14_399, 6.0)), None);
        assert_eq!(hint.observe(&report(14_400, 14_398, 12.0)), Some(Duration::from_secs(86_400)));
        let mut hint = WindowHint::default();
        assert_eq!(hint.observe(&report(6_000, 5_000, 10.0)), None);
        assert_eq!(hint.observe(&report(6_000, 4_000, 20.0)), Some(Duration::from_secs(60)));
    }

    #[test]
    fn token_bucket_is_detected_and_forgotten() {
        let mut hint = WindowHint::default();
        let bucket = |used: u64| report(6_000, 6_000 - used, used as f64 / 100.0);
        (0..30).for_each(|_| {
            hint.observe(&bucket(1_000));
        });
        assert!(!hint.is_token_bucket(), "one figure again and again is no proof");
        (1_000..1_600).for_each(|used| {
            hint.observe(&bucket(used));
        });
        assert!(hint.is_token_bucket());
        (0..19).for_each(|_| {
            hint.observe(&report(6_000, 5_000, 59.0));
        });
        assert!(hint.is_token_bucket());
        hint.observe(&report(6_000, 5_000, 59.0));
        assert!(!hint.is_token_bucket());
        // Fixed minutes, used at several rates.
        for rate in [20, 60, 100, 200, 500] {
            let mut hint = WindowHint::default();
            for tenth in 1..600 {
                let used = (rate * tenth / 10).min(6_000);
                hint.observe(&report(6_000, 6_000 - used, 60.0 - tenth as f64 / 10.0));
                assert!(!hint.is_token_bucket(), "{rate} {tenth}");
            }
        }
    }

    #[test]
    fn fixed_window_reset_suggests_no_other_window() {
        let mut hint = WindowHint::default();
        for second in 0..59u64 {
            let remaining = 1_000 - 17 * second;
            let window = hint.observe(&report(1_000, remaining, 60.0 - second as f64));
            assert!(window.is_none_or(|window| window.as_secs() == 60), "{second} {window:?}");
        }
        assert_eq!(hint.observe(&report(0, 0, 1.0)), None);
        assert_eq!(hint.observe(&report(1, u64::MAX, 1e9)), None);
    }
}
