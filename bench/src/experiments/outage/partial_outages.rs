//! Simulates partial and apparent outages in virtual time: poisoned calls, hanging attempts, and
//! the recovery after few calls (a trickle).
//!
//! - *Poisoned calls* always fail, and all others are accepted. The figure is the longest time for
//!   which the gate holds back one of the others.
//! - *Hanging*: each attempt fails after 30 s. The figures are the number of attempts within a
//!   probe interval, and the time from the recovery to the first accepted attempt.
//! - *Trickle*: a Retry-After holds back 60 calls. The figure is the time until all of them are
//!   accepted, after different rates of calls before.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use tidegate::config::{Config, Target};
use tidegate::{Error, Gate, RequestBody, ResponseBody, Transport};
use tokio::time::{Instant, sleep, sleep_until};
use tower::service_fn;

use crate::Fallible;
use crate::client_call::{Ask, URL, call};
use crate::report::{Op, Report, Spread};
use crate::retrying_clients::Rule;
use crate::seeds::Seeds;
use crate::virtual_time;

/// The prompt length, in tokens, by which the upstream recognises a poisoned call.
const POISON: u32 = 13;
/// The time until an attempt is answered, successfully or not, if the upstream is not slow.
const QUICK: Duration = Duration::from_millis(100);
const DEADLINE: Duration = Duration::from_secs(600);

/// How the upstream behaves.
#[derive(Clone, Copy, Debug)]
enum Upstream {
    /// Poisoned calls fail, and all others are accepted after `accepts_after`.
    Poisoned { accepts_after: Duration },
    /// Attempts that are sent within [`HANGS`] fail after 30 s.
    Hanging,
    /// Attempts that are sent within [`LIMITED`] get a 429 with a Retry-After of one second.
    Limited,
}

/// The period in which attempts hang, in seconds since the start of the run.
const HANGS: std::ops::Range<f64> = 10.0..190.0;
const FAILS_AFTER: Duration = Duration::from_secs(30);
/// The interval between two probes, in seconds: an eighth of the time after which attempts fail
/// ([`FAILS_AFTER`]).
const PROBE_INTERVAL: f64 = 3.75;
/// The period in which attempts get a 429, in seconds since the start of the run.
const LIMITED: std::ops::Range<f64> = 9.0..10.0;

/// All attempts of a run, in the order in which they were sent.
type Attempts = Arc<Mutex<Vec<Attempt>>>;

#[derive(Clone, Debug)]
struct Scripted {
    upstream: Upstream,
    start: Instant,
    attempts: Attempts,
}

impl Scripted {
    fn transport(self) -> Transport {
        Transport::new(service_fn(move |request| self.exchange(&request)))
    }

