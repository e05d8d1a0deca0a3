//! `share-rate`: processes that share requests and tokens per minute, beside a provider that counts
//! them.

use std::time::{Duration, Instant};

use super::load::{CALLERS, CAP, MAX_OUTPUT, SERVICE, TPM, WINDOW, play_all};
use super::member::Rates;
use super::redis_use::exchanges;
use super::store::Store;
use super::upstream::{Call, INPUT, Upstream};
use super::{Directory, Settings, sharing, sleep_until, start};
use crate::Fallible;
use crate::experiments::hot_path::std_now;
use crate::report::{Op, Report};

const RPM: u64 = 1_200;
/// The least part of a budget that must be used.
const USED: f64 = 0.97;

/// What the provider counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charges {
    Requests,
    /// Input and maximum output, when the call arrives.
    Reserved,
    /// Input and output, when the call ends.
    Actual,
}

/// How the processes keep to the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// They share them over a store.
    Shared(Store),
    /// Each has all of them.
    Whole,
    /// Each has an equal part of them, and one process has all calls.
    Equal,
    /// There is only one process.
    Alone,
}

struct Case {
    processes: usize,
    charges: Charges,
    division: Division,
}

/// What the provider has counted.
struct Counted {
    /// The largest sum in any window, divided by the budget.
    most: f64,
    /// The sum in the last window, divided by the budget.
    used: f64,
    /// The maximum error of the estimates in flight at once, divided by the budget.
    error: f64,
    /// The exchanges with a Redis server per second and process. 0 without one.
    exchanges: f64,
}

/// Runs all cases, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("share-rate", []);
    let mut cases = Vec::new();
    let mut add = |processes, charges, division| cases.push(Case { processes, charges, division });
    for store in [Store::Local, Store::Redis] {
        for processes in [4, 16, 64] {
            add(processes, Charges::Reserved, Division::Shared(store));
        }
        for charges in [Charges::Requests, Charges::Actual] {
            add(16, charges, Division::Shared(store));
        }
    }
    add(4, Charges::Reserved, Division::Whole);
    add(4, Charges::Reserved, Division::Equal);
    for charges in [Charges::Requests, Charges::Reserved, Charges::Actual] {
        add(1, charges, Division::Alone);
    }
    let counted = play_all(&cases, play)?;
    for (case, counted) in cases.iter().zip(counted) {
        let Case { processes, charges, division } = case;
        let name = match division {
            Division::Shared(Store::Local) => format!("{processes} processes, {}", charges.name()),
            Division::Shared(Store::Redis) => format!("Redis, {processes} processes, {}", charges.name()),
            Division::Shared(Store::None) | Division::Whole => {
                report.bar("not shared: most in a minute / budget", counted.most, Op::AtLeast, 1.5);
                continue;
            }
            Division::Alone => {
                report.peer("one process alone", format!("{}: used / budget", charges.name()), counted.used);
                continue;
            }
            Division::Equal => {
                report.peer(
                    "budget / processes each",
                    "calls in one of 4 processes: used / budget",
                    counted.used,
                );
                continue;
            }
        };
        let most = if *charges == Charges::Actual { 1.0 + counted.error } else { 1.0 };
        report.bar(format!("{name}: most in a minute / budget"), counted.most, Op::AtMost, most);
        report.bar(format!("{name}: used / budget"), counted.used, Op::AtLeast, USED);
        if *division == Division::Shared(Store::Redis) {
            report.bar(format!("{name}: exchanges per s and process"), counted.exchanges, Op::AtMost, 3.0);
        }
    }
    Ok(report)
}

impl Charges {
    fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Reserved => "input and max_tokens",
            Self::Actual => "actual tokens",
        }
    }

    fn budget(self) -> u64 {
        if self == Self::Requests { RPM } else { TPM }
    }

    /// Returns when a call is counted, and what it costs.
    fn charge(self, call: &Call) -> Option<(Instant, u64)> {
        Some(match self {
            Self::Requests => (call.began, 1),
            Self::Reserved => (call.began, INPUT + MAX_OUTPUT),
            Self::Actual => (call.ended?, INPUT + call.output),
        })
    }
}

fn play(case: &Case, began: Instant) -> Fallible<Counted> {
    let Case { processes, charges, division } = *case;
    let upstream = Upstream::start(SERVICE)?;
    let directory = Directory::create()?;
    let store = if let Division::Shared(store) = division { store } else { Store::None };
    let opened = store.open()?;
    let divided_by = if division == Division::Equal { processes as u64 } else { 1 };
    let settings = |member| {
        let callers = if division == Division::Equal && member > 0 { 0 } else { CALLERS / processes };
        let rates = match charges {
            Charges::Requests => Rates { rpm: Some(RPM / divided_by), tpm: None, actual: false },
            _ => Rates { rpm: None, tpm: Some(TPM / divided_by), actual: charges == Charges::Actual },
        };
        Settings {
            share: opened.share.clone(),
            rates,
            pause: began.saturating_duration_since(std_now()),
            ..sharing(&upstream, CAP, member, callers)
        }
    };
    let members = start(&(0..processes).map(settings).collect::<Vec<_>>(), &directory)?;
    sleep_until(began);
    for member in &members {
        member.wait_for_begin()?;
    }
    // A whole window, in which the budget is used for the first time, and one that is measured.
    let from = began + WINDOW + Duration::from_secs(5);
    sleep_until(from);
    let before = opened.redis.as_ref().map(exchanges).transpose()?;
    sleep_until(from + WINDOW);
    let after = opened.redis.as_ref().map(exchanges).transpose()?;
    let exchanges = after.unwrap_or_default() - before.unwrap_or_default();
    let exchanges = exchanges / WINDOW.as_secs_f64() / processes as f64;
    let calls = upstream.calls();
    if let Some(failure) = members.iter().flat_map(|member| member.failures()).next() {
        return Err(format!("a call fails: {failure}").into());
    }
    drop(members);
    let mut charged: Vec<_> = calls.iter().filter_map(|call| charges.charge(call)).collect();
    charged.sort_unstable();
    let budget = charges.budget() as f64;
    let used = charged
        .iter()
        .filter(|(at, _)| (from..from + WINDOW).contains(at))
        .map(|(_, cost)| cost)
        .sum::<u64>();
    let (mut sum, mut most, mut first) = (0, 0, 0);
    for (at, cost) in &charged {
        sum += cost;
        while let Some((_, cost)) = charged.get(first).filter(|(then, _)| *then + WINDOW <= *at) {
            sum -= cost;
            first += 1;
        }
        most = most.max(sum);
    }
    let in_flight = super::timeline::Timeline::new(&calls, Duration::ZERO).peak(began, from + WINDOW);
    let error = in_flight as f64 * MAX_OUTPUT as f64 / budget;
    let counted = Counted { most: most as f64 / budget, used: used as f64 / budget, error, exchanges };
    eprintln!(
        "{processes} processes, {charges:?}, {division:?}: most {:.4}, used {:.4}, {in_flight} in flight, {exchanges:.2} exchanges",
        counted.most, counted.used
    );
    Ok(counted)
}
