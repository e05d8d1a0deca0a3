//! Measures all scenarios on the seeds of the published figures: the report with its figures and
//! bars (thresholds), and the tables and charts in `bench/adaptive`.

use super::contender_list::{Entry, Role, entries};
use super::contender_results::{ContenderResult, contender_results};
use super::figures::{Figures, Share};
use super::oracle::Oracle;
use super::plot::{self, Line};
use super::prepared_scenario::PreparedScenario;
use super::table::{LEGEND, table};
use super::workload::Part;
use super::{scenarios, spread_out};
use crate::Fallible;
use crate::chart_colours;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::virtual_time::time_origin;

/// The seeds of the reported figures. Their calls are from the second halves of the traces.
/// Constants of the limit were chosen on seeds 1 to 10, whose calls are from the first halves.
pub(crate) const SEEDS: Seeds = Seeds::new(101, 120);

/// Names and colours of the peers that are drawn beside Tidegate.
const DRAWN: [(&str, plotters::style::RGBColor); 2] = [
    ("AIMD on p50 over twice the baseline", chart_colours::ORANGE),
    ("AIMD on p99 of user TTFT, floor 16", chart_colours::GREEN),
];

/// Measures all scenarios on `seeds`, and returns the report. With `draws`, the report has
/// tables and charts, too.
pub(crate) fn measure(seeds: Seeds, draws: bool) -> Fallible<Report> {
    let mut report = Report::new("adaptive", seeds);
    let mut results = format!("Seeds {} to {}. {LEGEND}", seeds.first, seeds.last);
    let mut played = Vec::new();
    for scenario in scenarios::all() {
        let prepared = PreparedScenario::new(scenario, Part::of(seeds.first))?;
        let oracle = Oracle::find(&prepared)?;
        let entries = entries(&prepared, &oracle);
        let contender_results =
            contender_results(&prepared, &oracle, &entries, &seeds.into_iter().collect::<Vec<_>>())?;
        let text = table(&prepared, &oracle, &contender_results);
        eprint!("{text}");
        results.push_str(&text);
        if draws {
            let path = format!("adaptive/{}.svg", slug(prepared.scenario.name));
            report.page(path, picture(&prepared, &entries, seeds.first)?);
        }
        let outcome =
            Outcome { name: prepared.scenario.name, held_out: prepared.scenario.held_out, contender_results };
        outcome.figures(&mut report);
        played.push(outcome);
    }
    if draws {
        report.page("adaptive/results.txt".to_owned(), results);
    }
    bars(&mut report, &played);
    Ok(report)
}

/// The results of all contenders in one scenario, over all seeds.
struct Outcome {
    name: &'static str,
    held_out: bool,
    contender_results: Vec<ContenderResult>,
}

impl Outcome {
    fn of(&self, role: Role) -> impl Iterator<Item = &ContenderResult> {
        self.contender_results.iter().filter(move |contender_result| contender_result.role == role)
    }

    /// Returns the goodput of the contender with this role: its number of calls served in time,
    /// divided by the oracle's. NaN if no contender has the role.
    fn goodput(&self, role: Role) -> f64 {
        let oracle = self.of(Role::Oracle).next();
        self.of(role)
            .next()
            .zip(oracle)
            .map_or(f64::NAN, |(contender_result, oracle)| contender_result.goodput(oracle))
    }

    fn best_peer(&self) -> f64 {
        let Some(oracle) = self.of(Role::Oracle).next() else { return f64::NAN };
        self.of(Role::Peer).map(|peer| peer.goodput(oracle)).fold(0.0, f64::max)
    }

    /// Returns the percentage of the oracle's calls with a first token in time, minus Tidegate's
    /// percentage, over all seeds. Negative if Tidegate is ahead. `of` selects which calls of a run
    /// are counted.
    fn behind(&self, of: fn(&Figures) -> Share) -> f64 {
        let met = |role| self.of(role).next().map_or(f64::NAN, |contender_result| contender_result.met(of));
        met(Role::Oracle) - met(Role::Ours)
    }

    fn figures(&self, report: &mut Report) {
        let Some(oracle) = self.of(Role::Oracle).next() else { return };
        let key = |what: &str| format!("{}: {what}", self.name);
        for contender_result in &self.contender_results {
            let pooled = [
                (GOODPUT, contender_result.goodput(oracle)),
                (WORST_SEED, contender_result.goodputs(oracle).least),
                (MET, contender_result.met(|run| run.sent)),
                (MET_OF_ALL, contender_result.met(|run| run.asked)),
            ];
            for (what, value) in pooled {
                match contender_result.role {
                    Role::Ours => report.figure(key(what), value),
                    // The oracle's own goodput is 1 by definition.
                    Role::Oracle if what == GOODPUT || what == WORST_SEED => {}
                    _ => report.peer(contender_result.name, key(what), value),
                }
            }
            if contender_result.role != Role::Ours {
                continue;
            }
            report.figure(key("p99 TTFT of the worst phase, s"), contender_result.ttft_p99_s());
            let one = contender_result.one_at_a_time_s();
            report.figure(
                key("s with one call awaiting its first token at most, while calls waited (worst seed)"),
                one,
            );
            for (phase, settled) in contender_result.settled_s().into_iter().enumerate() {
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
    let floor = outcomes.iter().flat_map(|outcome| outcome.of(Role::Ours)).map(ContenderResult::at_floor_s);
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

/// Draws the runs of Tidegate, the oracle and two peers on one seed. Returns the text of an SVG
/// file.
fn picture(prepared: &PreparedScenario, entries: &[Entry], seed: u64) -> Fallible<String> {
    let inputs = prepared.inputs(seed);
    let style = |entry: &Entry| match entry.role {
        Role::Oracle => Some((chart_colours::BLACK, false)),
        Role::Ours => Some((chart_colours::BLUE, false)),
        _ => DRAWN.iter().find(|(name, _)| *name == entry.name).map(|(_, color)| (*color, true)),
    };
    let drawn: Vec<_> = entries.iter().filter_map(|entry| Some((entry, style(entry)?))).collect();
    let mut lines = spread_out(&drawn, |(entry, (color, limit_only))| {
        let mut contender = (entry.make)(&inputs.terms, time_origin());
        let played = prepared.play(&inputs, contender.as_mut(), false);
        Line { name: entry.name, color: *color, limit_only: *limit_only, played }
    })?;
    // Ours is drawn on top.
    lines.sort_by_key(|line| (!line.limit_only, line.color == chart_colours::BLUE));
    plot::draw(prepared, &inputs, &lines)
}

/// Returns `name` in lower case, with a hyphen for each run of characters that are neither letters
/// nor digits.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}
