//! The page, and the card that a notebook shows.

mod answer;
mod figures;
mod provenance;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::STYLE as PLOTS;
use crate::outcome::SweepOutcome;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole report as one HTML file that asks for nothing else: from a disk, offline, in light, dark and print.
pub fn html(outcome: &SweepOutcome) -> String {
    let title =
        format!("{} · {} · Tidegate sweep", answer::headline(&outcome.answer), outcome.provenance.model);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                // Nothing is ever asked of anybody: neither by us nor by what a server may have put into a text.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                // Else a browser asks for /favicon.ico.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(PLOTS)) }
            }
            body class="tg" {
                main class="sheet" {
                    (answer::panel(outcome))
                    (figures::all(outcome))
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

/// The answer and its plot as a piece of HTML with its own style, for a notebook.
pub fn card(outcome: &SweepOutcome) -> String {
    let card: Markup = html! {
        div class="tg card" {
            style { (PreEscaped(STYLE)) (PreEscaped(PLOTS)) }
            (answer::panel(outcome))
            (figures::first(outcome))
        }
    };
    card.into_string()
}
