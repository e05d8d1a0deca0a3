//! `share-chaos`: kills and stops processes, and checks the cap, the calls of the others, and how
//! soon all slots are used again.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::timeline::Timeline;
use super::upstream::Upstream;
use super::{Directory, Member, Settings, sharing, sleep, sleep_until, start, wait_until_full};
use crate::Fallible;
use crate::experiments::hot_path::std_now;
use crate::report::{Op, Report};

pub(super) const PROCESSES: usize = 8;
pub(super) const CAP: usize = 32;
pub(super) const CALLERS: usize = 12;
pub(super) const SERVICE: Duration = Duration::from_millis(500);
/// The number of processes that are killed at random, besides as many with the broker.
const KILLS: u32 = 120;
const STOPS: u32 = 60;
/// Time between two faults of the same kind.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time within which the upstream may notice that a connection was closed.
const NOTICED_WITHIN: Duration = Duration::from_millis(50);
/// Time in which all slots must be used again, with what is measured after it.
const RECOVERY: Duration = Duration::from_secs(6);
/// The period over which the use of slots is averaged.
pub(super) const AVERAGED: Duration = Duration::from_secs(1);

/// The faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    /// Each second, a random process and the one with the broker are killed, and started again.
    Kills,
    /// Each second, a random process is stopped for 0.5 s, and each third time for 4 s.
    Stops,
}

/// Measures both kinds of faults, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("share-chaos", []);
    for (faults, name) in [(Faults::Kills, "kills"), (Faults::Stops, "stops")] {
        let (number, run) = play(faults)?;
        let planned = if faults == Faults::Kills { 2 * KILLS } else { STOPS };
        report.bar(format!("{name}: faults"), number as f64, Op::AtLeast, f64::from(planned));
        run.add_to(&mut report, name, 0, 2.0);
    }
    Ok(report)
}

/// What the faults of a run have cost.
pub(super) struct Run {
    /// The maximum number of calls in flight.
    peak: usize,
    /// The same less the cap and the calls of connections that were closed within the last 50 ms.
    excess: usize,
    used: f64,
    failures: usize,
    full_after: f64,
}

impl Run {
    /// Evaluates a run from the start of the first process, the first and the last fault, and the
    /// end.
    pub(super) fn evaluate(
        upstream: &Upstream,
        [began, first, last, end]: [Instant; 4],
        failures: &[String],
    ) -> Self {
        let calls = upstream.calls();
        let timeline = Timeline::new(&calls, NOTICED_WITHIN);
        let run = Self {
            peak: Timeline::new(&calls, Duration::ZERO).peak(began, end),
            excess: timeline.peak(began, end).saturating_sub(CAP),
            used: timeline.mean(first, last, CAP) / CAP as f64,
            failures: failures.len(),
            full_after: full_after(&timeline, last, end),
        };
        failures.iter().take(3).for_each(|failure| eprintln!("failed: {failure}"));
        eprintln!(
            "peak {}, excess {}, used {:.3}, failures {}, full after {:.3} s",
            run.peak, run.excess, run.used, run.failures, run.full_after
        );
        run
    }

    /// Adds the figures and bars of the faults `name`, with the bars on the excess and on the
    /// seconds to full use.
    pub(super) fn add_to(&self, report: &mut Report, name: &str, excess: usize, full_after: f64) {
        let key = |what: &str| format!("{name}: {what}");
        report.figure(key("peak in flight"), self.peak as f64);
        report.figure(key("slots used during the faults"), self.used);
        report.bar(key("calls above the cap"), self.excess as f64, Op::AtMost, excess as f64);
        report.bar(key("failed calls of surviving processes"), self.failures as f64, Op::AtMost, 0.0);
        report.bar(key("s to full use after the last fault"), self.full_after, Op::AtMost, full_after);
    }
}

/// The processes, and what has happened to them.
struct Cluster<'a> {
    settings: Vec<Settings>,
    members: Vec<Member>,
    directory: &'a Directory,
    faults: usize,
    failures: Vec<String>,
}

