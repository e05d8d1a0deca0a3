//! Checks that no call waits forever, during an hour of floods.
//!
//! The cases are calls of the lowest lane below a flood of the highest, large calls among small
//! ones, floors (reserved slots), tenants with earlier calls among ten thousand new ones, and
//! interactive calls above old batch work. The maximum wait of a call is derived from the rules and
//! from the calls ahead of it ([`bound`], [`large_calls`]), not from a measurement.

mod flood;
mod lane_inversion;
mod large_calls;
mod newcomers;
mod serve_list;

use std::sync::Arc;
use std::time::Duration;

use flood::{Account, Ahead, ArrivalPattern, Flood, Stream};
use parking_lot::Mutex;
use tidegate::Lane;
use tidegate::config::{LimitConfig, Predict, TargetConfig, TenantConfig};
use tidegate::policy::budget::RateBudgets;
use tidegate::policy::kv::Kv;
use tidegate::policy::schedule::{Resources, Scheduler, SchedulerSettings};

use crate::Fallible;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::virtual_time;

/// The seeds of the reported figures. The constants were chosen on seeds 1 to 5.
pub(crate) const SEEDS: Seeds = Seeds::new(11, 20);
const HOUR: Duration = Duration::from_secs(3600);
const SLOTS: usize = 8;
const AGING: Duration = Duration::from_secs(30);
/// The longest service time of all calls, in seconds.
const SERVICE: f64 = 3.0;

fn target() -> TargetConfig {
    TargetConfig {
        cap: SLOTS,
        limit: LimitConfig::Fixed,
        aging: AGING,
        backlog: 1_000_000,
        predict: Predict::Off,
        ..TargetConfig::new("bench")
    }
}

fn flood(tenant: &'static str, lane: Lane) -> Stream {
    Stream { tenant, lane, service: (0.5, 1.5), tokens: (500, 1_500), comes: ArrivalPattern::Flood(10) }
}

fn batch(tenant: &'static str) -> Stream {
    Stream {
        tenant,
        lane: Lane::Batch,
        service: (1.0, SERVICE),
        tokens: (1_000, 3_000),
        comes: ArrivalPattern::Poisson(0.1),
    }
}

/// Returns the maximum wait, in seconds, of a batch call. `ahead` are the calls before it in its
/// tenant's queue, and `tenants` is the number of tenants in the lane.
///
/// The call moves up to the highest lane after twice the ageing time. From then on, the batch lane
/// may hold one of the eight slots ahead of any higher lane, because its oldest call is no younger
/// than theirs. If no batch call runs, the lane gets the next slot that is released, except for one
/// that another raised lane gets. So one batch call is dispatched per longest service time.
///
/// Before the call, the calls ahead of it in its tenant's queue are dispatched. By start-time fair
/// queueing, each other tenant of the lane gets at most the cost of those calls, plus one largest
/// call of each of the two tenants. Each of its calls costs at least the minimum.
fn bound(ahead: Ahead, tenants: usize) -> f64 {
    let (least, most) = (1_000, 3_000);
    let others = (ahead.tokens + 2 * most).div_ceil(least) as usize;
    let turns = ahead.calls + 1 + (tenants - 1) * others;
    2.0 * AGING.as_secs_f64() + (turns + 1) as f64 * SERVICE
}

/// Simulates all cases on `seeds`, and returns the report.
pub(crate) fn measure(seeds: Seeds) -> Fallible<Report> {
    let mut report = Report::new("starvation", seeds);
    let above = [Lane::Interactive, Lane::Standard];
    for (name, lanes) in [("interactive flood", 1), ("interactive and standard flood", 2)] {
        let mut streams = vec![batch("x"), batch("y"), batch("z")];
        streams.extend(
            above.iter().take(lanes).flat_map(|lane| ["a", "b", "c", "d"].map(|tenant| flood(tenant, *lane))),
        );
        eprintln!("{name}");
        let on = play(&target(), &streams, &[], seeds)?;
        let off = play(&TargetConfig { aging: Duration::ZERO, ..target() }, &streams, &[], seeds)?;
        record_batch(&mut report, name, &on, &off);
    }
    lane_inversion::measure(&mut report, seeds)?;
    newcomers::measure(&mut report, seeds)?;
    large_calls::measure(&mut report, seeds)?;
    floors(&mut report, seeds)?;
    Ok(report)
}

fn play(
    target: &TargetConfig,
    streams: &[Stream],
    floors: &[usize],
    seeds: Seeds,
) -> Fallible<Vec<Vec<Account>>> {
    virtual_time::each(seeds, |seed| {
        let now = virtual_time::time_origin();
        let resources = Resources {
            budgets: Arc::new(Mutex::new(RateBudgets::new(&target.rates, now))),
            kv: target.kv_tokens.map(|tokens| Kv::new(tokens, target.kv_headroom)),
        };
        let scheduler = Scheduler::with(&SchedulerSettings::from(target), resources, now);
        Ok(Flood::new(scheduler, streams, floors, seed).run(HOUR))
    })
}

