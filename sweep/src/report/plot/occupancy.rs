//! Plot of the slots in use as a share of the cap. Below it is the gap fraction: the share of time
//! in which slots were free although nothing limited the calls.

use maud::html;

use super::frame::{Area, Entry, Swatch, answer, left_axis, line};
use super::scale::Scale;
use super::step_marks::{entries, mark, side_by_side};
use super::{Plot, cap_axis};
use crate::report::format::{number, share};
use crate::report::steps_by_cap::StepsAtCap;
use crate::search_result::{FULL_USE_SHARE, StepResult};
use crate::sweep_outcome::SweepOutcome;

pub(super) fn plot(outcome: &SweepOutcome, caps: &[StepsAtCap<'_>], width: f64) -> Option<Plot> {
    let steps = || caps.iter().flat_map(|p| p.steps.iter().copied());
    let forbidden = steps().any(|step| step.forbidden > 0.0005);
    let mut legend: Vec<Entry> = vec![
        (Swatch::Dot, "tg-throughput", "in flight".to_owned()),
        (Swatch::Dash, "tg-objective", "95 %".to_owned()),
        (Swatch::Dot, "tg-queue", "gap fraction".to_owned()),
    ];
    if forbidden {
        legend.push((Swatch::Dot, "tg-limited", "rate limited or cooling down".to_owned()));
    }
    legend.extend(entries(outcome, caps).into_iter().filter(|(_, class, _)| *class != "tg-band"));
    let whole = Area::below(&legend, width, 360.0);
    let split = whole.top + 0.5 * (whole.bottom - whole.top);
    let (slots, gaps) = (Area { bottom: split - 10.0, ..whole }, Area { top: split + 32.0, ..whole });
    let (x, axis) = cap_axis(outcome, caps, &whole);
    let above = Scale::shares(slots.y());
    let most = steps().map(|s| if forbidden { s.gap_fraction.max(s.forbidden) } else { s.gap_fraction });
    let below = Scale::from_zero(most.fold(0.05, f64::max).min(1.0), gaps.y(), 3);
    let of = |step: &StepResult| step.in_flight / step.cap.max(1) as f64;
    let marks = html! {
        (left_axis(&slots, &above, "mean in flight, share of the cap", share))
        (answer(&slots, &x, &outcome.answer, false))
        (line("tg-curve tg-dash tg-objective", (slots.left, above.at(FULL_USE_SHARE)), (slots.right, above.at(FULL_USE_SHARE))))
        (left_axis(&gaps, &below, "gap fraction, share of time", share))
        (answer(&gaps, &x, &outcome.answer, false))
        (axis)
        @for pooled in caps {
            @for (step, at) in side_by_side(pooled, &x) {
                @let held = format!("on average {} slots held, {} of the cap", number(step.in_flight), share(of(step)));
                (mark(step, "tg-throughput", (at, above.at(of(step))), &held))
                @if forbidden {
                    (mark(step, "tg-limited", (at, below.at(step.forbidden)), &format!("rate limited {}", share(step.forbidden))))
                }
                (mark(step, "tg-queue", (at, below.at(step.gap_fraction)), &format!("gap fraction {}", share(step.gap_fraction))))
            }
        }
    };
    let least = steps().map(of).fold(f64::INFINITY, f64::min);
    let most = steps().map(|step| step.gap_fraction).fold(0.0, f64::max);
    let description = format!(
        "The mean slots in flight were at least {} of the cap in each step. The gap fraction, the share of time in which calls waited although slots were free and nothing limited them, was at most {}.",
        share(least),
        share(most)
    );
    Some(Plot { entries: legend, area: whole, marks, description, note: None })
}