/// Runs the faults. Returns their number, and what they have cost.
fn play(faults: Faults) -> Fallible<(usize, Run)> {
    eprintln!("{faults:?}");
    let upstream = Upstream::start(SERVICE)?;
    let directory = Directory::create()?;
    let settings: Vec<_> = (0..PROCESSES).map(|member| sharing(&upstream, CAP, member, CALLERS)).collect();
    let members = start(&settings, &directory)?;
    let began = std_now();
    wait_until_full(&members, &upstream, CAP)?;
    let mut cluster = Cluster { settings, members, directory: &directory, faults: 0, failures: Vec::new() };
    sleep(INTERVAL);
    let first_fault = std_now();
    let last_fault = match faults {
        Faults::Kills => cluster.kill_every(INTERVAL)?,
        Faults::Stops => cluster.stop_every(INTERVAL)?,
    };
    sleep_until(last_fault + RECOVERY);
    let end = std_now();
    cluster.collect_failures();
    let times = [began, first_fault, last_fault, end];
    Ok((cluster.faults, Run::evaluate(&upstream, times, &cluster.failures)))
}

/// Returns the time in seconds from `last_fault` until 97 % of the slots are used, or until `end`.
fn full_after(timeline: &Timeline, last_fault: Instant, end: Instant) -> f64 {
    let step = Duration::from_millis(10);
    let starts = (0..).map(|steps| last_fault + step * steps).take_while(|at| *at + AVERAGED <= end);
    let is_full = |at: &Instant| timeline.mean(*at, *at + AVERAGED, CAP) >= 0.97 * CAP as f64;
    (starts.into_iter().find(is_full).unwrap_or(end) - last_fault).as_secs_f64()
}

impl Cluster<'_> {
    /// Kills a random process and the one with the broker in turn. Returns the time of the last
    /// fault.
    fn kill_every(&mut self, interval: Duration) -> Fallible<Instant> {
        let start = std_now();
        let mut last = start;
        for round in 0..2 * KILLS {
            sleep_until(start + interval / 2 * round);
            let broker = (round % 2 == 1).then(|| self.broker()).flatten();
            let victim = broker.unwrap_or_else(|| fastrand::usize(..PROCESSES));
            self.restart(victim)?;
            last = std_now();
        }
        Ok(last)
    }

    /// Stops a random process at a time. Returns the time at which the last one was continued.
    fn stop_every(&mut self, interval: Duration) -> Fallible<Instant> {
        let mut last = std_now();
        for round in 0..STOPS {
            let broker = (round % 2 == 1).then(|| self.broker()).flatten();
            let victim = broker.unwrap_or_else(|| fastrand::usize(..PROCESSES));
            let Some(member) = self.members.get(victim) else { continue };
            member.signal("STOP")?;
            sleep(if round % 3 == 2 { 4 * interval } else { interval / 2 });
            member.signal("CONT")?;
            last = std_now();
            self.faults += 1;
            sleep(interval / 2);
        }
        Ok(last)
    }

    fn restart(&mut self, victim: usize) -> Fallible<()> {
        let (Some(member), Some(settings)) = (self.members.get_mut(victim), self.settings.get(victim)) else {
            return Ok(());
        };
        self.failures.extend(member.failures());
        member.kill();
        *member = Member::start(settings, self.directory.path())?;
        self.faults += 1;
        Ok(())
    }

    fn collect_failures(&mut self) {
        self.failures.extend(self.members.iter().flat_map(Member::failures));
    }

    /// Returns the member whose process holds the lock of the broker, as far as the kernel lists
    /// it.
    fn broker(&self) -> Option<usize> {
        let generation =
            std::fs::read_to_string(self.directory.broker_file(".generation")).unwrap_or_default();
        let generation: u64 = generation.trim().parse().unwrap_or(0);
        let inode = std::fs::metadata(self.directory.broker_file(&format!(".{generation}.lock"))).ok()?.ino();
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        // For example: `1: POSIX  ADVISORY  WRITE 30911 fe:00:6103041 0 EOF`.
        let holder = |line: &str| {
            let mut fields = line.split_whitespace().skip(4);
            let process: u32 = fields.next()?.parse().ok()?;
            let locked: u64 = fields.next()?.rsplit(':').next()?.parse().ok()?;
            (locked == inode).then_some(process)
        };
        let process = locks.lines().find_map(holder)?;
        self.members.iter().position(|member| member.process() == process)
    }
}
