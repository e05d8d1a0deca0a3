//! All scenarios on the seeds that nobody chose on: figures, bars, and the files that are committed.

use std::path::{Path, PathBuf};

use super::oracle::Oracle;
use super::plot::{self, Line};
use super::roster::{Entry, Role, entries};
use super::stage::{Stage, TERMS};
use super::standing::{Standing, standings};
use super::table::{LEGEND, table};
use super::{scenarios, spread_out};
use crate::Fallible;
use crate::report::{Op, Report, Spread};
use crate::virtual_time::beginning;

/// Seeds 1 to 10 chose constants.
const SEEDS: std::ops::RangeInclusive<u64> = 101..=120;

/// Controllers whose limits are drawn beside ours.
const DRAWN: [(&str, plotters::style::RGBColor); 2] = [
    ("AIMD on p50 over twice the baseline", plot::ORANGE),
    ("AIMD on p99 of user TTFT, floor 16", plot::GREEN),
];

pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("adaptive", SEEDS);
    let mut results = format!("Seeds {} to {}. {LEGEND}", SEEDS.start(), SEEDS.end());
    let mut played = Vec::new();
    for scenario in scenarios::all() {
        let stage = Stage::new(scenario)?;
        let oracle = Oracle::find(&stage)?;
        let entries = entries(&stage, &oracle);
        let standings = standings(&stage, &oracle, &entries, &SEEDS.collect::<Vec<_>>())?;
        let text = table(&stage, &oracle, &standings);
        eprint!("{text}");
        results.push_str(&text);
        write(&format!("{}.svg", slug(stage.scenario.name)), &picture(&stage, &entries)?)?;
        let result = Result { name: stage.scenario.name, held_out: stage.scenario.held_out, standings };
        result.figures(&mut report);
        played.push(result);
    }
    write("results.txt", &results)?;
    bars(&mut report, &played);
    Ok(report)
}

struct Result {
    name: &'static str,
    held_out: bool,
    standings: Vec<Standing>,
}

impl Result {
    fn of(&self, role: Role) -> impl Iterator<Item = &Standing> {
        self.standings.iter().filter(move |standing| standing.role == role)
    }

    /// Of the entry that has this role: a share of the oracle's goodput; NaN without one.
    fn goodput(&self, role: Role) -> f64 {
        let oracle = self.of(Role::Oracle).next();
        self.of(role).next().zip(oracle).map_or(f64::NAN, |(standing, oracle)| standing.goodput(oracle))
    }

    fn best_peer(&self) -> f64 {
        let Some(oracle) = self.of(Role::Oracle).next() else { return f64::NAN };
        self.of(Role::Peer).map(|peer| peer.goodput(oracle)).fold(0.0, f64::max)
    }

    fn met(&self, role: Role) -> f64 {
        self.of(role).next().map_or(f64::NAN, Standing::met)
    }

    fn figures(&self, report: &mut Report) {
        let Some(oracle) = self.of(Role::Oracle).next() else { return };
        let key = |what: &str| format!("{}: {what}", self.name);
        for standing in &self.standings {
            let goodput = standing.goodputs(oracle);
            if standing.role != Role::Ours {
                if standing.role != Role::Oracle {
                    report.peer(standing.name, key(GOODPUT), goodput);
                }
                report.peer(standing.name, key(MET), standing.met() * 100.0);
                continue;
            }
            report.figure(key(GOODPUT), goodput);
            report.figure(key(MET), standing.met() * 100.0);
            report.figure(key("p99 TTFT of the worst phase, s"), standing.ttft_p99_s());
            for (phase, settled) in standing.settled_s().into_iter().enumerate() {
                let settled = settled.map_or("never".into(), serde_json::Value::from);
                report.figure(
                    key(&format!("s to within 10 % of the oracle's band, phase {}", phase + 1)),
                    settled,
                );
            }
        }
    }
}

const GOODPUT: &str = "goodput / oracle's";
const MET: &str = "objective met, %";

fn bars(report: &mut Report, results: &[Result]) {
    let goodput = |role: Role| Spread::of(results.iter().map(|result| result.goodput(role)));
    let ours = goodput(Role::Ours);
    report.bar("goodput / oracle's (median scenario)", ours.median, Op::AtLeast, 0.97);
    report.bar("goodput / oracle's (worst scenario)", ours.least, Op::AtLeast, 0.90);
    let held_out = results.iter().filter(|result| result.held_out).map(|result| result.goodput(Role::Ours));
    let held_out = Spread::of(held_out);
    report.bar("goodput / oracle's (median scenario held out)", held_out.median, Op::AtLeast, 0.97);
    report.bar("goodput / oracle's (worst scenario held out)", held_out.least, Op::AtLeast, 0.90);
    for result in results {
        let behind = (result.met(Role::Oracle) - result.met(Role::Ours)) * 100.0;
        let what = format!("{}: objective met, points behind the oracle", result.name);
        report.bar(what, behind, Op::AtMost, 1.0);
    }
    let floor = results.iter().flat_map(|result| result.of(Role::Ours)).map(Standing::collapsed_s);
    report.bar("seconds at the floor (worst run of all)", floor.fold(0.0, f64::max), Op::AtMost, 0.0);
    for result in results {
        let what = format!("{}: goodput / the best peer's", result.name);
        report.bar(what, result.goodput(Role::Ours) / result.best_peer(), Op::AtLeast, 0.98);
    }
    let small = goodput(Role::TooSmall).median;
    report.bar("fixed, a quarter: goodput / oracle's (median scenario)", small, Op::AtMost, 0.9);
    let large = goodput(Role::TooLarge).median;
    report.bar("fixed, four times: goodput / oracle's (median scenario)", large, Op::AtMost, 0.9);
}

/// Of the first seed: ours, the oracle, and two others.
fn picture(stage: &Stage, entries: &[Entry]) -> Fallible<String> {
    let course = stage.course(*SEEDS.start());
    let style = |entry: &Entry| match entry.role {
        Role::Oracle => Some((plot::BLACK, false)),
        Role::Ours => Some((plot::BLUE, false)),
        _ => DRAWN.iter().find(|(name, _)| *name == entry.name).map(|(_, color)| (*color, true)),
    };
    let drawn: Vec<_> = entries.iter().filter_map(|entry| Some((entry, style(entry)?))).collect();
    let mut lines = spread_out(&drawn, |(entry, (color, limit_only))| {
        let mut contender = (entry.make)(&TERMS, beginning());
        let played = stage.play(&course, contender.as_mut(), false);
        Line { name: entry.name, color: *color, limit_only: *limit_only, played }
    })?;
    // Ours on top.
    lines.sort_by_key(|line| (!line.limit_only, line.color == plot::BLUE));
    plot::draw(stage, &course, &lines)
}

/// `bench/adaptive`.
fn write(name: &str, text: &str) -> Fallible<()> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("adaptive");
    std::fs::create_dir_all(&folder)?;
    let mut text = text.trim_end().to_owned();
    text.push('\n');
    Ok(std::fs::write(folder.join(name), text)?)
}

/// Letters and digits, the rest as hyphens.
fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}
