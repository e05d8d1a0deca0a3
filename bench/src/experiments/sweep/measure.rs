//! Measures all scenarios on the reporting seeds: figures, bars, and the committed files.

use tidegate_sweep::SearchSettings;

use super::figures::Figures;
use super::oracle::{Kept, folder};
use super::peers::Peer;
use super::stage::Stage;
use super::table::{LEGEND, head, misses, row};
use super::{plot, scenarios};
use crate::files::write;
use crate::report::{Op, Report};
use crate::seeds::Seeds;
use crate::{Fallible, virtual_time};

/// Seeds on which the search was not developed. It was developed on 1 to 100, 201 to 212 and 301 to
/// 330, and reported once on 401 to 500.
pub(crate) const SEEDS: Seeds = Seeds::new(501, 600);
/// Fewer seeds for the peers, which vary little.
const PEERS_SEEDS: Seeds = Seeds::new(501, 520);

/// Runs the experiment and returns its report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("sweep", SEEDS);
    let stages: Vec<Stage> = scenarios::all().into_iter().map(Stage::new).collect();
    let kept = Kept::new();
    let curves: Vec<_> = stages.iter().flat_map(Stage::curves).collect();
    kept.complete(&curves)?;
    let (mut rows, mut told) = (String::new(), String::new());
    let mut drawn = Vec::new();
    for stage in &stages {
        let name = stage.scenario.name;
        let ours = virtual_time::each(SEEDS, |seed| stage.ours(&SearchSettings::default(), seed, |_| ()))?;
        let figures = Figures::of(&ours);
        eprintln!("{name}: {}", figures.line());
        tell(&mut report, name, &figures);
        hold(&mut report, name, &figures);
        rows.push_str(&row(name, "ours", &figures));
        told.push_str(&misses(name, &ours));
        let mut beside = Vec::new();
        for peer in Peer::ALL {
            let runs = virtual_time::each(PEERS_SEEDS, |seed| stage.peer(peer, seed))?;
            let figures = Figures::of(&runs);
            eprintln!("  {}: {}", peer.name(), figures.line());
            for (what, value) in figures.told().into_iter().filter(|(what, _)| !OURS_ALONE.contains(what)) {
                report.peer(peer.name(), format!("{name}: {what}"), value);
            }
            rows.push_str(&row("", peer.name(), &figures));
            beside.push((peer, runs));
        }
        drawn.push((stage, ours, beside));
    }
    kept.write(&curves)?;
    let all: Vec<plot::Row> =
        drawn.iter().map(|(stage, ours, beside)| (*stage, ours.as_slice(), beside.as_slice())).collect();
    write(&folder(), "sweep.svg", &plot::draw(&all)?)?;
    let text = format!("{}{rows}\n{LEGEND}\n\n## Answers that miss\n\n{told}", head(SEEDS, PEERS_SEEDS));
    write(&folder(), "README.md", &text)?;
    Ok(report)
}

/// Figures of ours only, because peers report neither the binding limit nor an interval.
const OURS_ALONE: [&str; 2] = [RIGHT, COVERS];
const RIGHT: &str = "what binds is right, share of answers";
const COVERS: &str = "the interval covers the truth, share of answers";

impl Figures {
    fn told(&self) -> [(&'static str, f64); 8] {
        [
            ("throughput at the answer / best stable", self.ratio),
            ("throughput at the answer / best stable, tenth percentile", self.ratio_p10),
            ("infeasible answers, share", self.infeasible),
            (RIGHT, self.class_right),
            (COVERS, self.covers),
            ("calls, median", self.calls),
            ("calls, p90", self.calls_p90),
            ("virtual seconds, median", self.seconds),
        ]
    }
}

fn tell(report: &mut Report, name: &str, figures: &Figures) {
    for (what, value) in figures.told() {
        report.figure(format!("{name}: {what}"), value);
    }
}

fn hold(report: &mut Report, name: &str, figures: &Figures) {
    let bars = [
        ("median throughput at the answer / best stable", figures.ratio, Op::AtLeast, 0.97),
        ("infeasible answers", figures.infeasible, Op::AtMost, 0.02),
        (RIGHT, figures.class_right, Op::AtLeast, 0.98),
        (COVERS, figures.covers, Op::AtLeast, 0.9),
        ("median calls", figures.calls, Op::AtMost, 1_500.0),
    ];
    for (what, value, op, bar) in bars {
        report.bar(format!("{name}: {what}"), value, op, bar);
    }
}
