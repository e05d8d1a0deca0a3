//! A scenario's results as text, committed to show the effect of a change of the policy.

use std::fmt::Write as _;

use super::oracle::Oracle;
use super::roster::Role;
use super::stage::Stage;
use super::standing::ContenderResult;

/// The legend above all tables.
pub(crate) const LEGEND: &str = "\
goodput   calls completed with a first token in time, as a share of the oracle's: all seeds together; the worst seed; all seeds, by phase
met %     of the calls that went upstream (turned away for good: missed), those with a first token in time, but for the ten seconds after a step: all seeds together
asked %   the same of all calls asked for, so that refused is missed too; callers who leave are not counted
p99 s     user TTFT, of the worst phase, but for those seconds: the median of the seeds, and the worst
429s      attempts turned away for each call
floor     seconds in which what was in force was an eighth of the oracle's limit or less, or 1, while calls waited: the worst seed
one       seconds in which one call at most might await its first token, while calls waited: the worst seed
settled   seconds from each step until the limit, or what was in flight while calls waited, was within a tenth of the oracle's band and stayed there for 20 s or to the phase's end: the median of the seeds, - if never
";

/// Returns the table of one scenario.
pub(crate) fn table(stage: &Stage, oracle: &Oracle, standings: &[ContenderResult]) -> String {
    let names = standings.iter().map(|standing| standing.name.len()).max().unwrap_or(0);
    let widths = Widths { names, phases: (stage.scenario.phases.len() * 6).max(8) };
    let mut text = heading(stage, oracle, widths);
    let Some(best) = standings.iter().find(|standing| standing.role == Role::Oracle) else { return text };
    for standing in standings {
        // Writing to a string cannot fail.
        let _ = line(&mut text, stage, standing, best, widths);
    }
    text
}

/// The widths of the columns that differ between scenarios.
#[derive(Clone, Copy)]
struct Widths {
    names: usize,
    phases: usize,
}

fn heading(stage: &Stage, oracle: &Oracle, Widths { names, phases: width }: Widths) -> String {
    let phases: Vec<_> = stage
        .scenario
        .phases
        .iter()
        .zip(oracle.limits.iter().zip(&oracle.bands))
        .map(|(phase, (limit, (least, most)))| {
            let load = phase.load * stage.capacity;
            format!("{} s of {load:.1} calls/s: {limit} ({least} to {most})", phase.seconds)
        })
        .collect();
    let held_out = if stage.scenario.held_out { " [held out]" } else { "" };
    format!(
        "\n{}{held_out}\n  at the best {:.2} calls/s; the oracle's limits: {}\n  {:<names$} {:>7} {:>7}  {:<width$}  {:>6} {:>7} {:>6} {:>6} {:>5} {:>5} {:>5}  settled\n",
        stage.scenario.name,
        stage.capacity,
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
    stage: &Stage,
    standing: &ContenderResult,
    best: &ContenderResult,
    Widths { names, phases: width }: Widths,
) -> std::fmt::Result {
    let phases =
        (0..stage.scenario.phases.len()).map(|phase| format!("{:.3}", standing.phase_goodput(best, phase)));
    let settled = standing.settled_s().into_iter().map(|seconds| match seconds {
        Some(seconds) => format!("{seconds:.0}"),
        None => "-".to_owned(),
    });
    let p99 = standing.ttft_p99_s();
    writeln!(
        text,
        "  {:<names$} {:>7.3} {:>7.3}  {:<width$}  {:>6.2} {:>7.2} {:>6.2} {:>6.2} {:>5.2} {:>5.0} {:>5.0}  {}",
        standing.name,
        standing.goodput(best),
        standing.goodputs(best).least,
        phases.collect::<Vec<_>>().join(" "),
        standing.met(|run| run.sent),
        standing.met(|run| run.asked),
        p99.median,
        p99.most,
        standing.turned_away(),
        standing.collapsed_s(),
        standing.one_at_a_time_s(),
        settled.collect::<Vec<_>>().join(" "),
    )
}
