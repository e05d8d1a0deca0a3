//! Bursts of one tenant beside others that send little, with nothing configured but the tenants'
//! names, in virtual time.
//!
//! The best fixed bounds on the tenant that bursts are searched in the same run: on its calls in
//! flight, and on those of them that await their first token. The best are those with the most
//! served calls per time to first token of the other tenants (their *power*), on seeds that are not
//! reported.

mod run_client;
mod workload;

use std::time::Duration;

use self::run_client::{Contender, RunResult, play};
use self::workload::{DEFAULT, MIXED, Workload};
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::{Fallible, virtual_time};

/// The seeds of the reported figures. Constants were chosen on seeds 1 to 10.
pub(crate) const SEEDS: Seeds = Seeds::new(11, 30);
/// The seeds on which the best fixed bounds are searched.
const SEARCH: Seeds = Seeds::new(31, 33);

/// The bounds of a run without a search, which takes most of the time.
const FIXED: Contender = Contender::Bounds { in_flight: 128, awaiting: 2 };

const IN_FLIGHT: [usize; 5] = [8, 32, 64, 128, 256];
const AWAITING: [usize; 6] = [1, 2, 3, 4, 6, 10];

/// The maximum wait of the post.
const WAIT: Duration = Duration::from_secs(30);
const LONG_WAIT: Duration = Duration::from_secs(60);

/// The maximum p99 TTFT of a tenant that does not burst, divided by that with the best bounds. Both
/// are medians of the seeds.
const TTFT: f64 = 1.15;
/// The minimum number of served calls of the burst, divided by that with the best bounds. Both are
/// medians of the seeds.
const SERVED: f64 = 0.9;

/// Simulates the published burst, and returns the report. Without `searches`, [`FIXED`]
/// replaces the best bounds.
pub(crate) fn measure_default(seeds: Seeds, searches: bool) -> Fallible<Report> {
    measure(Report::new("burst-default", seeds), &DEFAULT, seeds, searches, true)
}

/// Simulates bursts of other shapes, and returns the report. Without `searches`, [`FIXED`]
/// replaces the best bounds.
pub(crate) fn measure_mixed(seeds: Seeds, searches: bool) -> Fallible<Report> {
    measure(Report::new("burst-mixed", seeds), &MIXED, seeds, searches, false)
}

fn measure(
    mut report: Report,
    workloads: &[Workload],
    seeds: Seeds,
    searches: bool,
    has_long_wait: bool,
) -> Fallible<Report> {
    for workload in workloads {
        let best = if searches { best_bounds(workload)? } else { FIXED };
        eprintln!("{}: best bounds {}", workload.name, best.name());
        report.figure(format!("{}: best bounds", workload.name), best.name());
        let bounded = runs(best, workload, WAIT, seeds)?;
        record(&mut report, "best bounds", workload, &bounded);
        let ours = runs(Contender::Gate, workload, WAIT, seeds)?;
        record(&mut report, "", workload, &ours);
        let peers: &[Contender] =
            if workload.is_post() { &[Contender::Off, Contender::PostCaps] } else { &[Contender::Off] };
        for peer in peers {
            record(&mut report, &peer.name(), workload, &runs(*peer, workload, WAIT, seeds)?);
        }
        for (tenant, load) in workload.tenants.iter().enumerate().filter(|(_, load)| !load.bursts) {
            let p99 = |runs: &[RunResult]| Spread::of(runs.iter().map(|run| run.p99_ms(tenant)));
            let (ours, bounded) = (p99(&ours), p99(&bounded));
            let key = format!("{}, {}: p99 TTFT / best bounds", workload.name, load.name);
            report.figure(format!("{key} (worst seeds)"), ours.most / bounded.most);
            let ratio = ours.median / bounded.median;
            report.bar(format!("{key} (medians of the seeds)"), ratio, Op::AtMost, TTFT);
        }
        let served = |runs: &[RunResult]| Spread::of(runs.iter().map(|run| run.served(workload))).median;
        let ratio = served(&ours) / served(&bounded);
        let key = format!("{}, burst: served / best bounds (medians of the seeds)", workload.name);
        report.bar(key, ratio, Op::AtLeast, SERVED);
        if has_long_wait {
            let all = runs(Contender::Gate, workload, LONG_WAIT, seeds)?;
            let least = Spread::of(all.iter().map(|run| run.served(workload))).least;
            report.bar(
                format!("{}, wait 60 s, burst: calls not served", workload.name),
                workload.burst_calls() as f64 - least,
                Op::AtMost,
                0.0,
            );
        }
    }
    Ok(report)
}

fn runs(contender: Contender, workload: &Workload, wait: Duration, seeds: Seeds) -> Fallible<Vec<RunResult>> {
    virtual_time::each(seeds, |seed| play(contender, workload, wait, seed))
}

/// Returns the bounds with the highest power on the seeds [`SEARCH`].
fn best_bounds(workload: &Workload) -> Fallible<Contender> {
    let mut best = (0.0, Contender::Off);
    for in_flight in IN_FLIGHT {
        for awaiting in AWAITING.into_iter().filter(|awaiting| *awaiting <= in_flight) {
            let bounds = Contender::Bounds { in_flight, awaiting };
            let runs = runs(bounds, workload, WAIT, SEARCH)?;
            let p99 = Spread::of(runs.iter().map(|run| run.worst_p99_ms(workload))).median;
            let served = Spread::of(runs.iter().map(|run| run.served(workload))).median;
            eprintln!("    {}: worst p99 {p99:.0} ms, served {served}", bounds.name());
            if served / p99 > best.0 {
                best = (served / p99, bounds);
            }
        }
    }
    Ok(best.1)
}

/// Records the figures of `who`, or of Tidegate if `who` is empty.
fn record(report: &mut Report, who: &str, workload: &Workload, runs: &[RunResult]) {
    let mut figures =
        vec![("burst: served".to_owned(), Spread::of(runs.iter().map(|run| run.served(workload))))];
    for (tenant, load) in workload.tenants.iter().enumerate().filter(|(_, load)| !load.bursts) {
        let p99 = Spread::of(runs.iter().map(|run| run.p99_ms(tenant)));
        figures.push((format!("{}: p99 TTFT, ms", load.name), p99));
    }
    for (figure, spread) in figures {
        let key = format!("{}, {figure}", workload.name);
        eprintln!("    {who} {key}: {:.0} ({:.0} to {:.0})", spread.median, spread.least, spread.most);
        match who {
            "" => report.figure(key, spread),
            who => report.peer(who, key, spread),
        }
    }
}
