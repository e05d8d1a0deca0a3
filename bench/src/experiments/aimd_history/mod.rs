//! Reproduces each fault of the controller in "Adaptive Concurrency on a Multi-Tenant vLLM
//! Gateway".
//!
//! Each experiment runs the post's controller with a fault, the same controller with the post's
//! fix, and Tidegate's limit with its defaults. The post's gateway runs in front of the calibrated
//! workers in virtual time ([`gateway`]), so five minutes take tens of milliseconds.

mod controllers;
mod death_spiral;
mod faults;
mod figures;
mod gateway;
mod load;
mod start_values;

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use controllers::{Controller, Ours, Static};
use figures::Seen;
use gateway::{QueueLimits, play};
use load::Load;

use crate::experiments::adaptive::peers::published_aimd::Post;
use crate::report::{Report, Spread};
use crate::{Fallible, virtual_time};

/// The seeds of the reported figures. The loads were chosen on seeds 1 to 5.
const SEEDS: RangeInclusive<u64> = 11..=20;
/// The target for the p99 of the user's TTFT: "Pick 2 seconds, walk away."
const TARGET: Duration = Duration::from_secs(2);
const WORKERS: usize = 2;
/// The p99 of the user's TTFT, in seconds, above which the target counts as breached: "p99 > target
/// × 1.2".
const BREACH: f64 = 2.4;

/// Reproduces all faults, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("aimd-history", SEEDS);
    death_spiral::measure(&mut report)?;
    faults::bursts(&mut report)?;
    faults::demand(&mut report)?;
    faults::thrash(&mut report)?;
    faults::compound(&mut report)?;
    start_values::measure(&mut report)?;
    Ok(report)
}

/// A constructor of the controller of a run.
type Make = dyn Fn() -> Box<dyn Controller> + Sync;

fn post(settings: Post) -> Box<Make> {
    Box::new(move || Box::new(settings.build()))
}

fn ours() -> Box<Make> {
    Box::new(|| Box::new(Ours::new()))
}

/// Returns a constructor of a controller that always allows `cap_per_worker` concurrent calls per
/// worker.
fn fixed(cap_per_worker: usize) -> Box<Make> {
    Box::new(move || Box::new(Static(cap_per_worker * WORKERS)))
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The figures of the same period of each run, one run per seed.
struct Runs(Vec<Seen>);

impl Runs {
    fn of(load: &Load, queue_limits: QueueLimits, make: &Make, part: Range<Duration>) -> Fallible<Self> {
        let run = |seed| Ok(play(load, &queue_limits, make().as_mut(), seed).seen(part.start, part.end));
        virtual_time::each(SEEDS, run).map(Self)
    }

    fn spread(&self, of: fn(&Seen) -> f64) -> Spread {
        Spread::of(self.0.iter().map(of))
    }

    /// Returns the smallest ratio, over the seeds, of a figure to the same figure of `to`. `of`
    /// selects the figure.
    fn least_ratio(&self, to: &Self, of: fn(&Seen) -> f64) -> f64 {
        let ratios = self.0.iter().zip(&to.0).map(|(one, other)| of(one) / of(other));
        ratios.fold(f64::INFINITY, f64::min)
    }

    /// Returns the largest ratio, over the seeds, of a figure to the same figure of `to`. `of`
    /// selects the figure.
    fn most_ratio(&self, to: &Self, of: fn(&Seen) -> f64) -> f64 {
        let ratios = self.0.iter().zip(&to.0).map(|(one, other)| of(one) / of(other));
        ratios.fold(0.0, f64::max)
    }
}

type Figure = (&'static str, fn(&Seen) -> f64);

const MEDIAN: Figure = ("median user TTFT, s", |seen| seen.p50);
const P99: Figure = ("p99 user TTFT, s", |seen| seen.p99);
const SERVED: Figure = ("calls served a second", |seen| seen.served);
const IN_TIME: Figure = ("of them within 2 s", |seen| seen.in_time);
const REFUSED: Figure = ("share refused", |seen| seen.refused);
const REFUSED_PAYING: Figure = ("share of the paying tenant's calls refused", |seen| seen.refused_paying);
const CAP: Figure = ("cap of a worker", |seen| seen.cap);
const LEAST_CAP: Figure = ("least cap of a worker", |seen| seen.least_cap);
const BATCH: Figure = ("calls with a worker", |seen| seen.batch);
const CUTS: Figure = ("cuts", |seen| seen.cuts);
const FLIPS: Figure = ("changes between increase and decrease", |seen| seen.flips);

/// Records `figures` of the runs in `report`, as Tidegate's if `who` is empty and as those of the
/// peer `who` otherwise, and prints their medians.
fn note(report: &mut Report, fault: &str, who: &str, runs: &Runs, figures: &[Figure]) {
    let mut line = format!("{fault}, {}:", if who.is_empty() { "ours" } else { who });
    for (what, of) in figures {
        let (key, spread) = (format!("{fault}, {what}"), runs.spread(*of));
        line += &format!(" {what} {:.2}", spread.median);
        if who.is_empty() {
            report.figure(key, spread);
        } else {
            report.peer(who, key, spread);
        }
    }
    eprintln!("{line}");
}
