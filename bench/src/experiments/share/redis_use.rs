//! `share-redis`: what `share-gap` and `share-cost` measure, with a Redis server as the store.

use std::time::Duration;

use tidegate::config::{Config, EngineMetricsPolicy, Pool, Share, Target};
use tidegate::{Context, Gate, Transport};
use tidegate_test_servers::RedisServer;
use tokio::time::{interval, sleep as sleep_async};
use tower::{Service, ServiceExt, service_fn};

use super::cost::instant;
use super::{gap, sleep};
use crate::Fallible;
use crate::client_call::{Ask, URL};
use crate::experiments::hot_path::std_now;
use crate::report::{Op, Report};

/// The number of members whose heartbeats are measured.
const MEMBERS: usize = 1_000;
/// Time in which all members join.
const JOIN_TIME: Duration = Duration::from_secs(8);
const MEASURED: Duration = Duration::from_secs(10);
/// The time for which the server is gone: longer than a lease.
const ENDS_LEASES: Duration = Duration::from_secs(10);
/// The maximum time in which all members join again, in seconds: a lease and two seconds.
const RECOVERY: f64 = 10.0;
/// The time after which members that have not joined again count as missing.
const GIVES_UP: Duration = Duration::from_secs(120);
const CAP: usize = 64;
/// The number of members that tell each other of their calls.
const CALLERS: usize = 64;
/// The time between two calls of such a member, and the time that a call takes.
const CALL_INTERVAL: Duration = Duration::from_millis(200);

/// Measures gaps, exchanges and the cost of heartbeats, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("share-redis", []);
    let redis = RedisServer::start(&[])?;
    let each = |report: &mut Report, case: &str, run: &gap::Run| {
        report.bar(format!("{case}: exchanges per s and process"), run.exchanges, Op::AtMost, 3.0);
    };
    gap::measure_shared(&mut report, each, Some(&redis))?;
    measure_heartbeats(&mut report)?;
    measure_events(&mut report, "an adaptive limit", Target::new("sim").url(URL))?;
    let replicas = ["http://replica-0.invalid/v1", "http://replica-1.invalid/v1"];
    let pool = Pool::new(replicas).poll(None).health(None);
    measure_events(&mut report, "a pool", Target::new("sim").url(URL).pool(pool))?;
    Ok(report)
}

/// Measures which part of one core it takes in the server that many members tell each other of
/// their calls.
fn measure_events(report: &mut Report, what: &str, target: Target) -> Fallible<()> {
    let redis = RedisServer::start(&[])?;
    let target = target.metrics(EngineMetricsPolicy::Off);
    let config = Config::builder().target(target).share(Share::redis(redis.url())).build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let gates: Vec<Gate> = {
        let _entered = runtime.enter();
        (0..CALLERS).map(|_| Ok(Gate::over(config.clone(), slow())?)).collect::<Fallible<_>>()?
    };
    for gate in &gates {
        let client = gate.client();
        let ask = Ask { tenant: "t", prompt: 100, output: 10, stream: false };
        runtime.spawn(async move {
            // Members begin at different times.
            sleep_async(CALL_INTERVAL.mul_f64(fastrand::f64())).await;
            let mut turns = interval(CALL_INTERVAL);
            loop {
                turns.tick().await;
                // How a call ends does not matter.
                tokio::spawn(client.clone().oneshot(ask.request(URL)));
            }
        });
    }
    sleep(JOIN_TIME);
    let published = || number(&redis, "commandstats", "cmdstat_spublish:calls=");
    let (from, before, published_before) = (std_now(), processor_time(&redis)?, published()?);
    sleep(MEASURED);
    let time = from.elapsed().as_secs_f64();
    let used = (processor_time(&redis)? - before) / time;
    let rate = (published()? - published_before) / time / CALLERS as f64;
    runtime.shutdown_background();
    let calls = CALLERS as f64 / CALL_INTERVAL.as_secs_f64();
    let case = format!("{CALLERS} processes, {calls} calls/s at {what}");
    report.figure(format!("{case}: texts per s and process"), rate);
    report.figure(format!("{case}: part of a core that the server uses"), used);
    Ok(())
}

/// Returns a transport whose answers take [`CALL_INTERVAL`].
fn slow() -> Transport {
    let wire = instant();
    Transport::new(service_fn(move |request| {
        let mut wire = wire.clone();
        async move {
            sleep_async(CALL_INTERVAL).await;
            wire.call(request).await
        }
    }))
}

/// Measures which part of one core the heartbeats of many idle members take in the server, and how
/// long they take to join again when it has been restarted without its data.
fn measure_heartbeats(report: &mut Report) -> Fallible<()> {
    let redis = RedisServer::start(&[])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let context = Context::default();
    let mut gates = Vec::new();
    for _ in 0..MEMBERS {
        let target = Target::new("sim").url(URL).cap(CAP).metrics(EngineMetricsPolicy::Off);
        let config = Config::builder().target(target).share(Share::redis(redis.url())).build()?;
        let gate = Gate::over(config, instant())?;
        drop(runtime.block_on(gate.acquire_slot("sim", &context)));
        gates.push(gate);
    }
    sleep(JOIN_TIME);
    let (from, before, exchanges_before) = (std_now(), processor_time(&redis)?, exchanges(&redis)?);
    sleep(MEASURED);
    let time = from.elapsed().as_secs_f64();
    let used = (processor_time(&redis)? - before) / time;
    let rate = (exchanges(&redis)? - exchanges_before) / time;
    report.figure("1,000 idle processes: exchanges per s", rate);
    report.bar("1,000 idle processes: part of a core that the server uses", used, Op::AtMost, 0.1);
    let port = redis.port();
    drop(redis);
    sleep(ENDS_LEASES);
    let redis = RedisServer::start_on(port, &[])?;
    let from = std_now();
    let (mut known, mut time) = (0, 0.0);
    while known < MEMBERS && time < GIVES_UP.as_secs_f64() {
        sleep(Duration::from_millis(100));
        known = members(&redis)?;
        time = from.elapsed().as_secs_f64();
    }
    report.figure("1,000 idle processes, server restarted: processes that share again", known as f64);
    report.bar("1,000 idle processes, server restarted: s until all share again", time, Op::AtMost, RECOVERY);
    Ok(())
}

/// Returns the number of members that a server with one resource knows.
fn members(redis: &RedisServer) -> Fallible<usize> {
    let keys = redis.command(&["KEYS", "tidegate:*:heard"])?;
    let Some(key) = keys.lines().next().filter(|key| !key.is_empty()) else { return Ok(0) };
    Ok(redis.command(&["ZCARD", key])?.trim().parse()?)
}

/// Returns the number of exchanges that a server has answered.
pub(super) fn exchanges(redis: &RedisServer) -> Fallible<f64> {
    number(redis, "commandstats", "cmdstat_evalsha:calls=")
}

/// Returns the processor time of a server, in seconds.
fn processor_time(redis: &RedisServer) -> Fallible<f64> {
    Ok(number(redis, "cpu", "used_cpu_user:")? + number(redis, "cpu", "used_cpu_sys:")?)
}

/// Returns the number behind `key` in a section of the server's information, or 0 if it is missing.
fn number(redis: &RedisServer, section: &str, key: &str) -> Fallible<f64> {
    let information = redis.command(&["info", section])?;
    let value = information.lines().find_map(|line| line.strip_prefix(key));
    let value = value.and_then(|value| value.split(',').next()).map_or("0", str::trim);
    Ok(value.parse()?)
}
