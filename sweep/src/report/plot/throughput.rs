//! Plot of throughput and goodput against the cap.

use maud::html;

use super::frame::{Area, Entry, Swatch, answer, curve, left_axis};
use super::scale::Scale;
use super::step_marks::{entries, mark, side_by_side, whisker};
use super::{Plot, cap_axis};
use crate::report::format::{estimate, number, short};
use crate::report::steps_by_cap::StepsAtCap;
use crate::search_result::{Estimate, StepResult};
use crate::sweep_outcome::SweepOutcome;

/// Maximum ratio between the recommended cap and another cap, in either direction, for the other
/// cap to be part of the plot around the answer.
const MAX_RATIO: f64 = 1.4;

/// Plots the caps within a factor of [`MAX_RATIO`] of the recommended one. Returns `None` if no cap
/// is recommended, or if these caps are fewer than three or all caps.
pub(super) fn around(outcome: &SweepOutcome, mut caps: Vec<StepsAtCap<'_>>, width: f64) -> Option<Plot> {
    let (answer, all) = (outcome.answer.cap? as f64, caps.len());
    caps.retain(|pooled| (answer / MAX_RATIO..=answer * MAX_RATIO).contains(&(pooled.cap as f64)));
    if caps.len() < 3 || caps.len() == all { None } else { draw_plot(outcome, &caps, width, true) }
}

type Of = fn(&StepResult) -> Option<Estimate>;

/// Plots all caps. Returns `None` if no step has a throughput.
pub(super) fn plot(outcome: &SweepOutcome, caps: &[StepsAtCap<'_>], width: f64) -> Option<Plot> {
    draw_plot(outcome, caps, width, false)
}

/// Draws the plot of the given caps. The vertical axis starts near the lowest value if `close` is
/// `true`, otherwise at 0. Returns `None` if no step has a throughput.
fn draw_plot(outcome: &SweepOutcome, caps: &[StepsAtCap<'_>], width: f64, close: bool) -> Option<Plot> {
    let all = || caps.iter().flat_map(|p| p.steps.iter().copied());
    let known: Vec<Estimate> = all().filter_map(|step| step.throughput).collect();
    if known.is_empty() {
        return None;
    }
    // Without an objective, goodput equals throughput, and one curve suffices.
    let differs = all().any(|step| step.goodput.is_some_and(|good| Some(good) != step.throughput));
    let mut curves: Vec<(&'static str, &'static str, Of)> =
        vec![("tg-throughput", "throughput", |s| s.throughput)];
    if differs {
        curves.push(("tg-goodput", "goodput", |s| s.goodput));
    }
    let mut legend: Vec<Entry> =
        curves.iter().map(|(class, name, _)| (Swatch::Line, *class, (*name).to_owned())).collect();
    legend.extend(entries(outcome, caps));
    let area = Area::below(&legend, width, if width > 600.0 { 380.0 } else { 340.0 }).with_name();
    let (x, axis) = cap_axis(outcome, caps, &area);
    // The interval of a few calls may be very large, and must not compress the rest.
    let value = known.iter().map(|e| e.value).fold(0.0, f64::max);
    let axis_end = known.iter().map(|e| e.high).fold(0.0, f64::max).min(1.3 * value);
    let all = || curves.iter().flat_map(|(_, _, of)| all().filter_map(of));
    let least = all().map(|e| e.low.max(0.6 * e.value)).fold(f64::INFINITY, f64::min);
    let y = if close {
        Scale::between(least, axis_end, area.y(), 5)
    } else {
        Scale::from_zero(axis_end, area.y(), 5)
    };
    let marks = html! {
        (left_axis(&area, &y, "calls per second", short))
        (answer(&area, &x, &outcome.answer, true))
        (axis)
        @for (i, (class, name, of)) in curves.iter().enumerate() {
            // Intervals of coinciding curves are drawn side by side.
            @let offset = if differs { i as f64 * 5.0 - 2.5 } else { 0.0 };
            @let means: Vec<_> = caps.iter().filter_map(|p| {
                Some((x.at(p.cap as f64), y.at(p.mean(|step| of(step).map(|e| e.value))?)))
            }).collect();
            (curve(&format!("tg-curve {class}"), &means))
            @for pooled in caps {
                @for (step, at) in side_by_side(pooled, &x) {
                    @if let Some(known) = of(step) {
                        @let at = (at + offset).clamp(area.left, area.right);
                        (whisker(class, at, &y, known))
                        (mark(step, class, (at, y.at(known.value)), &format!("{name} {}", estimate(known, "calls/s"))))
                    }
                }
            }
        }
    };
    let best = caps.iter().filter_map(|p| Some((p.cap, p.mean(|s| s.throughput.map(|e| e.value))?)));
    let best = best.max_by(|a, b| a.1.total_cmp(&b.1));
    let description = best.map_or_else(String::new, |(cap, value)| {
        format!(
            "Of {} caps, the highest throughput was at {cap}: {} calls per second.",
            caps.len(),
            number(value)
        )
    });
    Some(Plot { entries: legend, area, marks, description, note: None })
}
