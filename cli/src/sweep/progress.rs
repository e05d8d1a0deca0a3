//! Shows the progress of a sweep on standard error: a line for each completed step and, for the
//! current state, a line that is updated on a terminal and printed at each change otherwise.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_sweep::search_result::Purpose;
use tidegate_sweep::{SweepProgress, SweepState};

use super::render_result;
use crate::output::note;

pub(super) struct ProgressDisplay {
    bar: Option<ProgressBar>,
    last: Option<SweepState>,
}

impl ProgressDisplay {
    pub(super) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            // The template is constant and valid.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar, last: None }
    }

    pub(super) fn show(&mut self, progress: &SweepProgress) {
        if let Some(step) = &progress.step_ended {
            self.line(&render_result::step(step));
        }
        let changed = self.last.replace(progress.state) != Some(progress.state);
        match &self.bar {
            Some(bar) => bar.set_message(line(progress)),
            None if changed => note(line(progress)),
            None => {}
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => note(text),
        }
    }

    /// Removes the line that shows the current progress from the terminal.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(progress: &SweepProgress) -> String {
    let bound =
        |cap: Option<usize>, unknown: &str| cap.map_or_else(|| unknown.to_owned(), |cap| cap.to_string());
    let state = match progress.state {
        SweepState::Preflight => "preflight call".to_owned(),
        SweepState::Holding { cap, purpose, .. } => format!("cap {cap} ({})", describe_purpose(purpose)),
        SweepState::Resting { seconds } => format!("pausing for {}", render_result::time(seconds)),
        SweepState::Ending => "shutting down".to_owned(),
    };
    let eta =
        progress.eta.map_or_else(String::new, |eta| format!(", about {} left", render_result::time(eta)));
    format!(
        "{state}: {} in flight, {} waiting; cap between {} and {}; used {}{eta}",
        progress.in_flight,
        progress.waiting,
        bound(progress.good, "?"),
        bound(progress.bad, "?"),
        render_result::spend(&progress.spend),
    )
}

fn describe_purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Ramp => "raising",
        Purpose::Narrow => "narrowing",
        Purpose::Reference => "re-measuring",
        Purpose::Drain => "using up saved rate",
        Purpose::Confirm => "confirming",
    }
}
