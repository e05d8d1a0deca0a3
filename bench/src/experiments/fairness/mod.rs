//! Measures how closely each tenant's share of the tokens follows its weight, under Tidegate's
//! scheduler and under other policies, with the same arrivals and the same server.
//!
//! The server is simulated event by event. It has sixteen slots of constant speed, so the service
//! time of a call depends only on its length. The figures come from records that are independent of
//! the policies ([`fairness_records`]), and from a fluid oracle ([`processor_sharing`]).

mod fairness_records;
mod processor_sharing;
mod published_run;
mod server;
mod workload;
mod workload_list;

use fairness_records::Accounts;
use workload::Workload;

use crate::Fallible;
use crate::report::{Op, Report, Spread};
use crate::schedulers::{Charging, Deficit, Fifo, Ours, Policy, RoundRobin, Vtc};
use crate::seeds::Seeds;
use crate::virtual_time;

/// The seeds of the reported figures. The constants were chosen on seeds 1 to 5.
pub(crate) const SEEDS: Seeds = Seeds::new(11, 20);

/// The policy that schedules a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Ours(Charging),
    /// Like [`Charging::Tokens`], but all tenants have the same weight.
    Unweighted,
    Fifo,
    RoundRobin,
    Vtc,
    Deficit,
}

impl Who {
    const PEERS: [Self; 4] = [Self::Fifo, Self::RoundRobin, Self::Vtc, Self::Deficit];

    fn name(self) -> &'static str {
        match self {
            Self::Ours(Charging::Tokens) => "tidegate",
            Self::Ours(Charging::Unsettled) => "tidegate, charges not corrected",
            Self::Ours(Charging::Calls) => "tidegate, calls charged instead of tokens",
            Self::Unweighted => "tidegate, weights off",
            Self::Fifo => "FIFO",
            Self::RoundRobin => "round robin by call",
            Self::Vtc => "VTC",
            Self::Deficit => "DRR as in the post",
        }
    }

    fn policy(self, load: &Workload, calls: &[crate::schedulers::Call]) -> Box<dyn Policy> {
        let (slots, weights, bounds) = (load.server.slots, load.weights(), load.bounds());
        match self {
            Self::Ours(charging) => Box::new(Ours::new(slots, &weights, &bounds, charging)),
            Self::Unweighted => {
                Box::new(Ours::new(slots, &vec![1.0; weights.len()], &bounds, Charging::Tokens))
            }
            Self::Fifo => Box::new(Fifo::default()),
            Self::RoundRobin => Box::new(RoundRobin::new(bounds)),
            Self::Vtc => Box::new(Vtc::new(weights, bounds, calls.iter().map(|call| call.input).collect())),
            Self::Deficit => Box::new(Deficit::new(weights, bounds)),
        }
    }

    fn serve(self, load: &Workload, seed: u64) -> Accounts {
        let calls = load.calls(seed);
        let mut policy = self.policy(load, &calls);
        let mut accounts = Accounts::new(&load.weights(), self == Self::Ours(Charging::Tokens));
        load.server.serve(&calls, load.horizon, policy.as_mut(), &mut accounts);
        accounts
    }
}

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    charged: f64,
    served: f64,
    share: f64,
    window: f64,
    light: f64,
    busy: f64,
}

impl Outcome {
    fn of(load: &Workload, accounts: &Accounts) -> Self {
        let mut waits = load.light.map(|light| accounts.tenant(light).waits).unwrap_or_default();
        Self {
            charged: accounts.charged_gap(),
            served: accounts.served_gap(),
            share: accounts.share_error,
            window: accounts.window_error,
            light: tidegate_sim::scenario::quantile(&mut waits, 0.99),
            busy: accounts.utilisation(load.server.slots, load.horizon),
        }
    }
}

