//! Renders the results of a scenario as a text table.

use std::fmt::Write as _;

use super::contender_list::Role;
use super::contender_results::ContenderResult;
use super::oracle::Oracle;
use super::prepared_scenario::PreparedScenario;

/// The explanation of the columns, printed above all tables.
pub(crate) const LEGEND: &str = "\
goodput   calls completed with a first token in time, as a share of the oracle's: over all seeds together, of the worst seed, and by phase over all seeds
met %     percentage with a first token in time of the calls that went upstream, over all seeds together; calls rejected by the upstream count as late, and calls in the ten seconds after a step are left out
asked %   the same of all calls that arrived; rejected calls count as late, and callers who leave are left out
p99 s     p99 of the user's TTFT in the worst phase, without those ten seconds: the median of the seeds, and the worst seed
429s      attempts per call that the upstream rejected
floor     seconds in which calls waited and the limit in force was 1, or at most an eighth of the oracle's: the worst seed
one       seconds in which calls waited and at most one call was allowed to await its first token: the worst seed
settled   seconds from each step until the limit in force was within a tenth of the oracle's band and stayed there for 20 s or to the end of the phase: the median of the seeds; - if never
";

/// Returns the table of one scenario, with one line per contender.
pub(crate) fn table(
    prepared: &PreparedScenario,
    oracle: &Oracle,
    contender_results: &[ContenderResult],
) -> String {
    let names =
        contender_results.iter().map(|contender_result| contender_result.name.len()).max().unwrap_or(0);
    let widths = Widths { names, phases: (prepared.scenario.phases.len() * 6).max(8) };
    let mut text = heading(prepared, oracle, widths);
    let Some(best) = contender_results.iter().find(|contender_result| contender_result.role == Role::Oracle)
    else {
        return text;
    };
    for contender_result in contender_results {
        // Writing to a string cannot fail.
        let _ = line(&mut text, prepared, contender_result, best, widths);
    }
    text
}

/// Widths in characters of the columns that differ between scenarios.
#[derive(Clone, Copy)]
struct Widths {
    names: usize,
    phases: usize,
}

fn heading(prepared: &PreparedScenario, oracle: &Oracle, Widths { names, phases: width }: Widths) -> String {
    let phases: Vec<_> = prepared
        .scenario
        .phases
        .iter()
        .zip(oracle.limits.iter().zip(&oracle.bands))
        .map(|(phase, (limit, (least, most)))| {
            let load = phase.load * prepared.capacity;
            format!("{} s of {load:.1} calls/s: {limit} ({least} to {most})", phase.seconds)
        })
        .collect();
    let held_out = if prepared.scenario.held_out { " [held out]" } else { "" };
    format!(
        "\n{}{held_out}\n  at the best {:.2} calls/s; the oracle's limits: {}\n  {:<names$} {:>7} {:>7}  {:<width$}  {:>6} {:>7} {:>6} {:>6} {:>5} {:>5} {:>5}  settled\n",
        prepared.scenario.name,
        prepared.capacity,
        phases.join(", "),
        "",
        "goodput",
        "worst",
        "by phase",
        "met %",
        "asked %",
        "p99 s",
        "worst",
        "429s",
        "floor",
        "one",
    )
}

fn line(
    text: &mut String,
    prepared: &PreparedScenario,
    contender_result: &ContenderResult,
    best: &ContenderResult,
    Widths { names, phases: width }: Widths,
) -> std::fmt::Result {
    let phases = (0..prepared.scenario.phases.len())
        .map(|phase| format!("{:.3}", contender_result.phase_goodput(best, phase)));
    let settled = contender_result.settled_s().into_iter().map(|seconds| match seconds {
        Some(seconds) => format!("{seconds:.0}"),
        None => "-".to_owned(),
    });
    let p99 = contender_result.ttft_p99_s();
    writeln!(
        text,
        "  {:<names$} {:>7.3} {:>7.3}  {:<width$}  {:>6.2} {:>7.2} {:>6.2} {:>6.2} {:>5.2} {:>5.0} {:>5.0}  {}",
        contender_result.name,
        contender_result.goodput(best),
        contender_result.goodputs(best).least,
        phases.collect::<Vec<_>>().join(" "),
        contender_result.met(|run| run.sent),
        contender_result.met(|run| run.asked),
        p99.median,
        p99.most,
        contender_result.turned_away(),
        contender_result.at_floor_s(),
        contender_result.one_at_a_time_s(),
        settled.collect::<Vec<_>>().join(" "),
    )
}
