//! Which window a limit is meant over, where its name does not say.
//!
//! Most limits are a minute's, but Groq's requests are a day's under the same name. A bucket that fills steadily gives itself away: what is
//! used of it comes back at the limit's rate, so `reset * limit / used` is the window, however much is used. Where a reset is the end of a
//! fixed window instead, that figure means nothing and wanders as more is used. So it is believed when it was near one of the usual windows
//! twice running, with clearly different amounts used. (How different does not matter where the reset is longer than a minute, so that it
//! cannot be a minute's: who starts with much used already would have to wait half the day to see it differ.) Seconds are believed later, since to be wrong there is to send sixty times too much.

use std::time::Duration;

use crate::wire::rate::Window;

const MINUTE: u64 = 60;
const COMMON_WINDOWS: [u64; 4] = [1, MINUTE, 3_600, 86_400];

/// How near is near. Of a fixed window, two figures this near to the same belong to amounts that differ by less than [`MIN_USAGE_RATIO`].
const TOLERANCE: f64 = 1.15;
/// By what factor the amounts must differ.
const MIN_USAGE_RATIO: f64 = 1.5;
/// Responses that have to agree, for a window of a second.
const SECOND_MIN_AGREEING: u32 = 10;

/// Responses that have to agree for a provider to count as a bucket that fills steadily; and that have to differ, one after the other, for it not to any more.
const PROOF_RESPONSES: u32 = 20;

/// What the responses so far hint at.
#[derive(Debug, Default)]
pub(super) struct WindowHint {
    last: Option<Guess>,
    /// Whether a minute's bucket was proven, and how many responses have differed since.
    proven: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Guess {
    window: u64,
    /// Of the responses that agreed, the least and the most that was used.
    least: u64,
    most: u64,
    agreed: u32,
}

impl WindowHint {
    /// Whether it is a bucket of a minute's limit that fills steadily: what is left, and when all is back, have gone together for a while.
    pub(super) fn is_token_bucket(&self) -> bool {
        self.proven.is_some()
    }

    /// Takes the next response; a window, once one is believed.
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
            // Agreeing ones that are no proof yet do not speak against it.
            proven => proven.map(|_| 0),
        };
        window
    }

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
        // What is left of a fixed minute, at whatever rate it is used.
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
