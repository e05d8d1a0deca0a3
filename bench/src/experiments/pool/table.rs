//! The results as Markdown.

use std::fmt::Write as _;

use super::figures::Figures;
use super::roster::Entry;
use crate::report::Spread;

pub(crate) const LEGEND: &str = "Medians of the seeds. TTFT: time to first token. Prefix hits: share of prompt tokens that were cached. Fullest / mean: calls at the fullest replica over the mean, over all arrivals. \
In time: first token within a second and twice what the whole prompt takes alone. Computing: share of the engines' time in which they computed prompts, as if nothing else took any. Streams cut: by the replica that was killed; they count by their first tokens in all else.\n\nPlacement alone is played, without queue, limits and retries; `ours` expects the same answer of every call. The seeds of Mooncake move the calls of one trace by up to two seconds, and constants were chosen on that trace too, with other seeds: only the sessions are calls that nothing was chosen on.";

/// Returns the median of the seeds.
pub(crate) fn median(runs: &[Figures], of: fn(&Figures) -> f64) -> f64 {
    Spread::of(runs.iter().map(of)).median
}

/// Returns a table with one line per chooser, of medians over the seeds.
pub(crate) fn table(title: &str, entries: &[Entry], runs: &[Vec<Figures>]) -> String {
    let mut text = format!(
        "\n### {title}\n\n| | p50 TTFT, s | p99 TTFT, s | mean TTFT, s | prefix hits, % | fullest / mean | in time, % | computing, % | streams cut |\n|---|---|---|---|---|---|---|---|---|\n"
    );
    for (entry, runs) in entries.iter().zip(runs) {
        let of = |of| median(runs, of);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {:.3} | {:.2} | {:.3} | {:.1} | {:.2} | {:.1} | {:.0} | {:.0} |",
            entry.name,
            of(|run| run.p50_s),
            of(|run| run.p99_s),
            of(|run| run.mean_s),
            100.0 * of(|run| run.hit_rate),
            of(|run| run.spread),
            100.0 * of(|run| run.goodput),
            100.0 * of(|run| run.computing),
            of(|run| run.truncated),
        );
    }
    text
}