    fn exchange(
        &self,
        request: &Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Error>> + use<> {
        let Self { upstream, start, attempts } = self.clone();
        let at = start.elapsed().as_secs_f64();
        let is_poisoned =
            request.headers().get("x-sim-prompt-tokens").is_some_and(|tokens| *tokens == POISON.to_string());
        let (status, takes) = match upstream {
            Upstream::Poisoned { .. } if is_poisoned => (StatusCode::INTERNAL_SERVER_ERROR, QUICK),
            Upstream::Poisoned { accepts_after } => (StatusCode::OK, accepts_after),
            Upstream::Hanging if HANGS.contains(&at) => (StatusCode::GATEWAY_TIMEOUT, FAILS_AFTER),
            Upstream::Limited if LIMITED.contains(&at) => (StatusCode::TOO_MANY_REQUESTS, QUICK),
            Upstream::Hanging | Upstream::Limited => (StatusCode::OK, QUICK),
        };
        attempts.lock().push((at, status));
        async move {
            sleep(takes).await;
            let mut response =
                Response::new(ResponseBody::full(r#"{"choices":[{"message":{"content":"hello"}}]}"#));
            *response.status_mut() = status;
            response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
            if status == StatusCode::TOO_MANY_REQUESTS {
                response.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
            }
            Ok(response)
        }
    }
}

/// The time at which an attempt was sent, in seconds since the start of the run, and the status of
/// its answer.
type Attempt = (f64, StatusCode);

/// The time at which a call is made, since the start of the run, and whether the call is poisoned.
type Made = (Duration, bool);

/// When a call was made (in seconds since the start of the run), whether it was poisoned, how long
/// it took, and whether it succeeded.
type Ended = (f64, bool, Duration, bool);

fn play(
    upstream: Upstream,
    cap: usize,
    naive: Option<Rule>,
    calls: &[Made],
    seed: u64,
) -> Fallible<(Vec<Ended>, Vec<Attempt>)> {
    let mut rng = fastrand::Rng::with_seed(seed);
    virtual_time::run(seed, async move {
        let start = Instant::now();
        let attempts = Attempts::default();
        let transport = Scripted { upstream, start, attempts: attempts.clone() }.transport();
        let caller = match naive {
            Some(rule) => rule.over(transport),
            None => {
                let target = Target::new("sim").url(URL).cap(cap).deadline(DEADLINE);
                Transport::new(Gate::over(Config::builder().target(target).build()?, transport)?.client())
            }
        };
        let mut tasks = tokio::task::JoinSet::new();
        for (at, is_poisoned) in calls {
            // An offset of up to 5 ms per seed, so that each run has a different phase.
            let (at, is_poisoned) = (*at + Duration::from_micros(rng.u64(..5_000)), *is_poisoned);
            let caller = caller.clone();
            tasks.spawn(async move {
                sleep_until(start + at).await;
                let prompt = if is_poisoned { POISON } else { 8 };
                let ask = Ask { tenant: "a", prompt, output: 8, stream: false };
                let seen = call(caller, ask.request(URL)).await;
                (at.as_secs_f64(), is_poisoned, seen.took, seen.ok)
            });
        }
        let ended = tasks.join_all().await;
        let attempts = std::mem::take(&mut *attempts.lock());
        Ok((ended, attempts))
    })
}

/// Returns calls that are not poisoned, made at `rate` per second from `from` to `until` (in
/// seconds since the start of the run).
fn steady(from: f64, until: f64, rate: f64) -> impl Iterator<Item = Made> {
    let count = ((until - from) * rate) as u32;
    (0..count).map(move |k| (Duration::from_secs_f64(from + f64::from(k) / rate), false))
}

/// Simulates the three kinds of outages on `seeds`, and records figures and pass criteria in
/// `report`.
pub(super) fn measure(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    poisoned(report, seeds)?;
    hanging(report, seeds)?;
    trickle(report, seeds)
}

const HELD: &str = "s that a good call is held at most";

fn poisoned(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    for (count, accepts_ms, again) in
        [(3_u64, 100, false), (30, 100, false), (3, 5_000, false), (3, 100, true)]
    {
        let accepts_after = Duration::from_millis(accepts_ms);
        let mut calls: Vec<Made> = vec![(Duration::ZERO, false)];
        let bursts = if again { 10 } else { 1 };
        let poisoned = (0..bursts * count).map(|k| Duration::from_secs(6 + k / count * 2));
        calls.extend(poisoned.map(|at| (at, true)));
        calls.extend(steady(6.0, 36.0, 20.0));
        let name = format!(
            "{count} poisoned calls{}, others accepted after {accepts_ms} ms",
            if again { " every 2 s" } else { "" }
        );
        eprintln!("{name}");
        let held = |rule| {
            let runs = virtual_time::each(seeds, |seed| {
                play(Upstream::Poisoned { accepts_after }, 128, rule, &calls, seed)
            })?;
            let longest = |(ended, _): &(Vec<Ended>, _)| {
                let good = ended.iter().filter(|(_, is_poisoned, ..)| !is_poisoned);
                good.map(|(_, _, took, ok)| match ok {
                    true => took.saturating_sub(accepts_after).as_secs_f64(),
                    false => f64::INFINITY,
                })
                .fold(0.0, f64::max)
            };
            Fallible::Ok(Spread::of(runs.iter().map(longest)))
        };
        let ours = held(None)?;
        report.bar(format!("{name}: {HELD}"), ours.most, Op::AtMost, 2.0);
        report.figure(format!("{name}: {HELD}"), ours);
        let rule = Rule::four(DEADLINE);
        report.peer(rule.name(), format!("{name}: {HELD}"), held(Some(rule))?);
    }
    Ok(())
}

const AT_ONCE: &str = "attempts within a probe interval while down";
const SEEN: &str = "s from recovery to the first accepted";

fn hanging(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    let calls: Vec<Made> = steady(0.0, 240.0, 2.0).collect();
    let name = "attempts fail after 30 s";
    eprintln!("{name}");
    let runs = |rule| virtual_time::each(seeds, |seed| play(Upstream::Hanging, 32, rule, &calls, seed));
    // By then three attempts have failed and the probe interval has reached its length.
    let known = HANGS.start + FAILS_AFTER.as_secs_f64() + 2.0 * PROBE_INTERVAL;
    let at_once = |(_, attempts): &(Vec<Ended>, Vec<(f64, StatusCode)>)| {
        let sent = || attempts.iter().map(|(at, _)| *at).filter(|at| (known..HANGS.end).contains(at));
        let within =
            |from: f64| sent().filter(|at| (from..from + PROBE_INTERVAL * 0.99).contains(at)).count();
        sent().map(|at| within(at) as f64).fold(0.0, f64::max)
    };
    let seen = |(_, attempts): &(Vec<Ended>, Vec<(f64, StatusCode)>)| {
        let accepted = attempts.iter().filter(|(at, status)| *at >= HANGS.end && *status == StatusCode::OK);
        accepted.map(|(at, _)| at - HANGS.end).fold(f64::INFINITY, f64::min)
    };
    let ours = runs(None)?;
    let figures = [
        (AT_ONCE, Spread::of(ours.iter().map(at_once)), 1.0),
        (SEEN, Spread::of(ours.iter().map(seen)), 4.0),
    ];
    for (figure, spread, bar) in figures {
        report.bar(format!("{name}: {figure}"), spread.most, Op::AtMost, bar);
        report.figure(format!("{name}: {figure}"), spread);
    }
    let rule = Rule::four(DEADLINE);
    let naive = runs(Some(rule))?;
    report.peer(rule.name(), format!("{name}: {AT_ONCE}"), Spread::of(naive.iter().map(at_once)));
    report.peer(rule.name(), format!("{name}: {SEEN}"), Spread::of(naive.iter().map(seen)));
    Ok(())
}

const SIXTY: &str = "s until sixty held calls are accepted";

fn trickle(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    let sixty = |before: f64| {
        let mut calls: Vec<Made> = steady(0.0, LIMITED.start - 0.5, before).collect();
        calls.extend((0..60).map(|_| (Duration::from_secs_f64(LIMITED.start), false)));
        let runs = virtual_time::each(seeds, |seed| play(Upstream::Limited, 64, None, &calls, seed))?;
        let last = |(ended, _): &(Vec<Ended>, _)| {
            let held = ended.iter().filter(|(at, ..)| *at >= LIMITED.start);
            held.map(|(at, _, took, ok)| if *ok { at + took.as_secs_f64() } else { f64::INFINITY })
                .fold(0.0, f64::max)
                - LIMITED.end
        };
        Fallible::Ok(Spread::of(runs.iter().map(last)))
    };
    eprintln!("the ramp by what came before");
    let silence = sixty(0.0)?;
    report.figure(format!("after silence: {SIXTY}"), silence);
    // One second more, because a known rate is kept for that long.
    for (name, before, allowed) in [("0.12 calls a second", 0.12, 0.2), ("2 calls a second", 2.0, 1.2)] {
        let after = sixty(before)?;
        report.bar(
            format!("after {name}, beyond silence: {SIXTY}"),
            after.most - silence.most,
            Op::AtMost,
            allowed,
        );
        report.figure(format!("after {name}: {SIXTY}"), after);
    }
    Ok(())
}
