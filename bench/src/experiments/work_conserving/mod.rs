//! Checks by brute force whether a call ever waits although it could be admitted: runs random
//! scenarios with all policies, and checks all waiting calls after each event.
//!
//! The check is independent of the scheduler ([`admission_check`]). It computes slots, caps,
//! tenants' tokens, budgets and memory anew. If a waiting call fits in all of them while no
//! cool-down is active, the time from then on is a *gap*. The only exception is a call that is
//! *held*: kept waiting in favour of the first call of a queue, which has waited for the ageing
//! time. This aged call must then exist, and must lack a resource that the held call would take.

mod admission_check;
mod random_configuration;
mod random_run;
mod token_bucket;

use random_run::{Defect, Found, Play};

use crate::Fallible;
use crate::report::{Op, Report};
use crate::seeds::Seeds;
use crate::virtual_time;

/// The numbers of the reported scenarios. The experiment was developed on scenarios 1,000 to 1,999.
pub(crate) const SCENARIOS: Seeds = Seeds::new(2_000, 2_999);

/// A count over all scenarios: its name, and the function that reads it.
type Count = (&'static str, fn(&Found) -> usize);

/// Simulates all scenarios with and without deliberate defects in the code that calls the
/// scheduler, and returns the report.
pub(crate) fn measure(scenarios: Seeds) -> Fallible<Report> {
    let mut report = Report::new("work-conserving", [scenarios.first, scenarios.last]);
    let [real, skips, stops] = [Defect::No, Defect::OneDispatch, Defect::StopsAtMisfit]
        .map(|lazy| virtual_time::each(scenarios, |seed| Ok(Play::new(seed, lazy).run())));
    let (real, skips, stops) = (real?, skips?, stops?);
    let sum = |runs: &[Found], what: fn(&Found) -> f64| runs.iter().map(what).sum::<f64>();
    let share = |runs: &[Found], what: fn(&Found) -> f64| sum(runs, what) / sum(runs, |found| found.waiting);
    report.figure("scenarios", scenarios.count());
    let counts: [Count; 9] = [
        ("calls dispatched", |found| found.dispatched),
        ("of these, overtaking others", |found| found.overtook),
        ("rejected at arrival", |found| found.refused),
        ("expired", |found| found.expired),
        ("shed", |found| found.shed),
        ("retried", |found| found.retried),
        ("cancelled to return a borrowed slot", |found| found.reclaimed),
        ("cool-downs", |found| found.cooled),
        ("scenarios in which an aged call held others", |found| usize::from(found.held > 0.0)),
    ];
    for (what, count) in counts {
        report.figure(what, real.iter().map(count).sum::<usize>());
    }
    report.figure("hours in which calls waited", sum(&real, |found| found.waiting) / 3600.0);
    report.figure("gap fraction", share(&real, |found| found.gap));
    report.figure("held for an aged head, fraction", share(&real, |found| found.held));
    report.figure("closed by a cool-down, fraction", share(&real, |found| found.closed));
    for (place, rule) in admission_check::RULES.iter().enumerate() {
        let bound = real.iter().filter_map(|found| found.bound.get(place)).sum::<f64>();
        report.figure(
            format!("the oldest kept waiting by: {rule}, fraction"),
            bound / sum(&real, |found| found.waiting),
        );
    }
    for (peer, runs) in
        [("at most one dispatch per event", &skips), ("stops at the first call that does not fit", &stops)]
    {
        report.peer(peer, "gap fraction", share(runs, |found| found.gap));
        let what = format!("gap fraction, {peer}");
        report.bar(what, share(runs, |found| found.gap), Op::AtLeast, 0.01);
    }
    let count = |what: fn(&Found) -> bool| real.iter().filter(|found| what(found)).count() as f64;
    report.bar("gap fraction", share(&real, |found| found.gap), Op::AtMost, 0.0);
    report.bar("scenarios with a gap", count(|found| found.gap > 0.0), Op::AtMost, 0.0);
    report.bar(
        "calls dispatched against a rule",
        sum(&real, |found| found.overstepped as f64),
        Op::AtMost,
        0.0,
    );
    report.bar(
        "moments closed without a reason",
        sum(&real, |found| found.closed_for_nothing as f64),
        Op::AtMost,
        0.0,
    );
    Ok(report)
}
