//! Plots of the time to first token and of the time per output token against the cap.

use maud::html;

use super::frame::{Area, Entry, Swatch, answer, curve, left_axis, line};
use super::scale::Scale;
use super::step_marks::{mark, side_by_side};
use super::{Plot, cap_axis};
use crate::report::format::seconds;
use crate::report::steps_by_cap::StepsAtCap;
use crate::search_result::{LatencyQuantiles, StepResult};
use crate::sweep_outcome::SweepOutcome;

pub(super) fn ttft(outcome: &SweepOutcome, caps: &[StepsAtCap<'_>], width: f64) -> Option<Plot> {
    plot(outcome, caps, width, "TTFT", |step| step.ttft, outcome.provenance.settings.ttft)
}

pub(super) fn tpot(outcome: &SweepOutcome, caps: &[StepsAtCap<'_>], width: f64) -> Option<Plot> {
    plot(outcome, caps, width, "TPOT", |step| step.tpot, outcome.provenance.settings.tpot)
}

type Get = fn(&LatencyQuantiles) -> Option<f64>;
const CURVES: [(&str, &str, Get); 3] =
    [("tg-p50", "p50", |q| q.p50), ("tg-p95", "p95", |q| q.p95), ("tg-p99", "p99", |q| q.p99)];

fn plot(
    outcome: &SweepOutcome,
    caps: &[StepsAtCap<'_>],
    width: f64,
    name: &str,
    of: fn(&StepResult) -> LatencyQuantiles,
    objective: Option<f64>,
) -> Option<Plot> {
    let steps = || caps.iter().flat_map(|p| p.steps.iter().copied());
    let mut values: Vec<f64> =
        steps().flat_map(|step| CURVES.iter().filter_map(move |(_, _, get)| get(&of(step)))).collect();
    if values.is_empty() {
        return None;
    }
    values.extend(objective);
    let shown_curves: Vec<_> =
        CURVES.iter().filter(|(_, _, get)| steps().any(|step| get(&of(step)).is_some())).collect();
    let mut legend: Vec<Entry> =
        shown_curves.iter().map(|(class, name, _)| (Swatch::Line, *class, (*name).to_owned())).collect();
    if let Some(objective) = objective {
        legend.push((Swatch::Dash, "tg-objective", format!("objective {}", seconds(objective))));
    }
    let area = Area::below(&legend, width, 300.0);
    let (x, axis) = cap_axis(outcome, caps, &area);
    let y = Scale::for_durations(&values, area.y(), 5);
    let marks = html! {
        (left_axis(&area, &y, name, seconds))
        (answer(&area, &x, &outcome.answer, false))
        (axis)
        @if let Some(objective) = objective {
            (line("tg-curve tg-dash tg-objective", (area.left, y.at(objective)), (area.right, y.at(objective))))
        }
        @for (class, quantile, get) in &shown_curves {
            @let means: Vec<_> = caps.iter().filter_map(|p| {
                Some((x.at(p.cap as f64), y.at(p.mean(|step| get(&of(step)))?)))
            }).collect();
            (curve(&format!("tg-curve {class}"), &means))
            @for pooled in caps {
                @for (step, at) in side_by_side(pooled, &x) {
                    @if let Some(value) = get(&of(step)) {
                        (mark(step, class, (at, y.at(value)), &format!("{name} {quantile} {} of {}", seconds(value), of(step).n)))
                    }
                }
            }
        }
    };
    let description = format!("{name} against cap: {}.", spread(&values));
    Some(Plot { entries: legend, area, marks, description, note: None })
}

fn spread(values: &[f64]) -> String {
    let (low, high) = values.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), v| (l.min(*v), h.max(*v)));
    format!("from {} to {}", seconds(low), seconds(high))
}
