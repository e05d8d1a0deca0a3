//! `vllm-default`: a gate without any setting, in a closed loop, beside the best cap.

use super::Options;
use super::contender::Contender;
use super::engines::Profile;
use super::load::{Lengths, Plan};
use super::runner::Runner;
use crate::Fallible;
use crate::report::{Op, Report};

/// No constant of the adaptive limit was chosen on this seed.
const SEED: u64 = 62;

const CALLERS: [usize; 4] = [16, 32, 64, 128];
const LENGTHS: Lengths = Lengths { prompt: (20, 200), output: (16, 48) };
/// The server runs 16 sequences at the same time.
const CAPS: [usize; 4] = [12, 16, 20, 24];

/// The minimum output tokens per second, divided by those of the best cap.
const THROUGHPUT: f64 = 0.97;
/// The maximum number of calls in the server's queue, divided by the number in its batch.
const WAITING: f64 = 0.25;
const CUTS_PER_20_S: f64 = 2.0;

/// Runs each number of callers with all contenders, and returns the report.
pub(crate) fn measure(options: &Options) -> Fallible<Report> {
    let mut runner = Runner::new(options, Profile::Queue)?;
    let mut report = options.report("vllm-default", [SEED]);
    for callers in CALLERS {
        let scenario = format!("{callers} callers");
        if !options.includes(&scenario) {
            continue;
        }
        let plan = Plan::closed(callers, LENGTHS, options.lasts(), SEED);
        let ours = runner.play(&scenario, Contender::DEFAULT, &plan)?;
        for (what, value) in ours.figures() {
            report.figure(format!("{scenario}: {what}"), value);
        }
        let mut best = 0.0f64;
        for peer in CAPS.map(Contender::cap).into_iter().chain([Contender::WITHOUT_METRICS]) {
            let run = runner.play(&scenario, peer, &plan)?;
            best = best.max(run.tokens_per_second());
            for (what, value) in run.figures() {
                report.peer(&peer.name(), format!("{scenario}: {what}"), value);
            }
        }
        let throughput = ours.tokens_per_second() / best;
        report.bar(format!("{scenario}: output tokens/s / best cap"), throughput, Op::AtLeast, THROUGHPUT);
        let waiting = ours.waiting() / ours.running();
        report.bar(format!("{scenario}: waiting / running after 5 s"), waiting, Op::AtMost, WAITING);
        let cuts = ours.cuts_per_20_s();
        report.bar(format!("{scenario}: cuts per 20 s after 5 s"), cuts, Op::AtMost, CUTS_PER_20_S);
    }
    runner.finish(&mut report, "")?;
    Ok(report)
}
