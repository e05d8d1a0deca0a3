//! Checks that ageing (waiting calls move up to higher lanes) does not invert the priority of the
//! lanes: many long batch calls wait, while interactive calls keep arriving.

use std::time::Duration;

use fastrand::Rng;
use tidegate::Lane;
use tidegate::config::TargetConfig;
use tidegate::policy::schedule::SchedulerSettings;
use tidegate_sim::scenario::quantile;

use super::serve_list::{Call, DispatchTimes, Order, Ours, Strict, Turns, play};
use super::{AGING, HOUR, target};
use crate::Fallible;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::virtual_time;

const SLOTS: usize = 16;
/// The number of batch calls, which take [`BATCH_SERVICE`] each. They keep all slots busy for more
/// than an hour.
const BATCH: usize = 1_000;
const BATCH_SERVICE: Duration = Duration::from_secs(60);
/// The time between two interactive calls of two seconds each. They need 4 of the 16 slots.
const PAUSE: Duration = Duration::from_millis(500);
const SERVICE: Duration = Duration::from_secs(2);
/// The time from the arrival of the first lane's calls until the calls of the second lane begin to
/// arrive.
const LATER: Duration = Duration::from_secs(120);

struct Case {
    name: &'static str,
    poisson: bool,
    batch_first: bool,
    /// The maximum p99 wait of interactive calls, in seconds, for the case to pass.
    ///
    /// `None` if no policy that neither interrupts calls nor keeps slots free can guarantee a
    /// maximum. Then the p99 wait is compared with that of strict priority, the best such policy.
    wait: Option<f64>,
}

/// The cases: which lane comes second, and whether arrivals are random.
const CASES: [Case; 3] = [
    Case { name: "batch comes second", poisson: false, batch_first: false, wait: Some(1.0) },
    Case { name: "batch comes second, Poisson", poisson: true, batch_first: false, wait: None },
    Case { name: "batch comes first", poisson: false, batch_first: true, wait: None },
];
/// The share of the slots that is reserved for the interactive lane (its floor) in the runs with
/// `reclaim`. It is twice the share that the lane needs on average.
const FLOOR: f64 = 0.5;
/// The threshold for the p99 wait of interactive calls, divided by that under strict priority.
/// Tidegate must not exceed it. Serving the lanes in turns must exceed it, which shows that the
/// test detects an inversion.
const NEAR: f64 = 1.1;

impl Case {
    fn calls(&self, seed: u64) -> Vec<Call> {
        let mut rng = Rng::with_seed(seed);
        let (batch_at, mut at) =
            if self.batch_first { (Duration::ZERO, LATER) } else { (LATER, Duration::ZERO) };
        // The first calls are partly done, as in the middle of a long run, so that they do not end
        // together.
        let batch = |number| {
            let done = if number < SLOTS { BATCH_SERVICE.mul_f64(rng.f64()) } else { Duration::ZERO };
            Call { at: batch_at, tenant: 0, lane: Lane::Batch, service: BATCH_SERVICE - done }
        };
        let mut calls: Vec<Call> = (0..BATCH).map(batch).collect();
        while at <= HOUR {
            calls.push(Call { at, tenant: 1, lane: Lane::Interactive, service: SERVICE });
            at += if self.poisson { PAUSE.mul_f64(-rng.f64().max(1e-12).ln()) } else { PAUSE };
        }
        calls.sort_by_key(|call| call.at);
        calls
    }
}

/// The figures of both lanes in one run.
struct Outcome {
    /// The dispatched share of the interactive calls that were queued at least a minute before the
    /// end, from 0 to 1.
    served: f64,
    p50: f64,
    p99: f64,
    /// The number of batch calls that were dispatched.
    batch_served: f64,
    /// The longest wait of a batch call, divided by its bound: twice the ageing time, plus one
    /// service time for the call and for each call ahead of it.
    batch: f64,
}