/// Records the figures of the three batch streams with ageing (`on`), and without ageing (`off`) as
/// those of a peer.
fn record_batch(report: &mut Report, name: &str, on: &[Vec<Account>], off: &[Vec<Account>]) {
    let key = |what: &str| format!("{name}: {what}");
    let waits = |run: &Vec<Account>, ratio: bool| -> Vec<f64> {
        let batch = run.iter().take(3).flat_map(|account| account.dispatched.iter().chain(&account.left));
        batch.map(|(wait, ahead)| if ratio { wait / bound(*ahead, 3) } else { *wait }).collect()
    };
    let quantile = |runs: &[Vec<Account>], ratio: bool, q: f64| {
        Spread::of(runs.iter().map(|run| tidegate_sim::scenario::quantile(&mut waits(run, ratio), q)))
    };
    let served =
        |runs: &[Vec<Account>]| {
            let count = |run: &Vec<Account>, what: fn(&Account) -> usize| {
                run.iter().take(3).map(what).sum::<usize>() as f64
            };
            Spread::of(runs.iter().map(|run| {
                count(run, |account| account.dispatched.len()) / count(run, |account| account.came)
            }))
        };
    let peer = "aging off";
    for (what, ratio, q) in [
        ("batch, longest wait / its bound", true, 1.0),
        ("batch, longest wait, s", false, 1.0),
        ("batch, median wait, s", false, 0.5),
    ] {
        report.figure(key(what), quantile(on, ratio, q));
        report.peer(peer, key(what), quantile(off, ratio, q));
    }
    report.figure(key("batch calls served within the hour"), served(on));
    report.peer(peer, key("batch calls served within the hour"), served(off));
    report.bar(key("batch, longest wait / its bound"), quantile(on, true, 1.0).most, Op::AtMost, 1.0);
    report.bar(
        key("batch, longest wait / its bound, aging off"),
        quantile(off, true, 1.0).least,
        Op::AtLeast,
        1.0,
    );
}

/// Measures whether a lane and a tenant with floors (reserved slots) get their slots, although
/// their calls come and go. While they have no calls, others borrow the reserved slots.
fn floors(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    eprintln!("floors");
    let mut streams = vec![
        Stream { comes: ArrivalPattern::OnOff(10, 45.0), ..batch("x") },
        Stream { comes: ArrivalPattern::OnOff(10, 33.0), ..flood("gold", Lane::Standard) },
    ];
    streams.extend(["a", "b", "c", "d"].map(|tenant| flood(tenant, Lane::Interactive)));
    streams.push(flood("e", Lane::Standard));
    // An eighth and a quarter of eight slots.
    let slots = [1, 2];
    let mut with = TargetConfig { aging: Duration::ZERO, ..target() };
    let without = with.clone();
    if let Some(lane) = with.lanes.last_mut() {
        lane.floor = 0.125;
    }
    with.tenants.insert("gold".into(), TenantConfig { floor: 0.25, ..TenantConfig::default() });
    let (on, off) = (play(&with, &streams, &slots, seeds)?, play(&without, &streams, &slots, seeds)?);
    for (number, who, floor) in [(0, "batch lane", 1.0), (1, "tenant", 2.0)] {
        let of = |runs: &[Vec<Account>], what: fn(&Account) -> f64| {
            Spread::of(runs.iter().filter_map(|run| run.get(number)).map(what))
        };
        let below = format!("floors: {who}, longest below its floor / longest service");
        let held = format!("floors: {who}, slots held while it wants them / floor");
        for (runs, peer) in [(&on, None), (&off, Some("floors off"))] {
            let figures = [
                (&below, of(runs, |account| account.below_floor / SERVICE)),
                (&held, scaled(of(runs, |account| account.held / account.wanted), floor)),
            ];
            for (what, value) in figures {
                match peer {
                    None => report.figure(what, value),
                    Some(peer) => report.peer(peer, what, value),
                }
            }
        }
        report.bar(&below, of(&on, |account| account.below_floor / SERVICE).most, Op::AtMost, 1.0);
        let off = of(&off, |account| account.below_floor / SERVICE).least;
        report.bar(format!("{below}, floors off"), off, Op::AtLeast, 1.0);
    }
    Ok(())
}

fn scaled(spread: Spread, unit: f64) -> Spread {
    Spread { median: spread.median / unit, least: spread.least / unit, most: spread.most / unit }
}
