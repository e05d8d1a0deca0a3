//! `share-cooldown`: what other processes send after one of them has got a 429 with Retry-After.

use std::time::{Duration, Instant};

use super::store::Store;
use super::upstream::{Call, Upstream};
use super::{Directory, Settings, sharing, sleep, start, wait_until_full};
use crate::Fallible;
use crate::experiments::hot_path::std_now;
use crate::report::{Op, Report, Spread};

const PROCESSES: [usize; 3] = [4, 16, 64];
const CAP: usize = 64;
const SERVICE: Duration = Duration::from_millis(200);
const COOLDOWNS: usize = 10;
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// The minimum time between the end of a cool-down and the next 429. The maximum is twice as long.
const PAUSE: Duration = Duration::from_secs(2);
/// Time within which a call may arrive that was sent before the process could hear of the 429.
const ON_ITS_WAY: Duration = Duration::from_millis(50);

/// What the upstream saw after a 429.
struct Cooldown {
    /// The seconds until the last call of another process arrived that did not wait for
    /// Retry-After.
    last_after: f64,
    /// The number of calls of other processes that arrived later than [`ON_ITS_WAY`], and earlier
    /// than Retry-After says.
    late: usize,
    /// The seconds from the time that Retry-After says until the first call.
    resumed_after: f64,
}

/// Measures both stores, and processes that do not share, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("share-cooldown", []);
    for (store, prefix) in [(Store::Local, ""), (Store::Redis, "Redis, ")] {
        for processes in PROCESSES {
            let cooldowns = play(processes, store)?;
            let key = |what: &str| format!("{prefix}{processes} processes: {what}");
            let spread = |of: fn(&Cooldown) -> f64| Spread::of(cooldowns.iter().map(of));
            let last_after = spread(|cooldown| 1_000.0 * cooldown.last_after);
            report.figure(key("ms from the 429 to the last call of another process"), last_after);
            report.figure(
                key("s from Retry-After to the first call"),
                spread(|cooldown| cooldown.resumed_after),
            );
            report.bar(key("calls of other processes after 50 ms"), late(&cooldowns), Op::AtMost, 0.0);
        }
    }
    let separate = play(4, Store::None)?;
    report.bar("not shared: calls of other processes after 50 ms", late(&separate), Op::AtLeast, 1.0);
    Ok(report)
}

fn late(cooldowns: &[Cooldown]) -> f64 {
    cooldowns.iter().map(|cooldown| cooldown.late).sum::<usize>() as f64
}

/// Answers a call with a 429 several times, and returns what the upstream saw after each.
fn play(processes: usize, store: Store) -> Fallible<Vec<Cooldown>> {
    let upstream = Upstream::start(SERVICE)?;
    let directory = Directory::create()?;
    let opened = store.open()?;
    let cap = if store == Store::None { CAP / processes } else { CAP };
    let settings = |member| {
        let callers = 2 * CAP / processes;
        Settings { share: opened.share.clone(), ..sharing(&upstream, cap, member, callers) }
    };
    let members = start(&(0..processes).map(settings).collect::<Vec<_>>(), &directory)?;
    wait_until_full(&members, &upstream, CAP)?;
    for _ in 0..COOLDOWNS {
        sleep(PAUSE.mul_f64(1.0 + fastrand::f64()));
        upstream.limit_next_call(RETRY_AFTER);
        sleep(RETRY_AFTER);
    }
    sleep(PAUSE);
    if let Some(failure) = members.iter().flat_map(|member| member.failures()).next() {
        return Err(format!("a call fails: {failure}").into());
    }
    let end = std_now();
    drop(members);
    let calls = upstream.calls();
    let limited = calls.iter().filter(|call| call.limited);
    let cooldowns: Vec<_> = limited.filter_map(|call| Cooldown::after(call, &calls, end)).collect();
    if cooldowns.len() < COOLDOWNS {
        return Err(format!("only {} calls were answered with a 429", cooldowns.len()).into());
    }
    eprintln!(
        "{processes} processes, {store:?}: {} calls after 50 ms; last calls after {:.1?} ms",
        late(&cooldowns),
        cooldowns.iter().map(|cooldown| 1_000.0 * cooldown.last_after).collect::<Vec<_>>()
    );
    Ok(cooldowns)
}

impl Cooldown {
    /// Returns what the upstream saw after the `limited` call, or `None` if that was not answered.
    fn after(limited: &Call, calls: &[Call], end: Instant) -> Option<Self> {
        let answered = limited.ended?;
        let retry_at = answered + RETRY_AFTER;
        let of_others = calls.iter().filter(|call| call.member != limited.member);
        let early: Vec<_> =
            of_others.map(|call| call.began).filter(|began| (answered..retry_at).contains(began)).collect();
        let first_after = calls.iter().map(|call| call.began).filter(|began| *began >= retry_at).min();
        Some(Self {
            last_after: early.iter().max().map_or(0.0, |last| (*last - answered).as_secs_f64()),
            late: early.iter().filter(|began| **began > answered + ON_ITS_WAY).count(),
            resumed_after: (first_after.unwrap_or(end) - retry_at).as_secs_f64(),
        })
    }
}