/// Simulates all workloads with all policies on `seeds`, and returns the report.
pub(crate) fn measure(seeds: Seeds) -> Fallible<Report> {
    let mut report = Report::new("fairness", seeds);
    for load in workload_list::all()? {
        eprintln!("{}", load.name);
        let play =
            |who: Who| virtual_time::each(seeds, |seed| Ok(Outcome::of(&load, &who.serve(&load, seed))));
        let ours = play(Who::Ours(Charging::Tokens))?;
        record_bars(&mut report, &load, &ours);
        for who in Who::PEERS {
            let theirs = play(who)?;
            record_peer(&mut report, &load, who, &theirs);
            compare(&mut report, &load, &ours, who, &theirs);
        }
        if let Some(who) = load.without {
            let runs = play(who)?;
            record_peer(&mut report, &load, who, &runs);
            let what = format!("{}: served gap / VTC's bound, {}", load.name, who.name());
            report.bar(what, Spread::of(runs.iter().map(|run| run.served)).least, Op::AtLeast, 1.0);
        }
    }
    published_run::measure(&mut report, seeds)?;
    Ok(report)
}

const CHARGED: &str = "charged gap / bound";
const SERVED: &str = "served gap / VTC's bound";
const SHARE: &str = "share error, whole run";
const WINDOW: &str = "share error, worst 5 min";
const LIGHT: &str = "light tenant, p99 queue wait, s";

/// The name of a figure, and the function that reads it.
type Figure = (&'static str, fn(&Outcome) -> f64);

/// Records Tidegate's figures of a workload, and whether they meet their pass criteria, in
/// `report`.
fn record_bars(report: &mut Report, load: &Workload, runs: &[Outcome]) {
    let key = |what: &str| format!("{}: {what}", load.name);
    let spread = |what: fn(&Outcome) -> f64| Spread::of(runs.iter().map(what));
    let (charged, served) = (spread(|run| run.charged), spread(|run| run.served));
    let (share, window, busy) = (spread(|run| run.share), spread(|run| run.window), spread(|run| run.busy));
    let figures =
        [(CHARGED, charged), (SERVED, served), (SHARE, share), (WINDOW, window), ("slots used", busy)];
    for (what, spread) in figures {
        report.figure(key(what), spread);
    }
    if load.light.is_some() {
        report.figure(key(LIGHT), spread(|run| run.light));
    }
    report.bar(key(CHARGED), charged.most, Op::AtMost, 1.0);
    report.bar(key(SERVED), served.most, Op::AtMost, 1.0);
    report.bar(key(SHARE), share.most, Op::AtMost, 0.03);
    report.bar(key(WINDOW), window.most, Op::AtMost, 0.03);
    report.bar(key("slots used"), busy.least, Op::AtLeast, 0.99);
}

/// Records the light tenant's p99 wait under Tidegate, divided by its p99 wait under the policy
/// `who` on the same seed. Does nothing for workloads without a light tenant, and for policies
/// other than FIFO and VTC.
fn compare(report: &mut Report, load: &Workload, ours: &[Outcome], who: Who, theirs: &[Outcome]) {
    if load.light.is_none() || !matches!(who, Who::Fifo | Who::Vtc) {
        return;
    }
    let ratio = Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours.light / theirs.light));
    let what = format!("{}: light tenant, p99 queue wait / {}'s", load.name, who.name());
    report.figure(&what, ratio);
    if who == Who::Fifo {
        report.bar(what, ratio.most, Op::AtMost, 0.1);
    }
}

/// Records the figures of another policy than Tidegate's.
fn record_peer(report: &mut Report, load: &Workload, who: Who, runs: &[Outcome]) {
    let figures: [Figure; 4] = [
        (SERVED, |run| run.served),
        (SHARE, |run| run.share),
        (WINDOW, |run| run.window),
        (LIGHT, |run| run.light),
    ];
    for (what, value) in figures {
        if what != LIGHT || load.light.is_some() {
            report.peer(who.name(), format!("{}: {what}", load.name), Spread::of(runs.iter().map(value)));
        }
    }
}
