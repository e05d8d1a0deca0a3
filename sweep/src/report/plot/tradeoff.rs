//! Plot of latency against throughput.

use maud::{Markup, html};

use super::Plot;
use super::frame::{Area, Entry, Swatch, TEXT_HEIGHT, bottom_axis, curve, dot, left_axis, text, text_width};
use super::scale::Scale;
use crate::report::format::{number, seconds, short};
use crate::report::steps_by_cap::StepsAtCap;
use crate::sweep_outcome::SweepOutcome;

/// Mean throughput (calls per second) and latencies (seconds) at one cap.
struct Point {
    cap: usize,
    throughput: f64,
    p50: f64,
    p95: Option<f64>,
}

pub(super) fn plot(outcome: &SweepOutcome, caps: &[StepsAtCap<'_>], width: f64) -> Option<Plot> {
    let points: Vec<Point> = caps.iter().filter_map(point).collect();
    if points.is_empty() {
        return None;
    }
    let mut legend: Vec<Entry> = vec![(Swatch::Line, "tg-p50", "p50, each cap named".to_owned())];
    if points.iter().any(|point| point.p95.is_some()) {
        legend.push((Swatch::Line, "tg-p95", "p95".to_owned()));
    }
    if outcome.answer.cap.is_some() {
        legend.push((Swatch::Hollow, "tg-chosen", "answer".to_owned()));
    }
    let area = Area::below(&legend, width, 300.0);
    let values: Vec<f64> = points.iter().flat_map(|point| [Some(point.p50), point.p95]).flatten().collect();
    let y = Scale::for_durations(&values, area.y(), 5);
    let x = Scale::from_zero(
        points.iter().map(|p| p.throughput).fold(0.0, f64::max),
        area.x(),
        area.max_labels().min(6),
    );
    let at = |point: &Point| (x.at(point.throughput), y.at(point.p50));
    let upper: Vec<_> = points.iter().filter_map(|p| Some((x.at(p.throughput), y.at(p.p95?)))).collect();
    let lower: Vec<_> = points.iter().map(at).collect();
    let marks = html! {
        (left_axis(&area, &y, "end to end, from admission", seconds))
        (bottom_axis(&area, &x, "throughput (calls per second)", &[], short))
        (curve("tg-curve tg-p95", &upper))
        @for place in &upper { (dot("tg-dot tg-p95", *place, 3.0)) }
        (curve("tg-curve tg-p50", &lower))
        @for point in &points {
            g {
                title { "cap " (point.cap) ": " (number(point.throughput)) " calls/s, p50 " (seconds(point.p50)) }
                (dot("tg-dot tg-p50", at(point), 4.0))
                @if outcome.answer.cap == Some(point.cap) { (dot("tg-hollow tg-chosen", at(point), 8.0)) }
            }
        }
        (cap_labels(outcome, &points, &lower, &upper, &area))
    };
    let description = format!("Median latency against throughput at {} caps.", points.len());
    Some(Plot { entries: legend, area, marks, description, note: None })
}

fn point(pooled: &StepsAtCap<'_>) -> Option<Point> {
    Some(Point {
        cap: pooled.cap,
        throughput: pooled.mean(|step| step.throughput.map(|e| e.value))?,
        p50: pooled.mean(|step| step.latency.p50)?,
        p95: pooled.mean(|step| step.latency.p95),
    })
}

/// Renders the caps next to their points. A label that would overlap another label or a point is
/// left out. The recommended cap has priority.
fn cap_labels(
    outcome: &SweepOutcome,
    points: &[Point],
    lower: &[(f64, f64)],
    upper: &[(f64, f64)],
    area: &Area,
) -> Markup {
    let mut taken: Vec<[f64; 4]> =
        lower.iter().chain(upper).map(|(x, y)| [x - 5.0, y - 5.0, x + 5.0, y + 5.0]).collect();
    let chosen = |point: &Point| outcome.answer.cap == Some(point.cap);
    let mut named: Vec<_> = points.iter().zip(lower).collect();
    named.sort_by_key(|(point, _)| !chosen(point));
    html! {
        @for (point, (x, y)) in named {
            @let name = point.cap.to_string();
            @let half = text_width(&name) / 2.0;
            // Candidate positions: below, above, right, left.
            @let tries = [(*x, y + 22.0), (*x, y - 12.0), (x + 14.0 + half, y + 4.0), (x - 14.0 - half, y + 4.0)];
            @let free = tries.into_iter().map(|(x, y)| ((x, y), [x - half, y - TEXT_HEIGHT, x + half, y + 3.0]))
                .find(|(_, label_box)| inside(label_box, area) && !taken.iter().any(|other| overlap(label_box, other)));
            @if let Some(((x, y), label_box)) = free {
                (text(if chosen(point) { "tg-text tg-strong" } else { "tg-text" }, x, y, "middle", &name))
                @let () = taken.push(label_box);
            }
        }
    }
}

fn inside([left, top, right, bottom]: &[f64; 4], area: &Area) -> bool {
    *left >= area.left && *right <= area.right && *top >= area.top && *bottom <= area.bottom
}

fn overlap(a: &[f64; 4], b: &[f64; 4]) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}
