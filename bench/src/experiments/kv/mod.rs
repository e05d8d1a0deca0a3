//! Memory for keys and values.
mod door;
mod model;
pub(crate) mod workload;

use std::time::Duration;

use tidegate_sim::engine::EngineConfig;

use self::door::Rule;
use self::model::{Outcome, Window, play};
use self::workload::{Traces, Workload};
use crate::Fallible;
use crate::report::{Report, Spread};
use crate::virtual_time;

pub(crate) fn measure() -> Fallible<Report> {
    let report = Report::new("kv", 1..=10);
    let engine = EngineConfig { num_blocks: 2_048, ..EngineConfig::default() };
    let traces = Traces::read(engine.max_model_len)?;
    let window = Window { from: Duration::from_secs(60), until: Duration::from_secs(360) };
    for workload in Workload::ALL {
        let mut rules = vec![];
        for h in [0.0, 0.01, 0.02, 0.05] {
            rules.push(Rule::Oracle { headroom: h });
        }
        for h in [0.0, 0.02, 0.05, 0.1, 0.15] {
            rules.push(Rule::Learned { headroom: h });
        }
        rules.push(Rule::Reserve { max_tokens: 4096 });
        for n in [8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 256] {
            rules.push(Rule::Slots(n));
        }
        for rule in rules {
            let runs = virtual_time::each(1..=10, |seed| {
                play(&engine, rule, &traces.draw(workload, seed, 4_000), window)
            })?;
            let of = |pick: fn(&Outcome) -> f64| Spread::of(runs.iter().map(pick));
            let (t, p, k) = (of(|o| o.tokens_per_s), of(|o| o.preempted), of(|o| o.peak));
            eprintln!(
                "{:14} {:?}: tok/s {:.0} ({:.0}-{:.0}) calls/s {:.2} preempted {:.4} (..{:.4}) peak {:.3}",
                workload.name(),
                rule,
                t.median,
                t.least,
                t.most,
                of(|o| o.calls_per_s).median,
                p.median,
                p.most,
                k.most
            );
        }
    }
    Ok(report)
}
