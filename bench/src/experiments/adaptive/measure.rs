//! Measures all scenarios on the reporting seeds: figures, bars, and the committed files.

use std::path::Path;

use super::figures::{Figures, Share};
use super::oracle::Oracle;
use super::plot::{self, Line};
use super::roster::{Entry, Role, entries};
use super::stage::Stage;
use super::standing::{ContenderResult, standings};
use super::table::{LEGEND, table};
use super::workload::Part;
use super::{scenarios, spread_out};
use crate::Fallible;
use crate::files::write;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::virtual_time::beginning;

/// Not seeds 1 to 10, which were used to choose constants on the first halves of the traces. These
/// seeds, and the oracle beside them, play the second halves.
pub(crate) const SEEDS: Seeds = Seeds::new(101, 120);

/// The controllers that are drawn beside ours.
const DRAWN: [(&str, plotters::style::RGBColor); 2] = [
    ("AIMD on p50 over twice the baseline", plot::ORANGE),
    ("AIMD on p99 of user TTFT, floor 16", plot::GREEN),
];

/// Measures all scenarios on `seeds`. If `folder` is given, writes the tables and the pictures
/// there.
pub(crate) fn measure(seeds: Seeds, folder: Option<&Path>) -> Fallible<Report> {
    let mut report = Report::new("adaptive", seeds);
    let mut results = format!("Seeds {} to {}. {LEGEND}", seeds.first, seeds.last);
    let mut played = Vec::new();
    for scenario in scenarios::all() {
        let stage = Stage::new(scenario, Part::of(seeds.first))?;
        let oracle = Oracle::find(&stage)?;
        let entries = entries(&stage, &oracle);
        let standings = standings(&stage, &oracle, &entries, &seeds.into_iter().collect::<Vec<_>>())?;
        let text = table(&stage, &oracle, &standings);
        eprint!("{text}");
        results.push_str(&text);
        if let Some(folder) = folder {
            let picture = picture(&stage, &entries, seeds.first)?;
            write(folder, &format!("{}.svg", slug(stage.scenario.name)), &picture)?;
        }
        let outcome = Outcome { name: stage.scenario.name, held_out: stage.scenario.held_out, standings };
        outcome.figures(&mut report);
        played.push(outcome);
    }
    if let Some(folder) = folder {
        write(folder, "results.txt", &results)?;
    }
    bars(&mut report, &played);
    Ok(report)
}

/// The results of all contenders in one scenario.
struct Outcome {
    name: &'static str,
    held_out: bool,
    standings: Vec<ContenderResult>,
}

impl Outcome {
    fn of(&self, role: Role) -> impl Iterator<Item = &ContenderResult> {
        self.standings.iter().filter(move |standing| standing.role == role)
    }

    /// Returns the goodput of the role's contender as a share of the oracle's. NaN without one.
    fn goodput(&self, role: Role) -> f64 {
        let oracle = self.of(Role::Oracle).next();
        self.of(role).next().zip(oracle).map_or(f64::NAN, |(standing, oracle)| standing.goodput(oracle))
    }

    fn best_peer(&self) -> f64 {
        let Some(oracle) = self.of(Role::Oracle).next() else { return f64::NAN };
        self.of(Role::Peer).map(|peer| peer.goodput(oracle)).fold(0.0, f64::max)
    }

    /// Returns the percentage points by which ours is behind the oracle.
    fn behind(&self, of: fn(&Figures) -> Share) -> f64 {
        let met = |role| self.of(role).next().map_or(f64::NAN, |standing| standing.met(of));
        met(Role::Oracle) - met(Role::Ours)
    }

