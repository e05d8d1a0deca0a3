//! Which window a limit is meant over, where its name does not say.
//!
//! Most limits are a minute's, but Groq's requests are a day's under the same name. A bucket that fills steadily gives itself away: what is
//! used of it comes back at the limit's rate, so `reset * limit / used` is the window, however much is used. Where a reset is the end of a
//! fixed window instead, that figure means nothing and wanders as more is used. So it is believed when it was near one of the usual windows
//! twice running, with clearly different amounts used.

use std::time::Duration;

use crate::wire::rate::Window;

const MINUTE: u64 = 60;
const USUAL: [u64; 4] = [1, MINUTE, 3_600, 86_400];

/// What the responses so far hint at.
#[derive(Debug, Default)]
pub(super) struct Hint {
    /// The window that the last response was near, and how much was used.
    last: Option<(u64, u64)>,
}

impl Hint {
    /// Takes the next response; a window, once one is believed.
    pub(super) fn hear(&mut self, said: &Window) -> Option<Duration> {
        let (limit, remaining, reset) = (said.limit?, said.remaining?, said.reset?);
        let used = limit.checked_sub(remaining).filter(|used| *used > 0)?;
        let seconds = reset.as_secs_f64() * limit as f64 / used as f64;
        let near = |window: &u64| (0.8..1.25).contains(&(seconds / *window as f64));
        let Some(window) = USUAL.into_iter().find(near) else {
            self.last = None;
            return None;
        };
        match self.last {
            Some((same, before)) if same == window => {
                let (less, more) = (used.min(before), used.max(before));
                if more as f64 >= less as f64 * 1.5 {
                    self.last = Some((window, used));
                    return Some(Duration::from_secs(window));
                }
                None
            }
            _ => {
                self.last = Some((window, used));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(limit: u64, remaining: u64, reset: f64) -> Window {
        Window { limit: Some(limit), remaining: Some(remaining), reset: Some(Duration::from_secs_f64(reset)) }
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
