//! Draws each answer of each scenario as a dot, at the suggested cap divided by the true cap (the
//! smallest cap with nearly the best goodput).

use plotters::prelude::*;

use super::comparison::Verdict;
use super::peers::Peer;
use super::prepared_scenario::PreparedScenario;
use crate::Fallible;
use crate::chart_colours::{BLUE, DARK_GREY, GREEN, ORANGE};

/// A scenario, with the answers of Tidegate and of the peers compared with the truth ([`Verdict`]).
pub(crate) type Row<'a> = (&'a PreparedScenario, &'a [Verdict], &'a [(Peer, Vec<Verdict>)]);

const LINE: RGBColor = RGBColor(225, 225, 225);

const WIDTH: i32 = 900;
/// The left edge of the dots, in pixels. The names of the scenarios are to the left of it.
const LEFT: i32 = 200;
const ROW: i32 = 44;
const TOP: i32 = 56;
/// The highest ratio of suggested and true cap that is drawn, and the inverse of the lowest. Dots
/// beyond are drawn at the edge.
const SPAN: f64 = 4.0;

/// Draws the rows, and returns the text of an SVG file.
pub(crate) fn draw(rows: &[Row]) -> Fallible<String> {
    let mut text = String::new();
    let size = (WIDTH as u32, (TOP + ROW * rows.len() as i32 + 24) as u32);
    {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE).map_err(error_text)?;
        let title = "the cap that is answered, over the right one (hollow: it fails in the long run)";
        root.draw(&Text::new(title, (LEFT, 8), ("sans-serif", 15))).map_err(error_text)?;
        let bottom = TOP + ROW * rows.len() as i32;
        for factor in [0.25, 0.5, 1.0, 2.0, 4.0] {
            let x = place(factor);
            root.draw(&PathElement::new([(x, TOP - 6), (x, bottom)], LINE)).map_err(error_text)?;
            let label = format!("{factor}x");
            root.draw(&Text::new(label, (x - 10, TOP - 22), ("sans-serif", 12))).map_err(error_text)?;
        }
        for (at, (prepared, ours, beside)) in rows.iter().enumerate() {
            let y = TOP + ROW * at as i32 + ROW / 2;
            root.draw(&Text::new(prepared.scenario.name, (8, y - 7), ("sans-serif", 13)))
                .map_err(error_text)?;
            let of =
                |peer: Peer| beside.iter().filter(move |(who, _)| *who == peer).flat_map(|(_, runs)| runs);
            let lanes: [(i32, RGBColor, Vec<&Verdict>); 3] = [
                (-11, BLUE, ours.iter().collect()),
                (1, ORANGE, of(Peer::Linear).collect()),
                (12, GREEN, of(Peer::Doubling).collect()),
            ];
            for (shift, color, runs) in lanes {
                for (number, verdict) in runs.into_iter().enumerate() {
                    let Some(cap) = verdict.cap else { continue };
                    let x = place(cap as f64 / verdict.true_cap.max(1) as f64);
                    // Dots of equal caps are drawn beside one another.
                    let at = (x, y + shift + (number % 5) as i32 - 2);
                    let style =
                        if verdict.infeasible { color.stroke_width(1) } else { color.mix(0.5).filled() };
                    root.draw(&Circle::new(at, 3, style)).map_err(error_text)?;
                }
            }
        }
        let names = [("ours", BLUE), (Peer::Linear.name(), ORANGE), (Peer::Doubling.name(), GREEN)];
        for (at, (name, color)) in names.into_iter().enumerate() {
            let x = LEFT + 170 * at as i32;
            root.draw(&Circle::new((x, bottom + 12), 4, color.filled())).map_err(error_text)?;
            let style = ("sans-serif", 12).into_font().color(&DARK_GREY);
            root.draw(&Text::new(name, (x + 8, bottom + 6), style)).map_err(error_text)?;
        }
        root.present().map_err(error_text)?;
    }
    Ok(text)
}

fn place(factor: f64) -> i32 {
    let share = (factor.clamp(1.0 / SPAN, SPAN).ln() / SPAN.ln() + 1.0) / 2.0;
    LEFT + 20 + (f64::from(WIDTH - LEFT - 50) * share) as i32
}

fn error_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
