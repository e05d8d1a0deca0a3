//! Kills or hangs one of four replicas during calls, and counts the calls that fail, over real
//! sockets and through the whole client.

mod callers;
mod run_client;
mod server;

use callers::Caller;
use run_client::{Fault, Run, play};

use crate::Fallible;
use crate::report::{Op, Report, Spread};

const SEEDS: std::ops::RangeInclusive<u64> = 31..=35;
/// The seeds of all callers except [`Caller::Ours`], which runs on [`SEEDS`]. They are fewer,
/// because runs with failing calls take long.
const FEW: std::ops::RangeInclusive<u64> = 31..=32;

type Pick = fn(&Run) -> f64;
const CALLS: &str = "calls";
const COMPLETED: &str = "completed";
const HIT: &str = "calls in flight at the replica at the fault";
const NEEDLESS: &str = "failed with nothing delivered";
const TRUNCATED: &str = "truncated";
const OTHERWISE: &str = "failed in mid-answer, not as truncated";
const LEAKED: &str = "slots and calls left over";
const OUT: &str = "s from the fault to the last call sent there";
const BACK: &str = "s from its return to the first call sent there";
const LONGEST: &str = "longest completed call, s";
const FIGURES: [(&str, Pick); 10] = [
    (CALLS, |run| run.calls),
    (COMPLETED, |run| run.completed),
    (HIT, |run| run.hit),
    (NEEDLESS, |run| run.needless),
    (TRUNCATED, |run| run.truncated),
    (OTHERWISE, |run| run.otherwise),
    (LEAKED, |run| run.leaked),
    (OUT, |run| run.out),
    (BACK, |run| run.back),
    (LONGEST, |run| run.longest),
];

/// Measures a killed replica and a hung one with all callers, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("failover", SEEDS);
    for fault in [Fault::Killed, Fault::Hung] {
        let ours = runs(Caller::Ours, fault, SEEDS)?;
        let key = |what: &str| format!("{}: {what}", fault.name());
        for (what, pick) in FIGURES {
            report.figure(key(what), Spread::of(ours.iter().map(pick)));
        }
        let most = |pick: Pick| Spread::of(ours.iter().map(pick)).most;
        // Otherwise the run would not test the fault.
        report.bar(key(HIT), Spread::of(ours.iter().map(|run| run.hit)).least, Op::AtLeast, 1.0);
        report.bar(key(NEEDLESS), most(|run| run.needless), Op::AtMost, 0.0);
        report.bar(key(OTHERWISE), most(|run| run.otherwise), Op::AtMost, 0.0);
        report.bar(key(LEAKED), most(|run| run.leaked), Op::AtMost, 0.0);
        report.bar(key(OUT), most(|run| run.out), Op::AtMost, 1.0);
        report.bar(key(BACK), most(|run| run.back), Op::AtMost, 2.0);
        for caller in
            [Caller::Tight, Caller::HealthOff, Caller::RetriesOff, Caller::FailoverOff, Caller::RoundRobin]
        {
            // Round robin has no timeout for a stream that has begun, and would wait forever.
            if caller == Caller::RoundRobin && fault == Fault::Hung {
                continue;
            }
            let theirs = runs(caller, fault, FEW)?;
            for (what, pick) in FIGURES {
                report.peer(caller.name(), key(what), Spread::of(theirs.iter().map(pick)));
            }
        }
    }
    Ok(report)
}

fn runs(caller: Caller, fault: Fault, seeds: std::ops::RangeInclusive<u64>) -> Fallible<Vec<Run>> {
    let of = |seed| {
        // Each run has its own runtime, so that leftovers of one run do not affect the next.
        let run = tokio::runtime::Runtime::new()?.block_on(play(caller, fault, seed))?;
        eprintln!("{}, {}, seed {seed}: {run:?}", caller.name(), fault.name());
        Ok(run)
    };
    seeds.map(of).collect()
}
