//! The plots on the page, each with what it says of itself.

use maud::{Markup, html};

use crate::outcome::SweepOutcome;
use crate::report::plot::{Figure, Plot, plot};

/// Widths that plots are drawn for: text keeps its size, so each is drawn where it is shown.
const BROAD: f64 = 1000.0;
const HALF: f64 = 480.0;
const NARROW: f64 = 380.0;
const CARD: f64 = 840.0;

/// Every plot for which there is something to plot, two in a row; where that leaves one over, the first of them has a row of its own.
pub(super) fn all(outcome: &SweepOutcome) -> Markup {
    let figures: Vec<(Figure, Plot)> =
        Figure::ALL.into_iter().filter_map(|figure| Some((figure, plot(outcome, figure, HALF)?))).collect();
    let halves = || figures.iter().map(|(figure, _)| *figure).filter(|figure| !is_broad(*figure));
    let over = if halves().count() % 2 == 1 { halves().next() } else { None };
    html! {
        @if !figures.is_empty() {
            section class="figures" aria-label="Plots" {
                @for (figure, half) in &figures {
                    @if is_broad(*figure) || over == Some(*figure) {
                        (broad(outcome, *figure, half.note.as_deref()))
                    } @else {
                        figure class="panel" id=(figure.name()) {
                            h2 { (figure.title()) }
                            (half.svg(*figure, figure.name(), None))
                            (below(*figure, half.note.as_deref()))
                        }
                    }
                }
            }
        }
    }
}

/// The one that shows the answer, for a card: as wide as that is.
pub(super) fn first(outcome: &SweepOutcome) -> Markup {
    let (figure, width) = (Figure::Throughput, CARD);
    html! {
        @if let Some(plot) = plot(outcome, figure, width) {
            section class="panel" { h2 { (figure.title()) } (plot.svg(figure, "card", None)) }
        }
    }
}

fn is_broad(figure: Figure) -> bool {
    matches!(figure, Figure::Throughput | Figure::Timeline)
}

/// Over the whole page, and drawn anew for where that is narrow.
fn broad(outcome: &SweepOutcome, figure: Figure, note: Option<&str>) -> Markup {
    html! {
        figure class="panel broad" id=(figure.name()) {
            h2 { (figure.title()) }
            @for (name, width) in [("wide", BROAD), ("narrow", NARROW)] {
                @if let Some(plot) = plot(outcome, figure, width) {
                    div class=(name) { (plot.svg(figure, &format!("{}-{name}", figure.name()), None)) }
                }
            }
            (below(figure, note))
        }
    }
}

fn below(figure: Figure, note: Option<&str>) -> Markup {
    html! { figcaption { (caption(figure)) @if let Some(note) = note { " " (note) } } }
}

fn caption(figure: Figure) -> &'static str {
    match figure {
        Figure::Throughput => {
            "Each mark is a step, with its interval; the line goes through their means. Steps of one cap stand side by side."
        }
        Figure::Around => {
            "The same marks, of the caps that are at most 1.4 times as high or as low. The axis does not begin at zero."
        }
        Figure::Tradeoff => "Beyond the knee more slots buy latency, not throughput.",
        Figure::Ttft => "From admission to the first token: the sweep's own queue is not in it.",
        Figure::Tpot => "In the mean of a call, after its first token.",
        Figure::Calls => {
            "Failures are those that retries did not mend. What the server saw of attempts is in the steps below."
        }
        Figure::Held => {
            "With calls always waiting, slots in flight stay near the cap; below 95 % it was this client or a rate that did not let them. The gap fraction is the share of time in which calls waited while slots were free and no rate or cool-down forbade them."
        }
        Figure::Timeline => {
            "Numbers over the bands are caps. The backlog is the sweep's own: calls always wait."
        }
    }
}
