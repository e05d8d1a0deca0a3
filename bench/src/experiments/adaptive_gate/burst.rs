//! The published burst of `noisy-neighbour`, through a gate that adapts its limit instead of using
//! the published caps.
//!
//! The calls are those of `noisy-neighbour`. Nothing is configured except, in some variants, a
//! maximum queue wait (`wait`) and an objective (`ttft`). The gate knows tenants only from the
//! context of the calls.

use std::time::Duration;

use tidegate::Gate;
use tidegate::config::{Config, Target};
use tidegate_sim::scenario::{Arrivals, Run};
use tidegate_sim::{SimConfig, Simulator, Stats};
use tidegate_test_servers::simulator_transport;

use super::print_limit::watch;
use crate::Fallible;
use crate::client_call::URL;
use crate::experiments::noisy_neighbour::{self, Row, through};
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::virtual_time;

/// The seeds of the reported figures, those of `noisy-neighbour`. No constant was chosen on them.
pub(super) const SEEDS: Seeds = Seeds::new(11, 30);

/// The number of calls of tenant B.
const CALLS_OF_B: f64 = 450.0;
/// The minimum number of tenant B's calls that must be served for the experiment to pass.
const SERVED_OF_B: f64 = 150.0;
/// The maximum p99 TTFT of tenant A, in milliseconds, for the experiment to pass.
const TTFT_OF_A_MS: f64 = 1_000.0;

/// The maximum queue wait, which is the acquire timeout of the published experiment.
const WAIT: Duration = Duration::from_secs(30);
const OBJECTIVE: Duration = Duration::from_secs(2);

/// One of the compared configurations of the gate.
struct GateVariant {
    name: &'static str,
    /// Whether this is a configuration of Tidegate's adaptive limit, to which the pass criteria
    /// apply. `false` for configurations that only serve as a comparison.
    ours: bool,
    config: fn() -> Fallible<Config>,
}

const GATE_VARIANTS: [GateVariant; 8] = [
    GateVariant { name: "nothing set", ours: true, config: || one(|target| target) },
    GateVariant { name: "nothing set, wait 30 s", ours: true, config: || one(|target| target.wait(WAIT)) },
    GateVariant { name: "ttft 2 s", ours: true, config: || one(|target| target.ttft(OBJECTIVE)) },
    GateVariant {
        name: "ttft 2 s, wait 30 s",
        ours: true,
        config: || one(|target| target.ttft(OBJECTIVE).wait(WAIT)),
    },
    GateVariant { name: "off (the post's run 2)", ours: false, config: || noisy_neighbour::config(false) },
    GateVariant {
        name: "caps 64/8/64, wait 30 s (the post's run 3)",
        ours: false,
        config: || noisy_neighbour::config(true),
    },
    GateVariant {
        name: "cap 64, wait 30 s",
        ours: false,
        config: || one(|target| target.cap(64).wait(WAIT)),
    },
    GateVariant {
        name: "cap 256, wait 30 s",
        ours: false,
        config: || one(|target| target.cap(256).wait(WAIT)),
    },
];

fn one(set: impl FnOnce(Target) -> Target) -> Fallible<Config> {
    Ok(Config::builder().target(set(Target::new("sim").url(URL))).build()?)
}

type Pick = fn(&Row) -> f64;
const COLUMNS: [(&str, Pick); 4] = [
    ("p99 TTFT, ms", |row| row.summary.ttft_p99_ms),
    ("median TTFT, ms", |row| row.summary.ttft_median_ms),
    ("served", |row| (row.summary.calls - row.summary.failures) as f64),
    ("peak in flight upstream", |row| row.peak_upstream as f64),
];

