//! A scenario's results as text: committed, so that a change of the policy shows what it changes.

use std::fmt::Write as _;

use super::oracle::Oracle;
use super::roster::Role;
use super::stage::Stage;
use super::standing::Standing;

/// What stands above all of them.
pub(crate) const LEGEND: &str = "\
goodput   calls completed with a first token in time, as a share of the oracle's, over all seeds; then of the worst seed, and by phase
met %     of the calls that the upstream had, those in time, but for the ten seconds after a step
p99 s     user TTFT, of the worst phase, but for those seconds: the median of the seeds, and the worst
429s      attempts turned away for each call
floor     seconds at an eighth of the oracle's limit or less, or at 1, while calls waited: the worst seed
settled   seconds from each step until the limit, or what was in flight while calls waited, was within a tenth of the oracle's band: the median of the seeds, - if never
";

/// One scenario's.
pub(crate) fn table(stage: &Stage, oracle: &Oracle, standings: &[Standing]) -> String {
    let mut text = heading(stage, oracle);
    let Some(best) = standings.iter().find(|standing| standing.role == Role::Oracle) else { return text };
    for standing in standings {
        // To a string; cannot fail.
        let _ = line(&mut text, stage, standing, best);
    }
    text
}

fn heading(stage: &Stage, oracle: &Oracle) -> String {
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
    let width = by_phase_width(stage);
    format!(
        "\n{}{held_out}\n  at the best {:.2} calls/s; the oracle's limits: {}\n  {:<34} {:>7} {:>7}  {:<width$}  {:>6} {:>6} {:>6} {:>5} {:>5}  settled\n",
        stage.scenario.name,
        stage.capacity,
        phases.join(", "),
        "",
        "goodput",
        "worst",
        "by phase",
        "met %",
        "p99 s",
        "worst",
        "429s",
        "floor",
    )
}

fn by_phase_width(stage: &Stage) -> usize {
    (stage.scenario.phases.len() * 6).max(8)
}

fn line(text: &mut String, stage: &Stage, standing: &Standing, best: &Standing) -> std::fmt::Result {
    let phases =
        (0..stage.scenario.phases.len()).map(|phase| format!("{:.3}", standing.phase_goodput(best, phase)));
    let settled = standing.settled_s().into_iter().map(|seconds| match seconds {
        Some(seconds) => format!("{seconds:.0}"),
        None => "-".to_owned(),
    });
    let p99 = standing.ttft_p99_s();
    let width = by_phase_width(stage);
    writeln!(
        text,
        "  {:<34} {:>7.3} {:>7.3}  {:<width$}  {:>6.2} {:>6.2} {:>6.2} {:>5.2} {:>5.0}  {}",
        standing.name,
        standing.goodput(best),
        standing.goodputs(best).least,
        phases.collect::<Vec<_>>().join(" "),
        standing.met() * 100.0,
        p99.median,
        p99.most,
        standing.turned_away(),
        standing.collapsed_s(),
        settled.collect::<Vec<_>>().join(" "),
    )
}
