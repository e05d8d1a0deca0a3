//! Renders the figures of the choosers (replica selection policies) as Markdown tables.

use std::fmt::Write as _;

use super::chooser_list::Entry;
use super::figures::Figures;
use crate::report::Spread;

pub(crate) const LEGEND: &str = "\
All figures are medians over the seeds. TTFT: time to first token. Prefix hits: share of the \
prompt tokens that were cached. Fullest / mean: calls at the fullest replica, divided by the \
mean, over all arrivals. In time: first token within 1 s plus twice the time to compute the \
whole prompt. Computing: share of the engines' time that prompts took. Streams cut: streams that \
broke because their replica was killed; other figures count them by their first tokens.\n\n\
Only replica selection is simulated, without queues, limits and retries. `ours` expects the same \
output of every call. The seeds of Mooncake move the calls of one trace by up to two seconds, \
and constants were chosen on that trace and on sessions too, with other seeds. That a pool with half \
of its traffic by others counts as shared was decided after a run on the reported seeds.";

/// Returns the median of a figure over the seeds.
pub(crate) fn median(runs: &[Figures], of: fn(&Figures) -> f64) -> f64 {
    Spread::of(runs.iter().map(of)).median
}

/// Returns a Markdown table with one line per chooser. Figures are medians over the seeds.
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
