//! `share-fair`: whether the shares of processes follow their weights, and how soon a newcomer is
//! served.

use std::time::Duration;

use super::timeline::slot_time;
use super::upstream::Upstream;
use super::{Directory, Member, Settings, sharing, sleep, start, wait_until_full};
use crate::Fallible;
use crate::experiments::hot_path::std_now;
use crate::report::{Op, Report};

/// Saturated processes with weights.
struct Scenario {
    name: &'static str,
    cap: usize,
    /// The weight of the tenant of each process.
    weights: &'static [f64],
    service: Duration,
    measured: Duration,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "whole shares",
        cap: 14,
        weights: &[1.0, 2.0, 4.0],
        service: Duration::from_millis(500),
        measured: Duration::from_secs(10),
    },
    Scenario {
        name: "shares with fractions",
        cap: 13,
        weights: &[1.0, 1.0, 2.0, 4.0],
        service: Duration::from_millis(250),
        measured: Duration::from_secs(25),
    },
    Scenario {
        name: "more processes than slots",
        cap: 4,
        weights: &[1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0],
        service: Duration::from_millis(100),
        measured: Duration::from_secs(40),
    },
];
/// Time before the measured period, in which the leases settle.
const SETTLE: Duration = Duration::from_secs(2);

/// The number of newcomers in each scenario.
const NEWCOMERS: usize = 8;
/// The mean service time in the scenarios of newcomers.
const SERVICE: Duration = Duration::from_secs(1);

/// Measures shares and newcomers, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("share-fair", []);
    for scenario in &SCENARIOS {
        let error = share_error(scenario)?;
        report.bar(format!("{}: largest error of a share", scenario.name), error, Op::AtMost, 0.05);
    }
    for (name, processes, cap) in [("4 processes, 16 slots", 4, 16), ("8 processes, 4 slots", 8, 4)] {
        let waits = newcomers(processes, cap)?;
        let longest = waits.iter().copied().fold(0.0, f64::max);
        report.bar(
            format!("{name}: s until a newcomer is served"),
            longest,
            Op::AtMost,
            SERVICE.as_secs_f64() + 0.1,
        );
    }
    Ok(report)
}

/// Returns the largest difference of a process's part of the used slot time from the part of its
/// weight, as a fraction of the latter.
fn share_error(scenario: &Scenario) -> Fallible<f64> {
    let upstream = Upstream::start(scenario.service)?;
    let directory = Directory::create()?;
    let settings = |(member, weight): (usize, &f64)| Settings {
        weight: *weight,
        ..sharing(&upstream, scenario.cap, member, 2 * scenario.cap)
    };
    let settings: Vec<_> = scenario.weights.iter().enumerate().map(settings).collect();
    let members = start(&settings, &directory)?;
    wait_until_full(&members, &upstream, scenario.cap)?;
    sleep(SETTLE);
    let from = std_now();
    sleep(scenario.measured);
    let until = std_now();
    let calls = upstream.calls();
    let used: Vec<f64> = (0..settings.len()).map(|member| slot_time(&calls, member, from, until)).collect();
    let total: f64 = used.iter().sum();
    let weights: f64 = scenario.weights.iter().sum();
    let parts = used.iter().zip(scenario.weights).map(|(used, weight)| used / total / (weight / weights));
    let parts: Vec<f64> = parts.collect();
    eprintln!("{}: parts / parts of weights {parts:.3?}", scenario.name);
    Ok(parts.iter().map(|part| (part - 1.0).abs()).fold(0.0, f64::max))
}

/// Starts newcomers one after the other while other processes use all slots. Returns the times in
/// seconds from the first call of each until it arrives at the upstream.
fn newcomers(processes: usize, cap: usize) -> Fallible<Vec<f64>> {
    let upstream = Upstream::start(SERVICE)?;
    let directory = Directory::create()?;
    let settings: Vec<_> = (0..processes).map(|member| sharing(&upstream, cap, member, 2 * cap)).collect();
    let members = start(&settings, &directory)?;
    wait_until_full(&members, &upstream, cap)?;
    sleep(SETTLE);
    let mut waits = Vec::new();
    for member in processes..processes + NEWCOMERS {
        let newcomer = Member::start(&sharing(&upstream, cap, member, 1), directory.path())?;
        let began = newcomer.wait_for_begin()?;
        let give_up = std_now() + 10 * SERVICE;
        let arrived = loop {
            match upstream.first_of(member) {
                Some(arrived) => break arrived,
                None if std_now() > give_up => return Err("a newcomer is not served within 10 s".into()),
                None => sleep(Duration::from_millis(5)),
            }
        };
        waits.push(arrived.saturating_duration_since(began).as_secs_f64());
        drop(newcomer);
        sleep(SERVICE);
    }
    eprintln!("{processes} processes, {cap} slots: newcomers served after {waits:.3?} s");
    Ok(waits)
}
