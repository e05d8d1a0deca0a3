//! Reproduces a run of the post with weights 2:1. Tenant B (weight 1) always has calls, and tenant
//! A (weight 2) has calls in the middle of the run only. While B is alone it should get the whole
//! server, and during A's burst A should get two thirds.
//!
//! As in the post there are 32 slots, a queue of 8 calls for A and of 2 for B, and a call that
//! finds its queue full is rejected. Each tenant asks for more than the whole server.

use std::time::Duration;

use super::Who;
use super::fairness_records::Accounts;
use super::server::Server;
use super::workload::{Arrivals, Tenant, Workload};
use super::workload_list::{CHAT, SERVER};
use crate::Fallible;
use crate::report::{Op, Report, Spread};
use crate::schedulers::Charging;
use crate::seeds::Seeds;
use crate::virtual_time;

/// Start and end of A's burst, in seconds since the start. The run takes 900 s.
const BURST: (f64, f64) = (300.0, 600.0);
const HORIZON: f64 = 900.0;

fn load(horizon: f64) -> Workload {
    let (from, until) = BURST;
    let b = Tenant::new(CHAT, Arrivals::Poisson { share: 2.0 }).queues(2);
    let a = Tenant::new(CHAT, Arrivals::Within { share: 2.0, from, until }).weighs(2.0).queues(8);
    Workload {
        name: "the post's 2:1 run",
        server: Server { slots: 32, ..SERVER },
        horizon: Duration::from_secs_f64(horizon),
        tenants: vec![b, a],
        light: None,
        without: Some(Who::Unweighted),
    }
}

/// The figures of one run, all as shares from 0 to 1: B's share of the tokens before the burst
/// (`alone`), A's share during the burst, the rejected calls of B and of A, and the used slots
/// before the burst and in the whole run.
#[derive(Clone, Copy, Debug)]
struct Run {
    alone: f64,
    share_of_a: f64,
    refused: [f64; 2],
    slots: [f64; 2],
}

fn run(who: Who, seed: u64) -> Run {
    // The same calls, cut off at three moments.
    let at = |horizon: f64| -> Accounts {
        let load = load(HORIZON);
        let cut = Workload { horizon: Duration::from_secs_f64(horizon), ..load.clone() };
        let calls = load.calls(seed);
        let mut policy = who.policy(&cut, &calls);
        let mut accounts = Accounts::new(&load.weights(), false);
        cut.server.serve(&calls, cut.horizon, policy.as_mut(), &mut accounts);
        accounts
    };
    let [before, during, after] = [BURST.0, BURST.1, HORIZON].map(at);
    let begun = |accounts: &Accounts| [accounts.tenant(0).begun, accounts.tenant(1).begun];
    let ([b0, a0], [b1, a1]) = (begun(&before), begun(&during));
    let used = |accounts: &Accounts, time: f64| accounts.utilisation(32, Duration::from_secs_f64(time));
    let refused = [0, 1].map(|number| {
        let tenant = after.tenant(number);
        tenant.refused as f64 / tenant.came as f64
    });
    Run {
        alone: b0 / (b0 + a0),
        share_of_a: (a1 - a0) / (a1 - a0 + b1 - b0),
        refused,
        slots: [used(&before, BURST.0), used(&after, HORIZON)],
    }
}

/// Simulates the run with each policy on `seeds`, and records figures and pass criteria in
/// `report`.
pub(super) fn measure(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    eprintln!("the post's 2:1 run");
    let key = |what: &str| format!("the post's 2:1 run: {what}");
    let ours = Who::Ours(Charging::Tokens);
    for who in [ours, Who::RoundRobin, Who::Vtc, Who::Deficit, Who::Unweighted] {
        let runs = virtual_time::each(seeds, |seed| Ok(run(who, seed)))?;
        let spread = |what: fn(&Run) -> f64| Spread::of(runs.iter().map(what));
        let figures = [
            ("B's share before", spread(|run| run.alone)),
            ("slots used before", spread(|run| run.slots[0])),
            ("A's share during the burst", spread(|run| run.share_of_a)),
            ("slots used, whole run", spread(|run| run.slots[1])),
            ("B's calls refused", spread(|run| run.refused[0])),
            ("A's calls refused", spread(|run| run.refused[1])),
        ];
        for (what, spread) in figures {
            if who == ours {
                report.figure(key(what), spread);
            } else {
                report.peer(who.name(), key(what), spread);
            }
        }
        let share = spread(|run| run.share_of_a);
        let off = (share.most - 2.0 / 3.0).abs().max((share.least - 2.0 / 3.0).abs());
        if who == Who::Unweighted {
            report.bar(key("A's share, weights off, off two thirds by"), off, Op::AtLeast, 0.03);
        }
        if who == ours {
            report.bar(key("A's share, off two thirds by"), off, Op::AtMost, 0.03);
            report.bar(key("B's share before"), spread(|run| run.alone).least, Op::AtLeast, 1.0);
            report.bar(key("slots used before"), spread(|run| run.slots[0]).least, Op::AtLeast, 0.98);
            report.bar(key("slots used, whole run"), spread(|run| run.slots[1]).least, Op::AtLeast, 0.98);
        }
    }
    Ok(())
}
