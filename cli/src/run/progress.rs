//! Shows the progress of a run on standard error.

use std::collections::VecDeque;
use std::io::IsTerminal;

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidegate_batch::{BatchProgress, Prices, Spend};

use crate::output::note;

/// Seconds between two progress lines if standard error is not a terminal.
const PLAIN_INTERVAL_S: f64 = 10.0;
/// Length of the window over which the displayed rate of lines is averaged, in seconds.
const RATE_WINDOW_S: f64 = 60.0;

/// Minimum duration of an outage of the server, and of a rate limit, that is shown, in seconds.
const MIN_SHOWN_OUTAGE_S: f64 = 10.0;
/// Maximum length of the shown text of a rate limit, in characters.
const MAX_RATE_LIMIT_CHARS: usize = 100;

/// Shows the progress of a run: a bar on a terminal, otherwise one line every [`PLAIN_INTERVAL_S`]
/// seconds.
pub(super) struct ProgressDisplay {
    bar: Option<ProgressBar>,
    quiet: bool,
    /// Number of lines of the input, or `None` if it is unknown because the input can be read only
    /// once.
    total: Option<u64>,
    priced: bool,
    /// The last update, whether it was shown or not.
    last: BatchProgress,
    /// Time of the last update that was shown, in seconds since the start of the run.
    shown_at: f64,
    /// The updates shown during the last [`RATE_WINDOW_S`] seconds: their time in seconds since the
    /// start of the run, and the number of records written by then.
    past: VecDeque<(f64, u64)>,
}

impl ProgressDisplay {
    pub(super) fn new(total: Option<u64>, prices: Prices, quiet: bool) -> Self {
        let bar = (std::io::stderr().is_terminal() && !quiet).then(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            let template =
                if total.is_some() { "{wide_bar} {pos}/{len}\n{msg}" } else { "{spinner} {pos}\n{msg}" };
            bar.with_style(
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        });
        Self {
            bar,
            quiet,
            total,
            priced: prices != Prices::default(),
            last: BatchProgress::default(),
            shown_at: 0.0,
            past: VecDeque::new(),
        }
    }

    /// Returns the last update.
    pub(super) fn last(&self) -> &BatchProgress {
        &self.last
    }

    pub(super) fn update(&mut self, progress: &BatchProgress) {
        self.last.clone_from(progress);
        let now = progress.seconds;
        let every = if self.bar.is_some() { 0.1 } else { PLAIN_INTERVAL_S };
        if self.quiet || now - self.shown_at < every {
            return;
        }
        self.shown_at = now;
        self.past.push_back((now, progress.good + progress.failed));
        while self.past.len() > 2 && self.past.front().is_some_and(|(then, _)| now - then > RATE_WINDOW_S) {
            self.past.pop_front();
        }
        let text = self.text(progress);
        match &self.bar {
            Some(bar) => {
                bar.set_position(done(progress));
                bar.set_message(text);
            }
            None => {
                let all = self.total.map(|total| format!(" of {}", HumanCount(total))).unwrap_or_default();
                note(format_args!("{}{all} lines, {text}", HumanCount(done(progress))));
            }
        }
    }

    /// Removes the bar from the terminal.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn text(&self, progress: &BatchProgress) -> String {
        let rate = self.rate();
        let mut parts = vec![format!("{:.1} lines/s", rate), format!("{} in flight", progress.in_flight)];
        if let Some(seconds) = progress.down_seconds.filter(|seconds| *seconds >= MIN_SHOWN_OUTAGE_S) {
            let down_for = HumanDuration(std::time::Duration::from_secs_f64(seconds));
            parts.push(format!("server down for {down_for}"));
        }
        if let Some(seconds) = progress.rate_limited_seconds.filter(|seconds| *seconds >= MIN_SHOWN_OUTAGE_S)
        {
            let limited_for = HumanDuration(std::time::Duration::from_secs_f64(seconds));
            let why = progress.rate_limit.iter().flat_map(|why| why.chars());
            let why: String = why.take(MAX_RATE_LIMIT_CHARS).collect();
            parts.push(format!("rate limited for {limited_for}: {why}"));
        }
        if progress.failed > 0 {
            parts.push(format!("{} failed", HumanCount(progress.failed)));
        }
        parts.push(format_spend(&progress.spend, self.priced));
        if let Some(total) = self.total.filter(|_| rate > 0.0) {
            let left = total.saturating_sub(done(progress)) as f64 / rate;
            parts.push(format!(
                "about {} left",
                HumanDuration(std::time::Duration::from_secs_f64(left.min(1e9)))
            ));
        }
        parts.join(", ")
    }

    fn rate(&self) -> f64 {
        match (self.past.front(), self.past.back()) {
            (Some((then, before)), Some((now, done))) if now > then => (done - before) as f64 / (now - then),
            (_, Some((now, done))) if *now > 0.0 => *done as f64 / now,
            _ => 0.0,
        }
    }
}

pub(super) fn done(progress: &BatchProgress) -> u64 {
    progress.skipped + progress.good + progress.failed
}

/// Returns the numbers of input and output tokens as text, followed by their cost if `priced` is
/// `true`.
pub(super) fn format_spend(spend: &Spend, priced: bool) -> String {
    let tokens = format!("{} tokens in, {} out", HumanCount(spend.input), HumanCount(spend.output));
    if priced { format!("{tokens}, cost {:.4}", spend.money) } else { tokens }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_states_for_how_long_the_server_has_been_down() {
        let display = ProgressDisplay::new(None, Prices::default(), true);
        let text = |down_seconds| display.text(&BatchProgress { down_seconds, ..BatchProgress::default() });
        let down = text(Some(120.0));
        assert!(down.contains("0 in flight, server down for 2 minutes, "), "{down}");
        assert!(!text(Some(9.0)).contains("down") && !text(None).contains("down"));
    }

    #[test]
    fn text_states_for_how_long_and_why_the_run_is_rate_limited() {
        let display = ProgressDisplay::new(None, Prices::default(), true);
        let text = |rate_limited_seconds| {
            let rate_limit = Some("429 slow down".to_owned());
            display.text(&BatchProgress { rate_limited_seconds, rate_limit, ..BatchProgress::default() })
        };
        let limited = text(Some(120.0));
        assert!(limited.contains("0 in flight, rate limited for 2 minutes: 429 slow down, "), "{limited}");
        assert!(!text(Some(9.0)).contains("limited") && !text(None).contains("limited"));
    }
}
