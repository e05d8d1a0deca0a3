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
const USUAL: [u64; 4] = [1, MINUTE, 3_600, 86_400];

/// How near is near. Of a fixed window, two figures this near to the same belong to amounts that differ by less than [`APART`].
const NEAR: f64 = 1.15;
/// By what factor the amounts must differ.
const APART: f64 = 1.5;
/// Responses that have to agree, for a window of a second.
const PATIENCE: u32 = 10;

/// What the responses so far hint at.
#[derive(Debug, Default)]
pub(super) struct Hint {
    last: Option<Guess>,
}

#[derive(Clone, Copy, Debug)]
struct Guess {
    window: u64,
    /// Of the responses that agreed, the least and the most that was used.
    least: u64,
    most: u64,
    agreed: u32,
}

impl Hint {
    /// Takes the next response; a window, once one is believed.
    pub(super) fn hear(&mut self, said: &Window) -> Option<Duration> {
        let (limit, remaining, reset) = (said.limit?, said.remaining?, said.reset?);
        let used = limit.checked_sub(remaining).filter(|used| *used > 0)?;
        let seconds = reset.as_secs_f64() * limit as f64 / used as f64;
        let near = |window: &u64| {
            let ratio = seconds / *window as f64;
            ratio < NEAR && ratio > 1.0 / NEAR
        };
        let Some(window) = USUAL.into_iter().find(near) else {
            self.last = None;
            return None;
        };
        let fresh = Guess { window, least: used, most: used, agreed: 0 };
        let mut guess = self.last.filter(|last| last.window == window).unwrap_or(fresh);
        guess.least = guess.least.min(used);
        guess.most = guess.most.max(used);
        guess.agreed = guess.agreed.saturating_add(1);
        self.last = Some(guess);
        let needed = if window < MINUTE { PATIENCE } else { 2 };
        let apart = reset.as_secs() > MINUTE || guess.most as f64 >= APART * guess.least as f64;
        let believed = guess.agreed >= needed && apart;
        believed.then(|| Duration::from_secs(window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(limit: u64, remaining: u64, reset: f64) -> Window {
        let reset = Some(Duration::from_secs_f64(reset));
        Window { limit: Some(limit), remaining: Some(remaining), reset, over: None }
    }

    #[test]
    fn requests_of_groq_are_a_days() {
        let mut hint = Hint::default();
        assert_eq!(hint.hear(&said(14_400, 14_399, 6.0)), None);
        assert_eq!(hint.hear(&said(14_400, 14_398, 12.0)), Some(Duration::from_secs(86_400)));
        let mut hint = Hint::default();
        assert_eq!(hint.hear(&said(6_000, 5_000, 10.0)), None);
        assert_eq!(hint.hear(&said(6_000, 4_000, 20.0)), Some(Duration::from_secs(60)));
    }

    #[test]
    fn the_end_of_a_fixed_minute_hints_at_nothing() {
        let mut hint = Hint::default();
        for second in 0..59u64 {
            let remaining = 1_000 - 17 * second;
            let heard = hint.hear(&said(1_000, remaining, 60.0 - second as f64));
            assert!(heard.is_none_or(|window| window.as_secs() == 60), "{second} {heard:?}");
        }
        assert_eq!(hint.hear(&said(0, 0, 1.0)), None);
        assert_eq!(hint.hear(&said(1, u64::MAX, 1e9)), None);
    }
}
