//! `vllm-kv`: a gate without any setting, in front of a server whose KV cache is small.

use super::Options;
use super::contender::Contender;
use super::engines::Profile;
use super::load::{Lengths, Plan};
use super::runner::Runner;
use crate::Fallible;
use crate::report::{Op, Report};

/// No constant of the adaptive limit was chosen on this seed.
const SEED: u64 = 63;

const CALLERS: usize = 64;
/// On average 112 tokens per running sequence, so that 27 sequences fit into the 3,072 tokens.
const LENGTHS: Lengths = Lengths { prompt: (24, 120), output: (32, 128) };
const CAPS: [usize; 6] = [12, 16, 18, 20, 22, 24];

const PREEMPTIONS_PER_CALL: f64 = 0.05;
/// The minimum output tokens per second, divided by those of the best cap with few preemptions.
const THROUGHPUT: f64 = 0.95;

/// Runs all contenders, and returns the report.
pub(crate) fn measure(options: &Options) -> Fallible<Report> {
    let mut runner = Runner::new(options, Profile::Kv)?;
    let mut report = options.report("vllm-kv", [SEED]);
    let scenario = format!("{CALLERS} callers");
    let plan = Plan::closed(CALLERS, LENGTHS, options.lasts(), SEED);
    let ours = runner.play(&scenario, Contender::DEFAULT, &plan)?;
    for (what, value) in ours.figures() {
        report.figure(format!("{scenario}: {what}"), value);
    }
    // NaN, which meets no bar, if no cap has few preemptions.
    let mut best = f64::NAN;
    for peer in CAPS.map(Contender::cap).into_iter().chain([Contender::WITHOUT_METRICS, Contender::Stock]) {
        let run = runner.play(&scenario, peer, &plan)?;
        if run.preemptions_per_call() <= PREEMPTIONS_PER_CALL {
            best = best.max(run.tokens_per_second());
        }
        for (what, value) in run.figures() {
            report.peer(&peer.name(), format!("{scenario}: {what}"), value);
        }
    }
    let preemptions = ours.preemptions_per_call();
    report.bar(format!("{scenario}: preemptions per call"), preemptions, Op::AtMost, PREEMPTIONS_PER_CALL);
    let throughput = ours.tokens_per_second() / best;
    report.bar(
        format!("{scenario}: output tokens/s / best cap with few preemptions"),
        throughput,
        Op::AtLeast,
        THROUGHPUT,
    );
    runner.finish(&mut report, "")?;
    Ok(report)
}
