//! Short runs from different first caps: the U of TTFT over them, and 64 against 128.
//!
//! The post does not tell the lengths of these runs. With the 512 and 128 tokens of the post before it a worker's memory holds 140 calls, and
//! the knee lies there; with twice as many it holds 70, and the knee lies where the post saw it, between 64 and 128. So twice as many.

use super::controllers::{Ours, Post};
use super::gateway::Door;
use super::load::Load;
use super::{Figure, IN_TIME, MEDIAN, Make, P99, Runs, SERVED, WORKERS, fixed, note, post, s};
use crate::Fallible;
use crate::report::{Op, Report};

const CAPS: [usize; 7] = [4, 8, 16, 32, 64, 128, 256];
const FIGURES: [Figure; 4] = [MEDIAN, P99, SERVED, IN_TIME];

pub(super) fn measure(report: &mut Report) -> Fallible<()> {
    let load = Load { tokens: (1_024, 256), ..Load::steady(s(120), [2.0, 4.0]) };
    let see = |make: &Make| Runs::of(&load, Door::TIGHT, make, s(0)..load.length);
    let sweep = |make: &dyn Fn(usize) -> Box<Make>| {
        CAPS.into_iter().map(|cap| see(&make(cap))).collect::<Fallible<Vec<Runs>>>()
    };
    let held = sweep(&|cap| fixed(cap))?;
    // "A wider sweep": the bounds have to make room for it.
    let posts = sweep(&|cap| post(Post { cap_per_worker: cap, min: 4, max: 256, ..Post::FINAL }))?;
    let own = sweep(&|cap| Box::new(move || Box::new(Ours::starting_at(cap * WORKERS))))?;
    for (place, cap) in CAPS.into_iter().enumerate() {
        let fault = format!("first cap {cap}");
        for (who, runs) in [("fixed there", &held), ("the post's final law", &posts), ("", &own)] {
            if let Some(runs) = runs.get(place) {
                note(report, &fault, who, runs, &FIGURES);
            }
        }
    }

    let medians = |sweep: &[Runs]| sweep.iter().map(|runs| runs.spread(P99.1).median).collect::<Vec<f64>>();
    let least = |p99s: &[f64]| p99s.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |p99s: &[f64]| p99s.iter().copied().fold(0.0, f64::max);
    let [theirs, ours] = [&posts, &own].map(|sweep| medians(sweep));
    let side = |end: Option<&f64>| end.copied().unwrap_or_default() / least(&theirs);
    report.bar("the U shows: p99 from 4, of that from the best", side(theirs.first()), Op::AtLeast, 2.0);
    report.bar("the U shows: p99 from 256, of that from the best", side(theirs.last()), Op::AtLeast, 2.0);
    report.bar(
        "ours, wherever it begins: worst p99, of the best of the post's",
        most(&ours) / least(&theirs),
        Op::AtMost,
        1.0,
    );

    // The fifth and the sixth.
    if let [.., at_64, at_128, _] = posts.as_slice() {
        let ratio = at_128.least_ratio(at_64, P99.1);
        report.bar("64 against 128: p99 of the second, of the first", ratio, Op::AtLeast, 2.0);
        let ratio = at_128.least_ratio(at_64, SERVED.1);
        report.bar("64 against 128: served by the second, of the first", ratio, Op::AtLeast, 0.8);
        let ratio = at_128.most_ratio(at_64, SERVED.1);
        report.bar("64 against 128: served by the second, of the first, at most", ratio, Op::AtMost, 1.1);
    }
    if let [.., at_64, at_128, _] = own.as_slice() {
        let ratio = at_128.most_ratio(at_64, P99.1);
        report.bar("ours, begun at 64 and at 128: p99 of the second, of the first", ratio, Op::AtMost, 1.5);
    }
    Ok(())
}
