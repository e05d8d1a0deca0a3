//! Measures all scenarios on the seeds of the published figures: the report with its figures and
//! bars (thresholds), and the table and chart in `bench/sweep`.

use tidegate_sweep::SearchSettings;

use super::figures::Figures;
use super::oracle::OracleFile;
use super::peers::Peer;
use super::prepared_scenario::PreparedScenario;
use super::table::{LEGEND, head, misses, row};
use super::{plot, scenarios};
use crate::report::{Op, Report};
use crate::seeds::Seeds;
use crate::{Fallible, virtual_time};

/// The seeds of the reported figures. The search was developed on seeds 1 to 100, 201 to 212 and
/// 301 to 330, and was measured once on 401 to 500.
pub(crate) const SEEDS: Seeds = Seeds::new(501, 600);
/// The seeds on which the peers run. They are fewer, because the peers' answers vary little.
const PEERS_SEEDS: Seeds = Seeds::new(501, 520);

/// Runs all sweeps and peers, and returns the report with the table and the chart.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("sweep", SEEDS);
    let prepared_scenarios: Vec<PreparedScenario> =
        scenarios::all().into_iter().map(PreparedScenario::new).collect();
    let oracle_file = OracleFile::new();
    let curves: Vec<_> = prepared_scenarios.iter().flat_map(PreparedScenario::curves).collect();
    oracle_file.complete(&curves)?;
    let (mut rows, mut told) = (String::new(), String::new());
    let mut drawn = Vec::new();
    for prepared in &prepared_scenarios {
        let name = prepared.scenario.name;
        let ours = virtual_time::each(SEEDS, |seed| prepared.ours(&SearchSettings::default(), seed, |_| ()))?;
        let figures = Figures::of(&ours);
        eprintln!("{name}: {}", figures.line());
        record_figures(&mut report, name, &figures);
        record_bars(&mut report, name, &figures);
        rows.push_str(&row(name, "ours", &figures));
        told.push_str(&misses(name, &ours));
        let mut beside = Vec::new();
        for peer in Peer::ALL {
            let runs = virtual_time::each(PEERS_SEEDS, |seed| prepared.peer(peer, seed))?;
            let figures = Figures::of(&runs);
            eprintln!("  {}: {}", peer.name(), figures.line());
            for (what, value) in figures.named().into_iter().filter(|(what, _)| !NOT_OF_PEERS.contains(what))
            {
                report.peer(peer.name(), format!("{name}: {what}"), value);
            }
            rows.push_str(&row("", peer.name(), &figures));
            beside.push((peer, runs));
        }
        drawn.push((prepared, ours, beside));
    }
    oracle_file.write(&curves)?;
    let all: Vec<plot::Row> = drawn
        .iter()
        .map(|(prepared, ours, beside)| (*prepared, ours.as_slice(), beside.as_slice()))
        .collect();
    report.page("sweep/sweep.svg".to_owned(), plot::draw(&all)?);
    let text = format!("{}{rows}\n{LEGEND}\n\n## Answers that miss\n\n{told}", head(SEEDS, PEERS_SEEDS));
    report.page("sweep/README.md".to_owned(), text);
    Ok(report)
}

/// The figures that peers do not have, because they report neither the binding limit nor an
/// interval.
const NOT_OF_PEERS: [&str; 2] = [RIGHT, COVERS];
const RIGHT: &str = "the right bottleneck is named, share of answers";
const COVERS: &str = "the interval covers the truth, share of answers";

impl Figures {
    fn named(&self) -> [(&'static str, f64); 8] {
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

fn record_figures(report: &mut Report, name: &str, figures: &Figures) {
    for (what, value) in figures.named() {
        report.figure(format!("{name}: {what}"), value);
    }
}

fn record_bars(report: &mut Report, name: &str, figures: &Figures) {
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
