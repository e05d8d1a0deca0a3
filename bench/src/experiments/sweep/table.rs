//! Renders the figures of sweeps and peers as a Markdown table.

use std::fmt::Write as _;

use super::comparison::Verdict;
use super::figures::Figures;
use crate::seeds::Seeds;

/// Returns the text above the table, with the table's head.
pub(crate) fn head(seeds: Seeds, peers: Seeds) -> String {
    format!(
        "# sweep: every scenario\n\nSeeds {} to {}; of the peers {} to {}. Written by the experiment.\n\n![answers over the truth](sweep.svg)\n\n| scenario | | yield / best | its p10 | infeasible | class right | covers | calls | their p90 | virtual time |\n|---|---|---|---|---|---|---|---|---|---|\n",
        seeds.first, seeds.last, peers.first, peers.last
    )
}

pub(crate) const LEGEND: &str = "\
*Yield / best*: calls per second in a long run with the suggested configuration, divided by \
those at the best stable cap: the median of the seeds, and their tenth percentile. *Infeasible*: \
more than 1 % of attempts fail with this configuration. *Class right*: the answer names the \
limit that binds. *Covers*: the interval of the answer contains the smallest stable cap within 2 \
% of the best. The truth was measured with 1,200 calls at each cap that could be an answer \
(`oracle.json`), on the server in its final state.";

/// Returns the table row of one contender (`who`: Tidegate's sweep or a peer) in one scenario.
pub(crate) fn row(scenario: &str, who: &str, figures: &Figures) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let (class, covers) = match who {
        "ours" => (percent(figures.class_right), percent(figures.covers)),
        _ => ("-".to_owned(), "-".to_owned()),
    };
    format!(
        "| {scenario} | {who} | {:.3} | {:.3} | {} | {class} | {covers} | {:.0} | {:.0} | {:.0} s |\n",
        figures.ratio,
        figures.ratio_p10,
        percent(figures.infeasible),
        figures.calls,
        figures.calls_p90,
        figures.seconds,
    )
}

/// Returns a Markdown list of the answers that fail a pass criterion, with what is wrong in each.
pub(crate) fn misses(scenario: &str, verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for v in verdicts {
        let wrong: Vec<&str> = [
            (v.infeasible, "infeasible"),
            (!v.class_right, "class"),
            (!v.covers, "interval"),
            (v.ratio < 0.97, "yield"),
        ]
        .into_iter()
        .filter_map(|(is, what)| is.then_some(what))
        .collect();
        if wrong.is_empty() {
            continue;
        }
        let cap = v.cap.map_or_else(|| "none".to_owned(), |cap| cap.to_string());
        let interval = v.interval.map_or_else(String::new, |(low, high)| format!(" ({low} to {high})"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "- {scenario}, seed {}: {}. Cap {cap}{interval} where {} is right, {}, yield {:.3}, {} calls.",
            v.seed,
            wrong.join(", "),
            v.true_cap,
            v.binding.map_or_else(|| "no limit named".to_owned(), |binding| format!("{binding:?}")),
            v.ratio,
            v.calls,
        );
    }
    text
}
