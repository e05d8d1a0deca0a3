//! Infers the window of a limit, such as a minute or a day, if its header does not name the window.
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

use tidegate_protocol::rate::RateWindow;

const MINUTE: u64 = 60;
/// The windows that can be inferred, in seconds.
const COMMON_WINDOWS: [u64; 4] = [1, MINUTE, 3_600, 86_400];

/// Maximum ratio, in either direction, between a calculated window and the common window that it is
/// rounded to.
const TOLERANCE: f64 = 1.15;
/// Minimum ratio between the amounts used in two responses that are compared. In a fixed window,
/// two such responses never suggest the same window.
const MIN_USAGE_RATIO: f64 = 1.5;
/// Number of responses in a row that must suggest a window of one second.
const SECOND_MIN_AGREEING: u32 = 10;

/// Number of responses in a row that must suggest a window of a minute before the provider counts
/// as a token bucket. After as many responses in a row that suggest no window, it no longer does.
const PROOF_RESPONSES: u32 = 20;

/// The window of one limit, as inferred from the responses so far.
#[derive(Debug, Default)]
pub(super) struct WindowHint {
    /// The window that the last responses suggest. `None` if the last one suggested none.
    last: Option<Guess>,
    /// If the provider counts as a token bucket, the number of responses in a row that contradict
    /// this. Otherwise `None`.
    proven: Option<u32>,
    /// Whether the header announces a limit per day.
    pub(super) is_daily: bool,
}

/// A window that one or more responses in a row suggest.
#[derive(Clone, Copy, Debug)]
struct Guess {
    /// Length of the window, in seconds.
    window: u64,
    /// Smallest amount used, in requests or tokens, in the responses that suggest this window.
    least: u64,
    /// Largest amount used, in requests or tokens, in the responses that suggest this window.
    most: u64,
    /// Number of responses in a row that suggest this window.
    agreed: u32,
}

impl WindowHint {
    /// Returns `true` if [`PROOF_RESPONSES`] responses in a row have shown that the provider is a
    /// token bucket that refills within a minute, and fewer in a row have contradicted it since.
    pub(super) fn is_token_bucket(&self) -> bool {
        self.proven.is_some()
    }

    /// Adds the values of a response to the evidence. Returns the length of the window if enough
    /// responses agree on one, otherwise `None`.
    pub(super) fn observe(&mut self, report: &RateWindow) -> Option<Duration> {
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

    /// Compares a response with the previous ones. Returns the window if enough of them agree on
    /// one, otherwise `None`.
    fn update_guess(&mut self, report: &RateWindow) -> Option<Duration> {
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

    fn report(limit: u64, remaining: u64, reset: f64) -> RateWindow {
        let reset = Some(Duration::from_secs_f64(reset));
        RateWindow { limit: Some(limit), remaining: Some(remaining), reset, period: None }
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
