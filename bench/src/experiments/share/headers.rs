//! `share-headers`: processes that know the provider's limit only from its headers.

use std::ops::Range;
use std::time::Instant;

use super::load::{CALLERS, CAP, MAX_OUTPUT, SERVICE, TPM, WINDOW, play_all};
use super::provider::{Provider, Refill};
use super::store::Store;
use super::upstream::{INPUT, Upstream};
use super::{Directory, Settings, sharing, sleep_until, start};
use crate::Fallible;
use crate::experiments::hot_path::std_now;
use crate::report::{Op, Report};

/// The least part of the limit that must be used.
const USED: f64 = 0.95;
/// The most 429s per call that is admitted.
const REFUSED: f64 = 0.001;

struct Case {
    processes: usize,
    refill: Refill,
    store: Store,
}

/// What the provider has counted.
struct Counted {
    /// The tokens of the third minute, divided by the limit.
    used: f64,
    /// The 429s, divided by the admitted calls.
    refused: f64,
}

/// Runs all cases, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("share-headers", []);
    let mut cases = Vec::new();
    for refill in [Refill::Continuous, Refill::EachMinute] {
        for (processes, store) in [
            (4, Store::Local),
            (16, Store::Local),
            (64, Store::Local),
            (16, Store::Redis),
            (16, Store::None),
            (1, Store::None),
        ] {
            cases.push(Case { processes, refill, store });
        }
    }
    let counted = play_all(&cases, play)?;
    for (case, counted) in cases.iter().zip(counted) {
        let refill = match case.refill {
            Refill::Continuous => "bucket",
            Refill::EachMinute => "fixed minutes",
        };
        let figures = [("used / limit", counted.used), ("429s per call", counted.refused)];
        let name = match (case.store, case.processes) {
            (Store::None, 1) => {
                for (what, value) in figures {
                    report.peer("one process alone", format!("{refill}: {what}"), value);
                }
                continue;
            }
            (Store::None, _) => {
                let what = format!("not shared, {refill}: 429s per call");
                report.bar(what, counted.refused, Op::AtLeast, REFUSED);
                continue;
            }
            (Store::Local, processes) => format!("{processes} processes, {refill}"),
            (Store::Redis, processes) => format!("Redis, {processes} processes, {refill}"),
        };
        report.bar(format!("{name}: used / limit"), counted.used, Op::AtLeast, USED);
        report.bar(format!("{name}: 429s per call"), counted.refused, Op::AtMost, REFUSED);
    }
    Ok(report)
}

fn play(case: &Case, began: Instant) -> Fallible<Counted> {
    let Case { processes, refill, store } = *case;
    let upstream = Upstream::announcing(SERVICE, Provider::new(refill, TPM, MAX_OUTPUT, began))?;
    let directory = Directory::create()?;
    let opened = store.open()?;
    let settings = |member| Settings {
        share: opened.share.clone(),
        pause: began.saturating_duration_since(std_now()),
        ..sharing(&upstream, CAP, member, CALLERS / processes)
    };
    let members = start(&(0..processes).map(settings).collect::<Vec<_>>(), &directory)?;
    sleep_until(began);
    for member in &members {
        member.wait_for_begin()?;
    }
    sleep_until(began + 3 * WINDOW);
    let calls = upstream.calls();
    drop(members);
    // The number of calls in some minutes: those that are refused, and the others.
    let count = |minutes: Range<u32>| {
        let time = began + minutes.start * WINDOW..began + minutes.end * WINDOW;
        let within = calls.iter().filter(|call| time.contains(&call.began));
        let refused = within.clone().filter(|call| call.limited).count() as f64;
        (refused, within.count() as f64 - refused)
    };
    let (refused, admitted) = count(0..3);
    let refused = refused / admitted.max(1.0);
    let used = count(2..3).1 * (INPUT + MAX_OUTPUT) as f64 / TPM as f64;
    eprintln!("{processes} processes, {refill:?}, {store:?}: used {used:.4}, {refused:.4} refused per call");
    Ok(Counted { used, refused })
}
