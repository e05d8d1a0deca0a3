//! Sends 40 calls of 1.5 s through a gate with a cap of 4, over real sockets.
//!
//! All calls must be answered, at most 4 may be in flight at the same time, and the whole may take
//! at most 1.1 times the ideal 15 s.

use std::time::Duration;

use serde_json::json;
use tidegate::config::{Config, Mode, Target};
use tidegate::{Gate, Transport};
use tidegate_sim::{Faults, Simulator, serve};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::Fallible;
use crate::client_call::{Ask, call};
use crate::report::{Op, Report};
use crate::unlimited_simulators::{STEADY_TOKENS, steady};

const CALLERS: usize = 40;
const CAP: usize = 4;
const IDEAL: f64 = 15.0;

/// Sends the calls with the gate on and off, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("cap", [1]);
    let on = play(Mode::Enforce)?;
    let off = play(Mode::Off)?;
    for (figure, ours, without) in [
        ("served of 40", on.served, off.served),
        ("peak in flight upstream", on.peak, off.peak),
        ("wall, s", on.wall, off.wall),
    ] {
        report.figure(figure, ours);
        report.peer("gate off", figure, without);
    }
    report.bar_as("served of 40", json!(on.served), "=", json!(CALLERS), on.served == CALLERS as f64);
    report.bar("peak in flight upstream", on.peak, Op::AtMost, CAP as f64);
    report.bar("wall / ideal (15 s)", on.wall / IDEAL, Op::AtMost, 1.1);
    report.bar("gate off: peak in flight upstream", off.peak, Op::AtLeast, CAP as f64 + 1.0);
    Ok(report)
}

struct Run {
    served: f64,
    peak: f64,
    wall: f64,
}

fn play(mode: Mode) -> Fallible<Run> {
    eprintln!("mode {mode:?}");
    tokio::runtime::Runtime::new()?.block_on(async {
        // A call waits for the next step before it begins, so steps must be short compared with the
        // call.
        let service = Duration::from_millis(1_500) / FINE;
        let simulator = Simulator::new(steady(service, Faults::default()))?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let base = format!("http://{}", listener.local_addr()?);
        let server = tokio::spawn(serve(listener, simulator.clone()));
        let target = Target::new("sim").url(&base).cap(CAP);
        let gate = Gate::new(Config::builder().mode(mode).target(target).build()?)?;
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..CALLERS {
            let client = Transport::new(gate.client());
            let ask = Ask { tenant: "a", prompt: 8, output: STEADY_TOKENS * FINE, stream: false };
            let request = ask.request(&base);
            tasks.spawn(async move { call(client, request).await.ok });
        }
        let served = tasks.join_all().await.into_iter().filter(|ok| *ok).count() as f64;
        let wall = start.elapsed().as_secs_f64();
        server.abort();
        Ok(Run { served, peak: simulator.stats().peak_in_flight as f64, wall })
    })
}

/// The factor by which the simulator's steps are shorter than those of [`steady`]. A call takes
/// that many times as many steps, so its duration is the same.
const FINE: u32 = 10;
