//! Ten thousand tenants with one call each arrive after a few tenants ("residents") with two calls
//! each. The residents' second calls must not wait for all newcomers.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use tidegate::Lane;
use tidegate::policy::schedule::SchedulerSettings;

use super::serve_list::{Call, DispatchTimes, Fifo, Order, Ours, StartTime, play};
use super::target;
use crate::Fallible;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::virtual_time;

const NEWCOMERS: usize = 10_000;
/// The mean service time, in seconds.
const SERVICE: f64 = 1.0;
/// The longest service time, in seconds.
const LONGEST: f64 = 1.5;

/// Returns the number of resident tenants for this number of slots. There are more tenants than
/// slots, so that most of their second calls wait.
fn residents(slots: usize) -> usize {
    2 * slots + 8
}

/// Returns all calls. On average, newcomers arrive as fast as the slots can serve them.
///
/// If `regular` is `true`, they arrive at equal intervals and take one second each. Otherwise they
/// arrive at random and take 0.5 to 1.5 s.
fn calls(slots: usize, regular: bool, seed: u64) -> Vec<Call> {
    let mut rng = Rng::with_seed(seed);
    let service = |rng: &mut Rng| Duration::from_secs_f64(if regular { SERVICE } else { 0.5 + rng.f64() });
    let early = (0..2 * residents(slots)).map(|number| (Duration::ZERO, number / 2)).collect::<Vec<_>>();
    let mut at = Duration::ZERO;
    let newcomers = (0..NEWCOMERS).map(|number| {
        let pause = SERVICE / slots as f64;
        at += Duration::from_secs_f64(if regular { pause } else { -rng.f64().max(1e-12).ln() * pause });
        (at, residents(slots) + number)
    });
    let all: Vec<_> = early.into_iter().chain(newcomers.collect::<Vec<_>>()).collect();
    let call = |(at, tenant)| Call { at, tenant, lane: Lane::Interactive, service: service(&mut rng) };
    all.into_iter().map(call).collect()
}

/// Returns, for the call that comes closest to its bound, the work that the call waited for,
/// divided by the bound. At most 1 if the bound holds for all calls.
///
/// The work is the sum of the service times, in seconds, of all calls that were dispatched while
/// the call was the first waiting call of its tenant. The bound is `2 (n + 1) + slots` times the
/// longest service time. Here, `n` is the highest number of tenants that waited at the same time.
fn worst(calls: &[Call], dispatched: &DispatchTimes, slots: usize, horizon: Duration) -> f64 {
    // Events in order. At the same moment, arrivals come before dispatches.
    let mut events: Vec<(Duration, bool, usize)> = Vec::new();
    for (id, (call, dispatched)) in calls.iter().zip(dispatched).enumerate() {
        events.push((call.at, false, id));
        events.extend(dispatched.map(|at| (at, true, id)));
    }
    events.sort_unstable();
    let mut lines: HashMap<usize, Vec<usize>> = HashMap::new();
    // By tenant, the number of calls dispatched when its first call became the first. Then, after
    // each dispatch, the total work dispatched, and the number of waiting tenants.
    let mut since: HashMap<usize, usize> = HashMap::new();
    let mut gone: Vec<(f64, usize)> = vec![(0.0, 0)];
    let mut worst = 0.0f64;
    let ratio = |gone: &[(f64, usize)], since: usize| {
        let span = gone.get(since..).unwrap_or_default();
        let most = span.iter().map(|(_, waiting)| *waiting).max().unwrap_or_default();
        let work = span.last().zip(span.first()).map_or(0.0, |(last, first)| last.0 - first.0);
        work / ((2 * (most + 1) + slots) as f64 * LONGEST)
    };
    for (at, is_going, id) in events {
        let Some(call) = calls.get(id).filter(|_| at <= horizon) else { break };
        let (line, before) = (lines.entry(call.tenant).or_default(), gone.len());
        let Some((work, waiting)) = gone.last_mut() else { break };
        if !is_going {
            line.push(id);
            since.entry(call.tenant).or_insert(before - 1);
            *waiting = since.len().max(*waiting);
            continue;
        }
        let work = *work + call.service.as_secs_f64();
        line.retain(|waits| *waits != id);
        let (was, is_empty) = (since.remove(&call.tenant).unwrap_or_default(), line.is_empty());
        worst = worst.max(ratio(&gone, was));
        if !is_empty {
            since.insert(call.tenant, before);
        }
        gone.push((work, since.len()));
    }
    since.values().map(|was| ratio(&gone, *was)).fold(worst, f64::max)
}

struct Outcome {
    worst: f64,
    /// The longest wait of a resident tenant's call, in multiples of the mean service time.
    resident: f64,
}

fn run<O: Order>(
    slots: usize,
    regular: bool,
    seeds: Seeds,
    order: impl Fn() -> O + Sync,
) -> Fallible<Vec<Outcome>> {
    virtual_time::each(seeds, |seed| {
        let calls = calls(slots, regular, seed);
        // As long as newcomers arrive.
        let horizon = calls.last().map_or(Duration::ZERO, |last| last.at);
        let dispatched = play(order(), &calls, slots, horizon);
        let residents = calls.iter().zip(&dispatched).filter(|(call, _)| call.tenant < residents(slots));
        let waits =
            residents.map(|(call, dispatched)| (dispatched.unwrap_or(horizon) - call.at).as_secs_f64());
        Ok(Outcome {
            worst: worst(&calls, &dispatched, slots, horizon),
            resident: waits.fold(0.0, f64::max) / SERVICE,
        })
    })
}

/// Simulates all cases on `seeds`, and records figures and pass criteria in `report`.
pub(super) fn measure(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    for (slots, regular) in [(1, true), (16, true), (1, false), (16, false)] {
        let name = format!(
            "{NEWCOMERS} newcomers, {slots} slot{}{}",
            if slots == 1 { "" } else { "s" },
            if regular { "" } else { ", at random" }
        );
        eprintln!("{name}");
        let settings = SchedulerSettings::from(&tidegate::config::TargetConfig { cap: slots, ..target() });
        let ours = run(slots, regular, seeds, || Ours::new(&settings))?;
        let published = run(slots, regular, seeds, StartTime::default)?;
        let fifo = run(slots, regular, seeds, Fifo::default)?;
        let key = |what: &str| format!("{name}: {what}");
        let worst = |runs: &[Outcome]| Spread::of(runs.iter().map(|run| run.worst));
        for (peer, runs) in
            [(None, &ours), (Some("start-time fair queueing"), &published), (Some("FIFO"), &fifo)]
        {
            let figures = [
                ("longest time first in line / its bound", worst(runs)),
                ("a resident's longest wait, service times", Spread::of(runs.iter().map(|run| run.resident))),
            ];
            for (what, value) in figures {
                match peer {
                    None => report.figure(key(what), value),
                    Some(peer) => report.peer(peer, key(what), value),
                }
            }
        }
        let what = key("longest time first in line / its bound");
        report.bar(&what, worst(&ours).most, Op::AtMost, 1.0);
        if regular {
            let published = worst(&published).least;
            report.bar(format!("{what}, start-time fair queueing"), published, Op::AtLeast, 1.0);
        }
    }
    Ok(())
}
