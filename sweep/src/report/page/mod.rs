//! Renders the HTML page of a report, and a card with the answer and one plot for a notebook.

mod answer_panel;
mod plots;
mod provenance;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::STYLE as PLOTS;
use crate::sweep_outcome::SweepOutcome;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Returns the whole report as an HTML page in one file. It loads nothing else, works offline, and
/// is readable in light mode, in dark mode and in print.
pub fn html(outcome: &SweepOutcome) -> String {
    let title = format!(
        "{} · {} · Tidegate sweep",
        answer_panel::headline(&outcome.answer),
        outcome.provenance.model
    );
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                // No request is ever made, neither by the page nor by text that a server may have
                // injected.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                // Without this, browsers request /favicon.ico.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(PLOTS)) }
            }
            body class="tg" {
                main class="sheet" {
                    (answer_panel::panel(outcome))
                    (plots::all(outcome))
                    (tables::checks(outcome))
                    (tables::steps(outcome))
                    (provenance::panel(outcome))
                }
                @if !outcome.lines.is_empty() { script { (PreEscaped(SCRIPT)) } }
            }
        }
    }
    .into_string()
}

/// Returns the answer and the plot of the throughput as an HTML fragment with its style, for a
/// notebook.
pub fn card(outcome: &SweepOutcome) -> String {
    let card: Markup = html! {
        div class="tg card" {
            style { (PreEscaped(STYLE)) (PreEscaped(PLOTS)) }
            (answer_panel::panel(outcome))
            (plots::answer_plot(outcome))
        }
    };
    card.into_string()
}
