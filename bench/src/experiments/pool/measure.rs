//! All of it on seeds that nobody chose on.

use super::figures::Figures;
use super::play::{Clients, Fault};
use super::roster::{Entry, OURS, OWN_COUNTS, Role, entries};
use super::stage::{Scene, capacity};
use super::table::{median, table};
use super::workload::Workload;
use crate::Fallible;
use crate::report::{Op, Report};

/// Seeds 1 to 100 are for choosing on.
const SEEDS: std::ops::RangeInclusive<u64> = 101..=105;
const CLIENTS: [usize; 3] = [1, 8, 64];
const LOADS: [f64; 3] = [0.5, 0.7, 0.85];

pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("pool", SEEDS);
    let seeds: Vec<u64> = SEEDS.collect();
    for workload in Workload::ALL {
        let full = capacity(workload)?;
        report.figure(format!("{}: full at so many times its speed", workload.name()), full);
        for load in LOADS {
            let scene = Scene::new(workload, load, full);
            let calls = scene.calls(&seeds)?;
            for count in CLIENTS {
                let entries = entries(count);
                let clients = Clients { count, sticky: false };
                let runs = scene.play(&calls, clients, Fault::None, &entries)?;
                let title = format!("{}, {count} clients", scene.name());
                eprint!("{}", table(&title, &entries, &runs));
                bars(&mut report, &title, &entries, &runs);
            }
        }
    }
    Ok(report)
}

fn bars(report: &mut Report, title: &str, entries: &[Entry], runs: &[Vec<Figures>]) {
    let of = |role: Role| {
        entries.iter().zip(runs).filter(move |(entry, _)| entry.role == role).map(|(_, runs)| runs)
    };
    let p99 = |runs: &Vec<Figures>| median(runs, |run| run.p99_s);
    let hits = |runs: &Vec<Figures>| median(runs, |run| run.hit_rate);
    let (Some(ours), Some(best)) = (of(Role::Ours).next(), of(Role::Oracle).map(p99).min_by(f64::total_cmp))
    else {
        return;
    };
    let most = of(Role::Oracle).map(hits).fold(0.0, f64::max);
    report.bar(format!("{title}: p99 TTFT / the oracle's"), p99(ours) / best, Op::AtMost, 1.5);
    report.bar(format!("{title}: prefix hit rate / the oracle's"), hits(ours) / most, Op::AtLeast, 0.9);
    let _ = (OURS, OWN_COUNTS);
}
