//! Marks for steps, whose shape shows the verdict.

use maud::{Markup, html};

use super::frame::{Entry, Sample, cross, dot, line};
use super::scale::Scale;
use crate::outcome::SweepOutcome;
use crate::report::by_cap::Pooled;
use crate::report::format::{of, purpose, verdict};
use crate::result::{Estimate, StepResult, StepVerdict};

/// Distance between the marks of steps at one cap, in pixels.
const APART: f64 = 9.0;

/// Returns the steps at a cap with their positions on the axis, side by side and clear of the next
/// cap.
pub(super) fn beside<'a>(
    pooled: &'a Pooled<'a>,
    caps: &'a Scale,
) -> impl Iterator<Item = (&'a StepResult, f64)> {
    let here = caps.at(pooled.cap as f64);
    let next = caps.ticks.iter().map(|cap| (caps.at(*cap) - here).abs()).filter(|away| *away > 0.0);
    let room = next.fold(f64::INFINITY, f64::min) * 0.7;
    let n = pooled.steps.len().saturating_sub(1) as f64;
    let apart = APART.min(room / n.max(1.0));
    let (from, to) = caps.ends();
    let place = move |i: usize| (here + (i as f64 - n / 2.0) * apart).clamp(from, to);
    pooled.steps.iter().enumerate().map(move |(i, step)| (*step, place(i)))
}

/// Renders a mark. The shape shows the verdict, and the title the rest.
pub(super) fn mark(step: &StepResult, class: &str, (x, y): (f64, f64), told: &str) -> Markup {
    html! {
        g class="tg-step" {
            title { (heading(step)) ": " (told) }
            @match step.verdict {
                StepVerdict::Accepted => (dot(&format!("tg-dot {class}"), (x, y), 4.0)),
                StepVerdict::Rejected(_) => (cross("tg-rejected", (x, y))),
                StepVerdict::Invalid(_) | StepVerdict::Undecided(_) => (dot("tg-hollow tg-invalid", (x, y), 4.0)),
            }
        }
    }
}

/// Renders the interval of a value.
pub(super) fn whisker(class: &str, x: f64, scale: &Scale, of: Estimate) -> Markup {
    let (low, high) = (scale.at(of.low), scale.at(of.high));
    html! {
        (line(&format!("tg-whisker {class}"), (x, low), (x, high)))
        (line(&format!("tg-whisker {class}"), (x - 3.0, low), (x + 3.0, low)))
        (line(&format!("tg-whisker {class}"), (x - 3.0, high), (x + 3.0, high)))
    }
}

/// Describes a step.
pub(super) fn heading(step: &StepResult) -> String {
    let (judged, why) = verdict(&step.verdict);
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    format!(
        "cap {}, step {} ({}), {}, {judged}{why}",
        step.cap,
        step.step,
        purpose(step.purpose),
        of(step.calls, "call")
    )
}

/// Returns the legend entries of the marks that occur.
pub(super) fn entries(outcome: &SweepOutcome, caps: &[Pooled<'_>]) -> Vec<Entry> {
    let any = |is: fn(&StepVerdict) -> bool| caps.iter().flat_map(|p| &p.steps).any(|step| is(&step.verdict));
    let mut entries = Vec::new();
    if any(|v| matches!(v, StepVerdict::Rejected(_))) {
        entries.push((Sample::Cross, "tg-rejected", "rejected".to_owned()));
    }
    if any(|v| matches!(v, StepVerdict::Invalid(_) | StepVerdict::Undecided(_))) {
        entries.push((Sample::Hollow, "tg-invalid", "invalid or undecided".to_owned()));
    }
    if outcome.answer.cap.is_some() {
        entries.push((Sample::Box, "tg-band", "answer, with its interval".to_owned()));
    }
    entries
}