/// Simulates the burst with each configuration on `seeds`, and records figures and pass criteria in
/// `report`.
pub(super) fn measure(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    for (arrivals, prefix) in [(Arrivals::Paced, ""), (Arrivals::Poisson, "Poisson, ")] {
        for variant in &GATE_VARIANTS {
            eprintln!("burst, {arrivals:?}, {}", variant.name);
            let config = (variant.config)()?;
            let rows = virtual_time::each(seeds, |seed| Ok(play(&config, arrivals, seed, false)?.0))?;
            for name in ["A", "B", "C"] {
                for (column, pick) in COLUMNS {
                    let of = rows.iter().flatten().filter(|row| row.name == name);
                    let spread = Spread::of(of.map(pick));
                    if variant.ours {
                        report.figure(format!("{prefix}{}, {name}: {column}", variant.name), spread);
                    } else {
                        report.peer(variant.name, format!("{prefix}{name}: {column}"), spread);
                    }
                    eprintln!("    {name} {column}: {} ({} to {})", spread.median, spread.least, spread.most);
                }
            }
            if variant.ours {
                bars(report, &format!("{prefix}{}", variant.name), &rows);
            }
        }
    }
    Ok(())
}

fn bars(report: &mut Report, variant: &str, rows: &[Vec<Row>]) {
    let spread =
        |name: &str, pick: Pick| Spread::of(rows.iter().flatten().filter(|row| row.name == name).map(pick));
    let late = spread("A", |row| row.summary.ttft_p99_ms);
    report.bar(
        format!("{variant}, A: p99 TTFT, ms (median of seeds)"),
        late.median,
        Op::AtMost,
        TTFT_OF_A_MS,
    );
    report.bar(format!("{variant}, A: p99 TTFT, ms (worst seed)"), late.most, Op::AtMost, TTFT_OF_A_MS);
    let served = spread("B", |row| CALLS_OF_B - row.summary.failures as f64);
    report.bar(format!("{variant}, B: served of 450 (worst seed)"), served.least, Op::AtLeast, SERVED_OF_B);
    let failed = spread("A", |row| row.summary.failures as f64);
    report.bar(format!("{variant}, A: failures of 240 (worst seed)"), failed.most, Op::AtMost, 0.0);
}

fn play(config: &Config, arrivals: Arrivals, seed: u64, watched: bool) -> Fallible<(Vec<Row>, Stats)> {
    virtual_time::run(seed, async {
        let simulator = Simulator::new(SimConfig::calibrated())?;
        let gate = Gate::over(config.clone(), simulator_transport(&simulator, Duration::ZERO))?;
        let watcher = watched.then(|| watch(&gate, Duration::from_secs(1)));
        let rows = through(&gate, &simulator, Run::CapsOff, arrivals, seed).await;
        if let Some(watcher) = watcher {
            watcher.abort();
        }
        Ok((rows, simulator.stats()))
    })
}

/// Simulates one seed with the first configuration whose name contains `who`. Prints the state of
/// the gate each second, the result of each tenant, and, for each call of tenant A with a TTFT
/// above 1 s, its time in the queue and upstream.
pub(super) fn inspect(who: &str, arrivals: Arrivals, seed: u64) -> Fallible<()> {
    let variant =
        GATE_VARIANTS.iter().find(|variant| variant.name.contains(who)).ok_or("nobody has that name")?;
    println!("{}", variant.name);
    let config = (variant.config)()?;
    let (rows, stats) = play(&config, arrivals, seed, true)?;
    for row in rows {
        println!("{}: {:?}", row.name, row.summary);
    }
    let asked = Run::CapsOff.calls(arrivals, seed).into_iter().filter(|(place, _)| *place == 0);
    // The calls of a tenant are sent in their order.
    let attempts = stats.attempts.iter().filter(|attempt| attempt.tenant == "A");
    for ((_, at), attempt) in asked.zip(attempts) {
        let at = at.as_secs_f64();
        let (queued, first) = (attempt.arrived_s - at, attempt.first_token_s.unwrap_or(f64::NAN) - at);
        if first > TTFT_OF_A_MS / 1e3 {
            println!("A at {at:.1} s: {queued:.2} s in the queue, {:.2} s upstream", first - queued);
        }
    }
    Ok(())
}
