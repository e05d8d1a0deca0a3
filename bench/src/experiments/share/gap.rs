//! `share-gap`: for how long slots are unused while calls wait in some process.

use std::time::Duration;

use tidegate_test_servers::RedisServer;

use super::push;
use super::redis_use::exchanges;
use super::timeline::Timeline;
use super::upstream::Upstream;
use super::{Directory, Settings, sharing, sleep, start, wait_until_full};
use crate::Fallible;
use crate::experiments::hot_path::std_now;
use crate::report::{Op, Report};

pub(super) const CAP: usize = 64;
const PROCESSES: [usize; 3] = [4, 16, 64];
/// The mean service times in seconds, with the bars on the gap.
const SERVICE: [(f64, f64); 2] = [(1.0, 0.01), (0.5, 0.03)];
/// Time before the measured period, in which the leases settle.
const SETTLE: Duration = Duration::from_millis(1_500);
const MEASURED: Duration = Duration::from_secs(8);
/// Part of the capacity that the lightly loaded processes demand together.
const LIGHT_LOAD: f64 = 0.1;

/// Where the calls come from. In each case, calls wait all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// In each process, twice as many callers as its part of the cap.
    Even,
    /// A quarter of the processes have nearly all callers. The others have calls at random times.
    Uneven,
}

/// The calls of each process.
pub(super) struct Demand {
    /// The number of processes with callers.
    heavy: usize,
    /// The calls per second of each of the others.
    light_rate: f64,
}

impl Demand {
    /// Returns the demand of `processes` processes with calls of `service` seconds.
    pub(super) fn new(processes: usize, load: Load, service: f64) -> Self {
        let heavy = if load == Load::Even { processes } else { processes / 4 };
        let light_rate = LIGHT_LOAD * CAP as f64 / service / (processes - heavy).max(1) as f64;
        Self { heavy, light_rate }
    }

    /// Returns how many callers a process has, which make one call after the other.
    pub(super) fn callers(&self, process: usize) -> usize {
        if process < self.heavy { 2 * CAP / self.heavy + 4 } else { 0 }
    }

    /// Returns the number of further calls of a process per second.
    pub(super) fn rate(&self, process: usize) -> f64 {
        if process < self.heavy { 0.0 } else { self.light_rate }
    }
}

/// How the cap is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// The processes share it.
    Shared,
    /// Each process has it alone.
    Separate,
    /// Each process has an equal part of it.
    Divided,
}

pub(super) struct Run {
    /// The mean part of the slots that was used.
    used: f64,
    /// The exchanges with a Redis server per second and process.
    pub(super) exchanges: f64,
    /// The maximum number of calls in flight, from the start of the first process.
    peak: usize,
}

/// Measures all numbers of processes, loads and service times, and the two other limits.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("share-gap", []);
    measure_shared(&mut report, |_, _, _| {}, None)?;
    let separate = play(4, Load::Even, 1.0, Limit::Separate, None)?;
    report.bar("not shared: peak in flight", separate.peak as f64, Op::AtLeast, CAP as f64 + 1.0);
    for processes in [4, 16] {
        let divided = play(processes, Load::Uneven, 1.0, Limit::Divided, None)?;
        let key = format!("{processes} processes, uneven load, calls of 1 s: slots used");
        report.peer("cap / processes each", key, divided.used);
    }
    for (case, processes, load, service, _) in cases() {
        report.figure(format!("{case}, simulated: slots used"), push::used(processes, load, service, true));
        let key = format!("{case}: slots used");
        report.peer("without push, simulated", key, push::used(processes, load, service, false));
    }
    Ok(report)
}

/// Measures all numbers of processes, loads and service times with a shared cap. The processes use
/// the store `redis` if it is given. `each` gets the report, the name and the run of each case.
pub(super) fn measure_shared(
    report: &mut Report,
    mut each: impl FnMut(&mut Report, &str, &Run),
    redis: Option<&RedisServer>,
) -> Fallible<()> {
    for (case, processes, load, service, gap) in cases() {
        let run = play(processes, load, service, Limit::Shared, redis)?;
        report.bar(format!("{case}: gap"), 1.0 - run.used, Op::AtMost, gap);
        report.bar(format!("{case}: slots used"), run.used, Op::AtLeast, 0.97);
        report.bar(format!("{case}: peak in flight"), run.peak as f64, Op::AtMost, CAP as f64);
        each(report, &case, &run);
    }
    Ok(())
}

/// Returns the name, the processes, the load, the service time in seconds and the bar on the gap of
/// each case.
fn cases() -> impl Iterator<Item = (String, usize, Load, f64, f64)> {
    let loads = [(Load::Even, "even"), (Load::Uneven, "uneven")];
    PROCESSES.into_iter().flat_map(move |processes| {
        loads.into_iter().flat_map(move |(load, name)| {
            SERVICE.into_iter().map(move |(service, gap)| {
                let case = format!("{processes} processes, {name} load, calls of {service} s");
                (case, processes, load, service, gap)
            })
        })
    })
}

fn play(
    processes: usize,
    load: Load,
    service: f64,
    limit: Limit,
    redis: Option<&RedisServer>,
) -> Fallible<Run> {
    let upstream = Upstream::start(Duration::from_secs_f64(service))?;
    let directory = Directory::create()?;
    let demand = Demand::new(processes, load, service);
    let settings = |member| {
        let shared = sharing(&upstream, CAP, member, demand.callers(member));
        let shared = Settings { rate: demand.rate(member), ..shared };
        match limit {
            Limit::Shared => match redis {
                Some(redis) => Settings { share: Some(redis.url()), ..shared },
                None => shared,
            },
            Limit::Separate => Settings { share: None, ..shared },
            Limit::Divided => Settings { share: None, cap: CAP / processes, ..shared },
        }
    };
    let members = start(&(0..processes).map(settings).collect::<Vec<_>>(), &directory)?;
    let began = std_now();
    wait_until_full(
        &members,
        &upstream,
        if limit == Limit::Divided { demand.heavy * CAP / processes } else { CAP },
    )?;
    // The leases settle. A store that has begun with nothing grants only a part of a cap at first.
    sleep(if redis.is_some() { 3 * SETTLE } else { SETTLE });
    let from = std_now();
    let before = redis.map(exchanges).transpose()?;
    sleep(MEASURED);
    let until = std_now();
    let after = redis.map(exchanges).transpose()?;
    let timeline = Timeline::new(&upstream.calls(), Duration::ZERO);
    let used = timeline.mean(from, until, CAP) / CAP as f64;
    let exchanges = after.unwrap_or_default() - before.unwrap_or_default();
    let run = Run {
        used,
        peak: timeline.peak(began, until),
        exchanges: exchanges / (until - from).as_secs_f64() / processes as f64,
    };
    if let Some(failure) = members.iter().flat_map(|member| member.failures()).next() {
        return Err(format!("a call fails: {failure}").into());
    }
    eprintln!(
        "{processes} processes, {load:?}, {service} s, {limit:?}: used {:.4}, peak {}, exchanges {:.1}",
        run.used, run.peak, run.exchanges
    );
    Ok(run)
}
