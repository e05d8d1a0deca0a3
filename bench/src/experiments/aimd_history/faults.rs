//! Measures four faults of the published controller: queues of two calls, a cap that grows only
//! while calls are queued, no dead band around the target, and no cool-down between decreases.

use tidegate::config::AdaptiveConfig;

use super::controllers::{Controller, Ours};
use super::gateway::QueueLimits;
use super::load::{Load, Phase};
use super::{
    BREACH, CAP, CUTS, FLIPS, Figure, IN_TIME, LEAST_CAP, Make, P99, REFUSED, REFUSED_PAYING, Runs, SERVED,
    WORKERS, fixed, note, ours, post, s,
};
use crate::Fallible;
use crate::experiments::adaptive::peers::published_aimd::{Demand, Descent, Post};
use crate::report::{Op, Report};

/// Measures "the catch with tight queues: bursty arrivals". With queues of two calls, calls of the
/// paying tenant are rejected, although the workers could serve the tenant's mean rate.
pub(super) fn bursts(report: &mut Report) -> Fallible<()> {
    const FAULT: &str = "queues of two";
    const FIGURES: [Figure; 3] = [REFUSED_PAYING, P99, IN_TIME];
    let load = Load::steady(s(300), [4.0, 8.0]);
    let see = |queue_limits, make: &_| Runs::of(&load, queue_limits, make, s(60)..s(300));
    let two = see(QueueLimits { queue_max: [2, 2], ..QueueLimits::FIRST }, &fixed(64))?;
    note(report, FAULT, "fixed at 64, queue of 2 for each tenant", &two, &FIGURES);
    let split = see(QueueLimits::TIGHT, &fixed(64))?;
    note(report, FAULT, "fixed at 64, queue of 8 for the paying tenant", &split, &FIGURES);
    let own = see(QueueLimits::IMPATIENT, &ours())?;
    note(report, FAULT, "", &own, &FIGURES);
    let still = see(QueueLimits::IMPATIENT, &fixed(64))?;
    note(report, FAULT, "fixed at 64, a wait of 1 s instead", &still, &FIGURES);
    let start = AdaptiveConfig::default().start / WORKERS;
    let off = see(QueueLimits::IMPATIENT, &fixed(start))?;
    note(report, FAULT, "ours, held at its start", &off, &FIGURES);
    report.bar(
        "queues of two show: share of the paying tenant's calls refused",
        two.spread(REFUSED_PAYING.1).least,
        Op::AtLeast,
        0.05,
    );
    report.bar(
        "the same wait of 1 s, held at the start of ours: share of the paying tenant's calls refused",
        off.spread(REFUSED_PAYING.1).least,
        Op::AtLeast,
        0.05,
    );
    report.bar(
        "ours, with a wait of 1 s instead: share of the paying tenant's calls refused, and of the post's with 8",
        own.spread(REFUSED_PAYING.1).most,
        Op::AtMost,
        split.spread(REFUSED_PAYING.1).most,
    );
    Ok(())
}

/// Measures a controller that increases the cap only while calls are queued, and ignores calls in
/// flight: "It read this as no demand, refused to grow, and got stuck below the operating point
/// even while actively serving."
///
/// The load is seven minutes at a rate that 16 calls per worker can just serve, then one minute at
/// three times that rate.
pub(super) fn demand(report: &mut Report) -> Fallible<()> {
    const FAULT: &str = "demand gate";
    const FIGURES: [Figure; 5] = [REFUSED, P99, IN_TIME, CAP, LEAST_CAP];
    let phase =
        |tenant, from, until, per_second| Phase { tenant, from: s(from), until: s(until), per_second };
    let load = Load {
        phases: vec![
            phase(0, 0, 420, 1.5),
            phase(1, 0, 420, 1.5),
            phase(0, 420, 480, 6.0),
            phase(1, 420, 480, 3.0),
        ],
        ..Load::steady(s(480), [0.0, 0.0])
    };
    let see = |make: &_| Runs::of(&load, QueueLimits::TIGHT, make, s(60)..s(480));
    let settings = Post { cap_per_worker: 16, ..Post::FINAL };
    let blind = see(&post(Post { demand: Demand::Queued, ..settings }))?;
    note(report, FAULT, "the post's, queued calls alone", &blind, &FIGURES);
    let seeing = see(&post(settings))?;
    note(report, FAULT, "the post's, in flight as well", &seeing, &FIGURES);
    let own = see(&ours())?;
    note(report, FAULT, "", &own, &FIGURES);
    report.bar(
        "a gate that ignores calls in flight: cap of a worker, of that of one that counts them",
        blind.most_ratio(&seeing, CAP.1),
        Op::AtMost,
        0.5,
    );
    report.bar(
        "a gate that ignores calls in flight: share refused",
        blind.spread(REFUSED.1).least,
        Op::AtLeast,
        0.05,
    );
    report.bar(
        "a gate that counts calls in flight: share refused",
        seeing.spread(REFUSED.1).most,
        Op::AtMost,
        0.05,
    );
    report.bar("ours, demand: share refused", own.spread(REFUSED.1).most, Op::AtMost, 0.05);
    report.bar("ours, demand: p99 user TTFT, s", own.spread(P99.1).most, Op::AtMost, 2.0);
    Ok(())
}

