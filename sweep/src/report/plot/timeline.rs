//! Plot of calls in flight and waiting over time, with the steps in the background.

use maud::{Markup, html};

use super::Plot;
use super::frame::{Area, Entry, Swatch, bottom_axis, curve, left_axis, px, text, text_width};
use super::scale::Scale;
use super::step_marks::describe_step;
use crate::report::format::{seconds, short};
use crate::search_result::{StepResult, StepVerdict};
use crate::sweep_outcome::{SeriesPoint, SweepOutcome};

pub(super) fn plot(outcome: &SweepOutcome, width: f64) -> Option<Plot> {
    let series = &outcome.series;
    let end = series.iter().map(|m| m.at).chain(outcome.steps.iter().map(|s| s.ended)).fold(0.0, f64::max);
    if series.len() < 2 || end <= 0.0 {
        return None;
    }
    let legend: Vec<Entry> = vec![
        (Swatch::Line, "tg-throughput", "in flight".to_owned()),
        (Swatch::Dash, "tg-cap", "cap".to_owned()),
        (Swatch::Line, "tg-queue", "waiting".to_owned()),
        (Swatch::Box, "tg-behind tg-accepted", "accepted".to_owned()),
        (Swatch::Box, "tg-behind tg-rejected", "rejected".to_owned()),
        (Swatch::Box, "tg-behind tg-invalid", "invalid or undecided".to_owned()),
    ];
    let whole = Area::below(&legend, width, 420.0);
    let split = whole.top + 0.64 * (whole.bottom - whole.top);
    let (slots, queue) = (Area { bottom: split, ..whole }, Area { top: split + 34.0, ..whole });
    let x = Scale::time(end, whole.x(), whole.max_labels());
    let most = |of: fn(&SeriesPoint) -> usize| series.iter().map(of).max().unwrap_or(0) as f64;
    let above = Scale::from_zero(most(|m| m.cap.max(m.in_flight)), slots.y(), 4);
    let below = Scale::from_zero(most(|m| m.waiting), queue.y(), 2);
    let stairs: Vec<_> = stairs(series, |m| m.cap, &x, &above);
    let marks = html! {
        @for step in &outcome.steps { (band(step, &x, &slots)) }
        (left_axis(&slots, &above, "slots", short))
        (curve("tg-curve tg-dash tg-cap", &stairs))
        (curve("tg-curve tg-thin tg-throughput", &line(series, |m| m.in_flight, &x, &above)))
        (left_axis(&queue, &below, "calls waiting", short))
        (curve("tg-curve tg-thin tg-queue", &line(series, |m| m.waiting, &x, &below)))
        (bottom_axis(&whole, &x, "time since the sweep began", &[], clock))
    };
    let description =
        format!("Slots in flight and calls waiting over {}, in {} steps.", seconds(end), outcome.steps.len());
    Some(Plot { entries: legend, area: whole, marks, description, note: None })
}

fn line(series: &[SeriesPoint], of: fn(&SeriesPoint) -> usize, x: &Scale, y: &Scale) -> Vec<(f64, f64)> {
    series.iter().map(|moment| (x.at(moment.at), y.at(of(moment) as f64))).collect()
}

/// Returns the points of a line that changes only in vertical steps, such as the cap.
fn stairs(series: &[SeriesPoint], of: fn(&SeriesPoint) -> usize, x: &Scale, y: &Scale) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (place, height) in line(series, of, x, y) {
        match points.last() {
            Some((_, before)) if (before - height).abs() < 0.05 => {}
            Some((_, before)) => {
                let before = *before;
                points.extend([(place, before), (place, height)]);
            }
            None => points.push((place, height)),
        }
    }
    if let (Some(last), Some((_, height))) = (series.last(), points.last().copied()) {
        points.push((x.at(last.at), height));
    }
    points
}

/// Renders a step as a band in the background, coloured by its verdict. Adds the step's cap if
/// there is space.
fn band(step: &StepResult, x: &Scale, area: &Area) -> Markup {
    let (from, to) = (x.at(step.began), x.at(step.ended));
    let class = match step.verdict {
        StepVerdict::Accepted => "tg-accepted",
        StepVerdict::Rejected(_) => "tg-rejected",
        StepVerdict::Invalid(_) | StepVerdict::Undecided(_) => "tg-invalid",
    };
    let name = step.cap.to_string();
    html! {
        g class="tg-step" {
            title { (describe_step(step)) ", from " (seconds(step.began)) " to " (seconds(step.ended)) }
            rect class={ "tg-fill tg-behind " (class) } x=(px(from)) y=(px(area.top)) width=(px((to - from - 1.0).max(0.5)))
                height=(px(area.bottom - area.top)) {}
            @if to - from > text_width(&name) + 4.0 {
                (text("tg-text", (from + to) / 2.0, area.top + 13.0, "middle", &name))
            }
        }
    }
}

/// Formats `at`, a time in seconds since the sweep began, as `MINUTES:SECONDS`, or as
/// `HOURS:MINUTES h` from one hour on.
fn clock(at: f64) -> String {
    let whole = at.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, _) => format!("{hours}:{minutes:02} h"),
    }
}