    fn figures(&self, report: &mut Report) {
        let Some(oracle) = self.of(Role::Oracle).next() else { return };
        let key = |what: &str| format!("{}: {what}", self.name);
        for standing in &self.standings {
            let pooled = [
                (GOODPUT, standing.goodput(oracle)),
                (WORST_SEED, standing.goodputs(oracle).least),
                (MET, standing.met(|run| run.sent)),
                (MET_OF_ALL, standing.met(|run| run.asked)),
            ];
            for (what, value) in pooled {
                match standing.role {
                    Role::Ours => report.figure(key(what), value),
                    // The oracle's own goodput is 1 by definition.
                    Role::Oracle if what == GOODPUT || what == WORST_SEED => {}
                    _ => report.peer(standing.name, key(what), value),
                }
            }
            if standing.role != Role::Ours {
                continue;
            }
            report.figure(key("p99 TTFT of the worst phase, s"), standing.ttft_p99_s());
            let one = standing.one_at_a_time_s();
            report.figure(
                key("s with one call awaiting its first token at most, while calls waited (worst seed)"),
                one,
            );
            for (phase, settled) in standing.settled_s().into_iter().enumerate() {
                let settled = settled.map_or("never".into(), serde_json::Value::from);
                let what = format!(
                    "s until within 10 % of the oracle's band to stay, phase {} (median seed)",
                    phase + 1
                );
                report.figure(key(&what), settled);
            }
        }
    }
}

const GOODPUT: &str = "goodput / oracle's (all seeds together)";
const WORST_SEED: &str = "goodput / oracle's (worst seed)";
const MET: &str = "objective met, % of calls that went upstream (all seeds together)";
const MET_OF_ALL: &str = "objective met, % of calls asked for (all seeds together)";

fn bars(report: &mut Report, outcomes: &[Outcome]) {
    let goodput = |role: Role| Spread::of(outcomes.iter().map(|outcome| outcome.goodput(role)));
    let ours = goodput(Role::Ours);
    let all = "all seeds together";
    report.bar(format!("goodput / oracle's (median scenario, {all})"), ours.median, Op::AtLeast, 0.97);
    report.bar(format!("goodput / oracle's (worst scenario, {all})"), ours.least, Op::AtLeast, 0.90);
    let held_out =
        outcomes.iter().filter(|outcome| outcome.held_out).map(|outcome| outcome.goodput(Role::Ours));
    let held_out = Spread::of(held_out);
    let what = |which| format!("goodput / oracle's ({which} scenario held out, {all})");
    report.bar(what("median"), held_out.median, Op::AtLeast, 0.97);
    report.bar(what("worst"), held_out.least, Op::AtLeast, 0.90);
    for outcome in outcomes {
        let what =
            |which| format!("{}: objective met {which}, points behind the oracle ({all})", outcome.name);
        report.bar(what("of calls that went upstream"), outcome.behind(|run| run.sent), Op::AtMost, 1.0);
        report.bar(what("of calls asked for"), outcome.behind(|run| run.asked), Op::AtMost, 1.0);
    }
    let floor = outcomes.iter().flat_map(|outcome| outcome.of(Role::Ours)).map(ContenderResult::collapsed_s);
    report.bar("seconds at the floor (worst run of all)", floor.fold(0.0, f64::max), Op::AtMost, 0.0);
    for outcome in outcomes {
        let what = format!("{}: goodput / the best peer's ({all})", outcome.name);
        report.bar(what, outcome.goodput(Role::Ours) / outcome.best_peer(), Op::AtLeast, 0.98);
    }
    for (who, role) in [("a quarter", Role::TooSmall), ("four times", Role::TooLarge)] {
        let what = format!("fixed, {who}: goodput / oracle's (median scenario, {all})");
        report.bar(what, goodput(role).median, Op::AtMost, 0.9);
    }
}

/// Draws ours, the oracle and two other controllers on one seed.
fn picture(stage: &Stage, entries: &[Entry], seed: u64) -> Fallible<String> {
    let course = stage.course(seed);
    let style = |entry: &Entry| match entry.role {
        Role::Oracle => Some((plot::BLACK, false)),
        Role::Ours => Some((plot::BLUE, false)),
        _ => DRAWN.iter().find(|(name, _)| *name == entry.name).map(|(_, color)| (*color, true)),
    };
    let drawn: Vec<_> = entries.iter().filter_map(|entry| Some((entry, style(entry)?))).collect();
    let mut lines = spread_out(&drawn, |(entry, (color, limit_only))| {
        let mut contender = (entry.make)(&course.terms, beginning());
        let played = stage.play(&course, contender.as_mut(), false);
        Line { name: entry.name, color: *color, limit_only: *limit_only, played }
    })?;
    // Ours is drawn on top.
    lines.sort_by_key(|line| (!line.limit_only, line.color == plot::BLUE));
    plot::draw(stage, &course, &lines)
}

/// Returns `name` in lower case, with runs of other characters than letters and digits replaced by
/// hyphens.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}
