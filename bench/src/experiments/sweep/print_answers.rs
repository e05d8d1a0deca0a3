//! Reports the answers of sweeps, without a comparison with the truth (the best cap of each
//! server).

use serde_json::json;
use tidegate_sweep::SearchSettings;

use super::prepared_scenario::PreparedScenario;
use super::scenarios;
use crate::report::Report;
use crate::seeds::Seeds;
use crate::{Fallible, virtual_time};

/// Runs a sweep of each scenario on each seed. Returns a report of the answers and of what they
/// cost.
pub(crate) fn answers(seeds: Seeds) -> Fallible<Report> {
    let mut report = Report::new("sweep", seeds);
    for prepared in scenarios::all().into_iter().map(PreparedScenario::new) {
        let name = prepared.scenario.name;
        let played =
            virtual_time::each(seeds, |seed| prepared.sweep(&SearchSettings::default(), seed, |_| ()))?;
        for (seed, played) in seeds.into_iter().zip(played) {
            let (answer, spend) = (played.outcome.answer, played.outcome.spend);
            let figures = [
                ("cap", json!(answer.cap)),
                ("interval", json!(answer.interval)),
                ("what binds", json!(answer.binding)),
                ("goodput", json!(answer.goodput.map(|goodput| goodput.value))),
                ("calls", json!(spend.calls)),
                ("attempts", json!(spend.attempts)),
                ("output tokens", json!(spend.output_tokens)),
                ("virtual seconds", json!(spend.seconds)),
            ];
            for (what, value) in figures {
                report.figure(format!("{name}, seed {seed}: {what}"), value);
            }
        }
    }
    Ok(report)
}
