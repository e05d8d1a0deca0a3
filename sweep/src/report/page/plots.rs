//! The plots of the page, with their captions.

use maud::{Markup, html};

use crate::report::plot::{Figure, Plot, plot};
use crate::sweep_outcome::SweepOutcome;

/// Width of a plot over the whole page, in pixels. Text has a fixed size, so each plot is drawn for
/// the width at which it is shown.
const FULL_WIDTH: f64 = 1000.0;
/// Width of a plot that shares its row with another one, in pixels.
const HALF_WIDTH: f64 = 480.0;
/// Width of a plot on a narrow screen, in pixels.
const NARROW_WIDTH: f64 = 380.0;
/// Width of the plot in a card, in pixels.
const CARD_WIDTH: f64 = 840.0;

/// Renders all plots that have data. The throughput and the timeline have a row of their own, and
/// the others share a row in pairs. If the number of the others is odd, the first of them has a row
/// of its own.
pub(super) fn all(outcome: &SweepOutcome) -> Markup {
    let figures: Vec<(Figure, Plot)> = Figure::ALL
        .into_iter()
        .filter_map(|figure| Some((figure, plot(outcome, figure, HALF_WIDTH)?)))
        .collect();
    let halves = || figures.iter().map(|(figure, _)| *figure).filter(|figure| !is_full_width(*figure));
    let unpaired = if halves().count() % 2 == 1 { halves().next() } else { None };
    html! {
        @if !figures.is_empty() {
            section class="figures" aria-label="Plots" {
                @for (figure, half) in &figures {
                    @if is_full_width(*figure) || unpaired == Some(*figure) {
                        (full_width(outcome, *figure, half.note.as_deref()))
                    } @else {
                        figure class="panel" id=(figure.name()) {
                            h2 { (figure.title()) }
                            (half.svg(*figure, figure.name(), None))
                            (figure_caption(*figure, half.note.as_deref()))
                        }
                    }
                }
            }
        }
    }
}

/// Renders the plot of the throughput against the cap, for [`card`](super::card).
pub(super) fn answer_plot(outcome: &SweepOutcome) -> Markup {
    let (figure, width) = (Figure::Throughput, CARD_WIDTH);
    html! {
        @if let Some(plot) = plot(outcome, figure, width) {
            section class="panel" { h2 { (figure.title()) } (plot.svg(figure, "card", None)) }
        }
    }
}

fn is_full_width(figure: Figure) -> bool {
    matches!(figure, Figure::Throughput | Figure::Timeline)
}

/// Renders a plot twice, for wide and for narrow screens. The style sheet shows one of them.
fn full_width(outcome: &SweepOutcome, figure: Figure, note: Option<&str>) -> Markup {
    html! {
        figure class="panel broad" id=(figure.name()) {
            h2 { (figure.title()) }
            @for (name, width) in [("wide", FULL_WIDTH), ("narrow", NARROW_WIDTH)] {
                @if let Some(plot) = plot(outcome, figure, width) {
                    div class=(name) { (plot.svg(figure, &format!("{}-{name}", figure.name()), None)) }
                }
            }
            (figure_caption(figure, note))
        }
    }
}

fn figure_caption(figure: Figure, note: Option<&str>) -> Markup {
    html! { figcaption { (caption(figure)) @if let Some(note) = note { " " (note) } } }
}

fn caption(figure: Figure) -> &'static str {
    match figure {
        Figure::Throughput => {
            "Each mark is a step with its interval; the line connects the means. Steps at the same cap are side by side."
        }
        Figure::Around => {
            "The same marks, for caps within a factor of 1.4 of the answer. The axis does not start at zero."
        }
        Figure::Tradeoff => "Beyond the knee, more slots increase latency but not throughput.",
        Figure::Ttft => "From admission to the first token. Queueing in the sweep's own backlog is excluded.",
        Figure::Tpot => "Mean per call, after its first token.",
        Figure::Calls => {
            "Failures are calls that also failed after retries. The table of steps shows failed attempts."
        }
        Figure::Held => {
            "Because calls always wait, the slots in flight stay near the cap; below 95 %, this client or a rate limit kept them lower. The gap fraction is the share of time in which calls waited although slots were free and no rate limit or cool-down applied."
        }
        Figure::Timeline => {
            "Numbers above the bands are caps. Calls always wait, because the sweep keeps a backlog."
        }
    }
}
