//! Marks of steps in a plot. The shape of a mark shows the verdict of its step.

use maud::{Markup, html};

use super::frame::{Entry, Swatch, cross, dot, line};
use super::scale::Scale;
use crate::report::format::{plural, purpose, verdict};
use crate::report::steps_by_cap::StepsAtCap;
use crate::search_result::{Estimate, StepResult, StepVerdict};
use crate::sweep_outcome::SweepOutcome;

/// Maximum distance between the marks of two steps at the same cap, in pixels.
const MARK_DISTANCE: f64 = 9.0;

/// Returns the steps at a cap with the horizontal positions of their marks, in pixels. The marks
/// are side by side, centred on the cap, and keep a distance from those of the neighbouring caps.
pub(super) fn side_by_side<'a>(
    pooled: &'a StepsAtCap<'a>,
    caps: &'a Scale,
) -> impl Iterator<Item = (&'a StepResult, f64)> {
    let here = caps.at(pooled.cap as f64);
    let next = caps.ticks.iter().map(|cap| (caps.at(*cap) - here).abs()).filter(|away| *away > 0.0);
    let available = next.fold(f64::INFINITY, f64::min) * 0.7;
    let n = pooled.steps.len().saturating_sub(1) as f64;
    let distance = MARK_DISTANCE.min(available / n.max(1.0));
    let (from, to) = caps.ends();
    let place = move |i: usize| (here + (i as f64 - n / 2.0) * distance).clamp(from, to);
    pooled.steps.iter().enumerate().map(move |(i, step)| (*step, place(i)))
}

/// Renders the mark of a step. Its tooltip describes the step, followed by `text`.
pub(super) fn mark(step: &StepResult, class: &str, (x, y): (f64, f64), text: &str) -> Markup {
    html! {
        g class="tg-step" {
            title { (describe_step(step)) ": " (text) }
            @match step.verdict {
                StepVerdict::Accepted => (dot(&format!("tg-dot {class}"), (x, y), 4.0)),
                StepVerdict::Rejected(_) => (cross("tg-rejected", (x, y))),
                StepVerdict::Invalid(_) | StepVerdict::Undecided(_) => (dot("tg-hollow tg-invalid", (x, y), 4.0)),
            }
        }
    }
}

/// Renders a confidence interval as a vertical line at `x`.
pub(super) fn whisker(class: &str, x: f64, scale: &Scale, of: Estimate) -> Markup {
    let (low, high) = (scale.at(of.low), scale.at(of.high));
    html! {
        (line(&format!("tg-whisker {class}"), (x, low), (x, high)))
        (line(&format!("tg-whisker {class}"), (x - 3.0, low), (x + 3.0, low)))
        (line(&format!("tg-whisker {class}"), (x - 3.0, high), (x + 3.0, high)))
    }
}

/// Returns a description of a step in one line: cap, number, purpose, calls, and verdict with its
/// explanation.
pub(super) fn describe_step(step: &StepResult) -> String {
    let (judged, why) = verdict(&step.verdict);
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    format!(
        "cap {}, step {} ({}), {}, {judged}{why}",
        step.cap,
        step.step,
        purpose(step.purpose),
        plural(step.calls, "call")
    )
}

/// Returns the legend entries for rejected steps, for invalid or undecided steps, and for the
/// answer. Omits those that do not occur in the plot.
pub(super) fn entries(outcome: &SweepOutcome, caps: &[StepsAtCap<'_>]) -> Vec<Entry> {
    let any = |is: fn(&StepVerdict) -> bool| caps.iter().flat_map(|p| &p.steps).any(|step| is(&step.verdict));
    let mut entries = Vec::new();
    if any(|v| matches!(v, StepVerdict::Rejected(_))) {
        entries.push((Swatch::Cross, "tg-rejected", "rejected".to_owned()));
    }
    if any(|v| matches!(v, StepVerdict::Invalid(_) | StepVerdict::Undecided(_))) {
        entries.push((Swatch::Hollow, "tg-invalid", "invalid or undecided".to_owned()));
    }
    if outcome.answer.cap.is_some() {
        entries.push((Swatch::Box, "tg-band", "answer and its interval".to_owned()));
    }
    entries
}