/// Measures a controller without a dead band (a range around the target in which the cap stays):
/// "p99 jittering near the SLO flipped the direction every tick."
///
/// The load exceeds the capacity, with an acquire timeout of 1 s so that the limit does not
/// collapse. Fifteen minutes at the operating point are measured.
pub(super) fn thrash(report: &mut Report) -> Fallible<()> {
    const FAULT: &str = "thrash";
    const FIGURES: [Figure; 6] = [FLIPS, CUTS, IN_TIME, P99, CAP, LEAST_CAP];
    let load = Load::steady(s(1200), [4.0, 8.0]);
    let see = |make: &_| Runs::of(&load, QueueLimits::IMPATIENT, make, s(300)..s(1200));
    let settings = Post { cap_per_worker: 128, max: 256, ..Post::FINAL };
    let bare = see(&post(Post { band: 0.0, ..settings }))?;
    note(report, FAULT, "the post's, without a dead band", &bare, &FIGURES);
    let banded = see(&post(settings))?;
    note(report, FAULT, "the post's, 20 % either way", &banded, &FIGURES);
    let room = settings.max * WORKERS;
    let own = see(&(Box::new(move || Box::new(Ours::up_to(room)) as Box<dyn Controller>) as Box<Make>))?;
    note(report, FAULT, "", &own, &FIGURES);
    let turns = bare.spread(FLIPS.1).median / banded.spread(FLIPS.1).median.max(1.0);
    report.bar("no dead band: changes of direction, of those with one (medians)", turns, Op::AtLeast, 1.5);
    report.bar(
        "ours, at the operating point: within 2 s, of the post's",
        own.least_ratio(&banded, IN_TIME.1),
        Op::AtLeast,
        0.98,
    );
    report.bar("ours, at the operating point: p99 user TTFT, s", own.spread(P99.1).most, Op::AtMost, BREACH);
    Ok(())
}

/// Measures how many times the limit is decreased because of one event: "The rolling window still
/// contains stale samples from before the cap dropped".
///
/// The load is 8 calls per second, below the workers' capacity. For three seconds, the workers take
/// twenty times as long.
pub(super) fn compound(report: &mut Report) -> Fallible<()> {
    const FIGURES: [Figure; 5] = [CUTS, LEAST_CAP, REFUSED, IN_TIME, SERVED];
    let load = Load { stall: Some((s(120), s(123), 20.0)), ..Load::steady(s(300), [4.0, 4.0]) };
    let see = |make: &_| Runs::of(&load, QueueLimits::IMPATIENT, make, s(115)..s(300));
    let own = see(&ours())?;
    for (fault, descent) in
        [("one stall, steps of 4", Descent::Step(4)), ("one stall, halving", Descent::Halving)]
    {
        let settings = Post { descent, ..Post::FINAL };
        let bare = see(&post(Post { cooldown_ticks: 0, ..settings }))?;
        note(report, fault, "the post's, without a cool-down", &bare, &FIGURES);
        let held = see(&post(settings))?;
        note(report, fault, "the post's, 3 ticks", &held, &FIGURES);
        note(report, fault, "", &own, &FIGURES);
        let ratio = held.spread(CUTS.1).median / bare.spread(CUTS.1).median;
        report.bar(
            format!("{fault}: cuts with a cool-down, of those without (medians)"),
            ratio,
            Op::AtMost,
            0.7,
        );
        report.bar(
            format!("{fault}: ours, cuts, and those of the post's with a cool-down"),
            own.spread(CUTS.1).most,
            Op::AtMost,
            held.spread(CUTS.1).least,
        );
        report.bar(
            format!("{fault}: ours, served, of the post's with a cool-down"),
            own.least_ratio(&held, SERVED.1),
            Op::AtLeast,
            0.98,
        );
    }
    Ok(())
}
