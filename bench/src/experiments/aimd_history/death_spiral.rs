//! Reproduces the death spiral: the controller reads a p99 that includes the wait at the gateway,
//! and so each decrease of the cap increases the p99.

use tidegate::config::AdaptiveConfig;

use super::controllers::Ours;
use super::figures::Seen;
use super::gateway::QueueLimits;
use super::load::Load;
use super::{
    BATCH, BREACH, CAP, Figure, IN_TIME, LEAST_CAP, Make, P99, REFUSED, Runs, SERVED, fixed, note, ours,
    post, s,
};
use crate::Fallible;
use crate::experiments::adaptive::peers::published_aimd::{Descent, Post};
use crate::report::{Op, Report};

const FAULT: &str = "death spiral";
/// The prefix of the figures that Tidegate's limit reaches with the queues of the first published
/// deployment (16 calls per tenant, a wait of up to 30 s).
const KEPT: &str = "death spiral, its queues kept";
const FIGURES: [Figure; 7] = [P99, SERVED, IN_TIME, REFUSED, CAP, LEAST_CAP, BATCH];

/// Returns a load above the workers' capacity of 9.5 calls per second: "a steady offered rate above
/// the dispatch rate".
fn load() -> Load {
    Load::steady(s(300), [4.0, 8.0])
}

/// Simulates the load once per seed. Returns the figures of the time after the first two minutes:
/// "Two minutes in, cap was at the floor."
fn see(queue_limits: QueueLimits, make: &Make) -> Fallible<Runs> {
    Runs::of(&load(), queue_limits, make, s(120)..s(300))
}

fn in_time(seen: &Seen) -> f64 {
    seen.in_time
}

fn served(seen: &Seen) -> f64 {
    seen.served
}

/// Simulates the controllers and fixed caps, and records figures and pass criteria in `report`.
pub(super) fn measure(report: &mut Report) -> Fallible<()> {
    let first = see(QueueLimits::FIRST, &post(Post::FIRST))?;
    note(report, FAULT, "the post's, as deployed first", &first, &FIGURES);
    let floor = see(QueueLimits::FIRST, &post(Post { min: 16, ..Post::FIRST }))?;
    note(report, FAULT, "and a floor of 16", &floor, &FIGURES);
    let tight = see(QueueLimits::TIGHT, &post(Post { min: 16, ..Post::FIRST }))?;
    note(report, FAULT, "and queues of 8 and 2", &tight, &FIGURES);
    let last = see(QueueLimits::TIGHT, &post(Post::FINAL))?;
    note(report, FAULT, "the post's final configuration", &last, &FIGURES);
    let halving = Post { descent: Descent::Halving, ..Post::FINAL };
    let impatient = see(QueueLimits::IMPATIENT, &post(halving))?;
    note(report, FAULT, "halving again, with 1 s to acquire", &impatient, &FIGURES);
    let core = see(QueueLimits::IMPATIENT, &percentile(halving))?;
    note(report, FAULT, "the same law in the core, over upstream TTFT", &core, &FIGURES);
    let still = see(QueueLimits::FIRST, &fixed(64))?;
    note(report, FAULT, "fixed at 64", &still, &FIGURES);
    let patient = see(QueueLimits::FIRST, &ours())?;
    note(report, KEPT, "", &patient, &FIGURES);
    let own = see(QueueLimits::IMPATIENT, &ours())?;
    note(report, FAULT, "", &own, &FIGURES);
    let off = see(QueueLimits::IMPATIENT, &fixed(AdaptiveConfig::default().start / super::WORKERS))?;
    note(report, FAULT, "ours, held at its start", &off, &FIGURES);
    let far = see(QueueLimits::IMPATIENT, &fixed(4 * 64))?;
    note(report, FAULT, "fixed at 256, with a wait of 1 s", &far, &FIGURES);
    let (cap, best) = best_fixed(QueueLimits::IMPATIENT, in_time)?;
    eprintln!("the best fixed cap is {cap} a worker");
    note(report, FAULT, "the best fixed cap", &best, &FIGURES);
    let (cap, best_kept) = best_fixed(QueueLimits::FIRST, served)?;
    eprintln!("before its queues it is {cap} a worker");
    note(report, KEPT, "the fixed cap that serves the most", &best_kept, &FIGURES);

    report.bar(
        "the spiral shows: highest cap of a worker (its floor is 2)",
        first.spread(CAP.1).most,
        Op::AtMost,
        2.0,
    );
    report.bar("the spiral shows: p99 user TTFT, s", first.spread(P99.1).least, Op::AtLeast, 15.0);
    report.bar(
        "the spiral shows: served, of what a fixed 64 serves",
        first.most_ratio(&still, served),
        Op::AtMost,
        0.15,
    );
    report.bar("a floor moves it: cap of a worker", floor.spread(CAP.1).most, Op::AtMost, 17.0);
    report.bar(
        "a floor moves it: served, of what the floor of 2 serves",
        floor.least_ratio(&first, served),
        Op::AtLeast,
        3.0,
    );
    report.bar("a floor moves it: p99 user TTFT, s", floor.spread(P99.1).least, Op::AtLeast, BREACH);
    report.bar(
        "tight queues: p99, of what it is with long ones",
        tight.most_ratio(&floor, P99.1),
        Op::AtMost,
        0.5,
    );
    report.bar("1 s to acquire ends it: p99 user TTFT, s", impatient.spread(P99.1).most, Op::AtMost, 2.0);
    report.bar(
        "ours, before its queue of 16 and 30 s: least cap of a worker",
        patient.spread(LEAST_CAP.1).least,
        Op::AtLeast,
        32.0,
    );
    report.bar(
        "ours, before its queue: served, of the fixed cap that serves the most there",
        patient.least_ratio(&best_kept, served),
        Op::AtLeast,
        0.97,
    );
    report.bar("ours, with a wait of 1 s: p99 user TTFT, s", own.spread(P99.1).most, Op::AtMost, 2.0);
    report.bar(
        "the same wait of 1 s, fixed at 256: p99 user TTFT, s",
        far.spread(P99.1).least,
        Op::AtLeast,
        BREACH,
    );
    report.bar(
        "ours, with a wait of 1 s: within 2 s, of the best fixed cap",
        own.least_ratio(&best, in_time),
        Op::AtLeast,
        0.97,
    );
    report.bar(
        "ours, held at its start: within 2 s, of the best fixed cap",
        off.most_ratio(&best, in_time),
        Op::AtMost,
        0.5,
    );
    Ok(())
}

/// Returns a constructor of Tidegate's limit in percentile mode, which applies the published rule
/// to the upstream's TTFT.
fn percentile(post: Post) -> Box<Make> {
    let max = post.max * super::WORKERS;
    Box::new(move || Box::new(Ours::with(post.in_core(), max)))
}

/// Tries several fixed caps per worker. Returns the one with the highest median of the figure that
/// `most` reads, and its runs.
fn best_fixed(queue_limits: QueueLimits, most: fn(&Seen) -> f64) -> Fallible<(usize, Runs)> {
    let mut best: Option<(usize, Runs)> = None;
    for cap in [16, 32, 48, 64, 96, 112, 128, 144, 160] {
        let runs = see(queue_limits, &fixed(cap))?;
        if best.as_ref().is_none_or(|(_, b)| runs.spread(most).median > b.spread(most).median) {
            best = Some((cap, runs));
        }
    }
    Ok(best.ok_or("no cap was tried")?)
}
