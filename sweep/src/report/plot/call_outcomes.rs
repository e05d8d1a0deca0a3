//! Plot of how calls ended, as stacked shares per cap.

use maud::{Markup, html};

use super::Plot;
use super::frame::{Area, Entry, Swatch, left_axis, line, px, text, text_width};
use super::scale::Scale;
use crate::observation::FailureCause;
use crate::report::format::{CAUSES, cause, count, share, short};
use crate::report::steps_by_cap::StepsAtCap;
use crate::sweep_outcome::{CallOutcomes, SweepOutcome};

/// A part of a stack: its CSS class, its name, and its number of calls.
type Part = (&'static str, &'static str, usize);

pub(super) fn plot(outcome: &SweepOutcome, caps: &[StepsAtCap<'_>], width: f64) -> Option<Plot> {
    let stacks: Vec<(usize, Vec<Part>)> =
        caps.iter().map(|pooled| (pooled.cap, parts(&pooled.call_outcomes(outcome)))).collect();
    let stacks: Vec<_> = stacks.into_iter().filter(|(_, parts)| total(parts) > 0).collect();
    if stacks.is_empty() {
        return None;
    }
    let mut legend: Vec<Entry> = Vec::new();
    for (class, name, _) in stacks.iter().flat_map(|(_, parts)| parts).filter(|part| part.2 > 0) {
        if !legend.iter().any(|(_, known, _)| known == class) {
            legend.push((Swatch::Box, class, (*name).to_owned()));
        }
    }
    let area = Area::below(&legend, width, 300.0);
    let y = Scale::shares(area.y());
    let slot = (area.right - area.left) / stacks.len() as f64;
    let numbers = stacks.iter().map(|(cap, _)| text_width(&short(*cap as f64))).fold(0.0, f64::max) + 6.0;
    let every = (numbers / slot).ceil().max(1.0) as usize;
    let marks = html! {
        (left_axis(&area, &y, "share of calls", share))
        @for (i, (cap, parts)) in stacks.iter().enumerate() {
            @let middle = area.left + (i as f64 + 0.5) * slot;
            (stack(*cap, parts, middle, (slot * 0.72).min(48.0), &y))
            @if i % every == 0 { (number(outcome, *cap, middle, &area)) }
        }
        (line("tg-base", (area.left, area.bottom), (area.right, area.bottom)))
        (text("tg-unit", area.right, area.bottom + 35.0, "end", "cap (slots)"))
    };
    let description = format!(
        "Shares of calls that completed at once, completed after retries, or failed, by cause, at {} caps.",
        stacks.len()
    );
    Some(Plot { entries: legend, area, marks, description, note: None })
}

fn number(outcome: &SweepOutcome, cap: usize, x: f64, area: &Area) -> Markup {
    let class = if outcome.answer.cap == Some(cap) { "tg-text tg-strong" } else { "tg-text" };
    text(class, x, area.bottom + 19.0, "middle", &short(cap as f64))
}

fn stack(cap: usize, parts: &[Part], middle: f64, width: f64, y: &Scale) -> Markup {
    let all = total(parts) as f64;
    let mut below = 0_usize;
    html! {
        @for (class, name, n) in parts.iter().filter(|part| part.2 > 0) {
            @let (bottom, top) = (y.at(below as f64 / all), y.at((below + n) as f64 / all));
            rect class={ "tg-fill " (class) } x=(px(middle - width / 2.0)) y=(px(top)) width=(px(width)) height=(px(bottom - top)) {
                title { "cap " (cap) ": " (name) " " (share(*n as f64 / all)) " (" (count(*n as u64)) " of " (count(all as u64)) ")" }
            }
            @let () = below += n;
        }
    }
}

fn total(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.2).sum()
}

fn parts(outcomes: &CallOutcomes) -> Vec<Part> {
    let mut parts = vec![
        ("tg-completed", "completed at once", outcomes.first_try),
        ("tg-retried", "after retries", outcomes.retried),
    ];
    parts.extend(CAUSES.map(|why| (class(why), cause(why), outcomes.failed.get(&why).copied().unwrap_or(0))));
    parts
}

fn class(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Limited => "tg-limited",
        FailureCause::Overloaded => "tg-overloaded",
        FailureCause::Server => "tg-server",
        FailureCause::Timeout => "tg-timeout",
        FailureCause::Connection => "tg-connection",
        FailureCause::Truncated => "tg-truncated",
        FailureCause::Request => "tg-request",
    }
}