fn outcome(calls: &[Call], dispatched: &DispatchTimes) -> Outcome {
    let (mut waits, mut came, mut ahead, mut batch) = (Vec::new(), 0usize, 0u32, 0.0f64);
    let of_batch = calls
        .iter()
        .zip(dispatched)
        .filter(|(call, dispatched)| call.lane == Lane::Batch && dispatched.is_some());
    let batch_served = of_batch.count() as f64;
    for (call, dispatched) in calls.iter().zip(dispatched) {
        let wait = (dispatched.unwrap_or(HOUR) - call.at).as_secs_f64();
        if call.lane == Lane::Batch {
            let bound = 2 * AGING + (ahead + 1) * BATCH_SERVICE;
            batch = batch.max(wait / bound.as_secs_f64());
            ahead += 1;
        } else if call.at + Duration::from_secs(60) <= HOUR {
            came += 1;
            waits.push(if dispatched.is_some() { wait } else { f64::INFINITY });
        }
    }
    let served = waits.iter().filter(|wait| wait.is_finite()).count() as f64 / came as f64;
    // Calls that still wait count with their wait until the end.
    waits.iter_mut().for_each(|wait| *wait = wait.min(HOUR.as_secs_f64()));
    let [p50, p99] = [0.5, 0.99].map(|q| quantile(&mut waits, q));
    Outcome { served, p50, p99, batch_served, batch }
}

fn run<O: Order>(case: &Case, seeds: Seeds, order: impl Fn() -> O + Sync) -> Fallible<Vec<Outcome>> {
    virtual_time::each(seeds, |seed| {
        let calls = case.calls(seed);
        Ok(outcome(&calls, &play(order(), &calls, SLOTS, HOUR)))
    })
}

/// Simulates all cases on `seeds`, and records figures and pass criteria in `report`.
pub(super) fn measure(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    let target = TargetConfig { cap: SLOTS, ..target() };
    let settings = SchedulerSettings::from(&target);
    let mut reclaiming = TargetConfig { reclaim: true, ..target };
    if let Some(lane) = reclaiming.lanes.first_mut() {
        lane.floor = FLOOR;
    }
    let reclaiming = SchedulerSettings::from(&reclaiming);
    for case in CASES {
        eprintln!("{}", case.name);
        let ours = run(&case, seeds, || Ours::new(&settings))?;
        let strict = run(&case, seeds, Strict::default)?;
        let turns = run(&case, seeds, || Turns::after(2 * AGING))?;
        let key = |what: &str| format!("{}: {what}", case.name);
        let spread = |runs: &[Outcome], of: fn(&Outcome) -> f64| Spread::of(runs.iter().map(of));
        for (peer, runs) in [(None, &ours), (Some("strict priority"), &strict), (Some("turns"), &turns)] {
            let figures = [
                ("interactive, served", spread(runs, |run| run.served)),
                ("interactive, median wait, s", spread(runs, |run| run.p50)),
                ("interactive, p99 wait, s", spread(runs, |run| run.p99)),
                ("batch, longest wait / its bound", spread(runs, |run| run.batch)),
            ];
            for (what, value) in figures {
                match peer {
                    None => report.figure(key(what), value),
                    Some(peer) => report.peer(peer, key(what), value),
                }
            }
        }
        let reclaimed = run(&case, seeds, || Ours::new(&reclaiming))?;
        let served =
            reclaimed.iter().zip(&ours).map(|(with, without)| with.batch_served / without.batch_served);
        report.figure(key("with reclaim: interactive, p99 wait, s"), spread(&reclaimed, |run| run.p99));
        report.figure(key("with reclaim: batch calls served / without"), Spread::of(served));
        let p99 = spread(&reclaimed, |run| run.p99).most;
        report.bar(key("with reclaim: interactive, p99 wait, s"), p99, Op::AtMost, 1.0);
        report.bar(key("interactive, served"), spread(&ours, |run| run.served).least, Op::AtLeast, 1.0);
        report.bar(
            key("batch, longest wait / its bound"),
            spread(&ours, |run| run.batch).most,
            Op::AtMost,
            1.0,
        );
        let p99 = |runs| spread(runs, |run: &Outcome| run.p99);
        match case.wait {
            Some(most) => {
                report.bar(key("interactive, p99 wait, s"), p99(&ours).most, Op::AtMost, most);
                report.bar(key("interactive, p99 wait, s, turns"), p99(&turns).least, Op::AtLeast, most);
            }
            None => {
                let ratio = |runs: &[Outcome]| {
                    Spread::of(runs.iter().zip(&strict).map(|(run, best)| run.p99 / best.p99))
                };
                let what = key("interactive, p99 wait / strict priority's");
                report.bar(&what, ratio(&ours).most, Op::AtMost, NEAR);
                report.bar(format!("{what}, turns"), ratio(&turns).least, Op::AtLeast, NEAR);
            }
        }
    }
    Ok(())
}
