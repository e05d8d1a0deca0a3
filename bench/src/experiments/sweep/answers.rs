//! The answers of single sweeps, without the measured truth about the servers.

use serde_json::json;
use tidegate_sweep::SearchSettings;

use super::scenarios;
use super::stage::Stage;
use crate::report::Report;
use crate::seeds::Seeds;
use crate::{Fallible, virtual_time};

/// Reports the answer and the cost of each sweep of each scenario.
pub(crate) fn answers(seeds: Seeds) -> Fallible<Report> {
    let mut report = Report::new("sweep", seeds);
    for stage in scenarios::all().into_iter().map(Stage::new) {
        let name = stage.scenario.name;
        let played = virtual_time::each(seeds, |seed| stage.sweep(&SearchSettings::default(), seed, |_| ()))?;
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
