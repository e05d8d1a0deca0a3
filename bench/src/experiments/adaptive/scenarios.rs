//! The list of scenarios. Each has an upstream, a load, and phases in which these change.

use std::time::Duration;

use tidegate_sim::engine::{EngineConfig, StepCost};

use super::contender::Terms;
use super::prepared_scenario::{Phase, Server, TERMS};
use super::upstream::{Change, FirstToken, Rate};
use super::workload::{Habits, Mix};

/// A scenario: an upstream, and some minutes of load on it in phases.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Whether the scenario is held out: no constant was chosen because of its results.
    pub(crate) held_out: bool,
    pub(crate) server: Server,
    pub(crate) mix: Mix,
    pub(crate) terms: Terms,
    pub(crate) phases: Vec<Phase>,
}

/// Chats with a mean of 550 prompt tokens and 190 output tokens.
const CHAT: Mix = Mix::Lengths { prompt: (400.0, 0.8), output: (150.0, 0.7) };
/// Edits of code with long prompts and answers of one line. The wait for the first token takes most
/// of the time of a call.
const EDITS: Mix = Mix::Lengths { prompt: (1_500.0, 0.9), output: (20.0, 0.8) };
/// Calls whose answers take about half a minute.
const LONG: Mix = Mix::Lengths { prompt: (400.0, 0.8), output: (650.0, 0.3) };
/// Calls whose answers take about a minute.
const MINUTE: Mix = Mix::Lengths { prompt: (400.0, 0.8), output: (1_100.0, 0.25) };

/// Returns a replica of a small model on a recent GPU, at 25 ms per step and 20,000 prompt tokens
/// per second.
fn replica(max_num_seqs: u32, num_blocks: u32) -> EngineConfig {
    let step =
        StepCost { base_ms: 25.0, per_prompt_token_ms: 0.05, per_sequence_ms: 0.25, ..StepCost::default() };
    EngineConfig { max_num_seqs, num_blocks, step, ..EngineConfig::default() }
}

fn engine(max_num_seqs: u32) -> Server {
    Server::Engines { engines: 1, config: replica(max_num_seqs, 5_625) }
}

fn hosted(at_once: usize, rate: Option<Rate>) -> Server {
    Server::Hosted { at_once, rate, first_token: FirstToken::QUICK }
}

fn plain(seconds: u64, load: f64) -> Phase {
    Phase { seconds, load, habits: Habits::PLAIN, change: Change::No }
}

fn changed(seconds: u64, load: f64, change: Change) -> Phase {
    Phase { change, ..plain(seconds, load) }
}

fn with(seconds: u64, load: f64, habits: Habits) -> Phase {
    Phase { habits, ..plain(seconds, load) }
}

/// Returns the habits of callers whose prompts have `context` more tokens at the beginning, as the
/// prompts of an agent have.
fn grown(context: u32) -> Habits {
    Habits { context, ..Habits::PLAIN }
}

/// Returns phases whose load follows a sine with a period of eight minutes, from 0.2 to 1.4 of the
/// capacity.
fn swell() -> Vec<Phase> {
    let load = |minute| 0.8 + 0.6 * (f64::from(minute) * std::f64::consts::FRAC_PI_4).sin();
    (0..8).map(|minute| plain(60, load(minute))).collect()
}

/// Returns all scenarios in the order of the report.
pub(crate) fn all() -> Vec<Scenario> {
    let long = |long| Habits { long, ..Habits::PLAIN };
    let scenario = |name, server, mix, phases: &[Phase]| Scenario {
        name,
        held_out: false,
        server,
        mix,
        terms: TERMS,
        phases: phases.to_vec(),
    };
    let held_out = |name, server, mix, phases: &[Phase]| Scenario {
        held_out: true,
        ..scenario(name, server, mix, phases)
    };
    vec![
        scenario("below capacity", engine(48), CHAT, &[plain(360, 0.6)]),
        scenario("saturated", engine(48), CHAT, &[plain(420, 1.3)]),
        scenario(
            "memory binds",
            Server::Engines { engines: 1, config: replica(256, 1_800) },
            CHAT,
            &[plain(240, 0.8), plain(240, 1.4)],
        ),
        scenario(
            "capacity halves and returns",
            engine(48),
            CHAT,
            &[plain(180, 1.3), changed(180, 1.3, Change::AtOnce(24)), changed(180, 1.3, Change::AtOnce(48))],
        ),
        scenario(
            "long prompts: .5, 5, 15 %",
            engine(48),
            CHAT,
            &[with(200, 0.9, long(0.005)), with(200, 0.9, long(0.05)), with(200, 0.9, long(0.15))],
        ),
        scenario(
            "1 call/s",
            Server::Engines { engines: 1, config: replica(6, 5_625) },
            CHAT,
            &[plain(300, 0.8), plain(300, 1.3), changed(240, 1.0, Change::AtOnce(3))],
        ),
        scenario(
            "bursts of long prompts",
            engine(64),
            EDITS,
            &[plain(60, 0.4), plain(30, 2.0), plain(60, 0.4), plain(30, 2.0), plain(60, 0.4), plain(60, 1.1)],
        ),
        scenario(
            "streams of half a minute",
            engine(32),
            LONG,
            &[plain(240, 1.4), changed(240, 1.4, Change::AtOnce(20)), changed(240, 1.4, Change::AtOnce(32))],
        ),
        scenario(
            "streams of a minute",
            engine(48),
            MINUTE,
            &[plain(300, 1.3), changed(300, 1.3, Change::AtOnce(24)), changed(240, 1.3, Change::AtOnce(48))],
        ),
        scenario("provider takes 40 at once", hosted(40, None), CHAT, &[plain(240, 0.8), plain(240, 1.3)]),
        scenario(
            "provider takes 240,000 tokens a minute",
            hosted(1_000, Some(Rate { per_minute: 240_000.0, others: 0.2 })),
            CHAT,
            &[plain(240, 0.8), plain(240, 1.3)],
        ),
        held_out(
            "others come and go",
            engine(64),
            CHAT,
            &[
                changed(180, 1.1, Change::Others(0.1)),
                changed(180, 1.1, Change::Others(0.6)),
                changed(180, 1.1, Change::Others(0.1)),
            ],
        ),
        held_out(
            "one of four replicas lost",
            Server::Engines { engines: 4, config: replica(16, 2_000) },
            CHAT,
            &[plain(150, 0.9), changed(180, 0.9, Change::Lost(2)), changed(150, 0.9, Change::Back(2))],
        ),
        scenario("cold start", engine(96), CHAT, &[plain(150, 1.3)]),
        scenario(
            "30 % leave before their first token",
            engine(48),
            CHAT,
            &[
                with(200, 0.7, Habits { leaving: 0.3, ..Habits::PLAIN }),
                with(200, 1.8, Habits { leaving: 0.3, ..Habits::PLAIN }),
            ],
        ),
        scenario("conv trace at .6", engine(64), Mix::Trace("conv"), &[plain(360, 0.6)]),
        scenario("conv trace at .95", engine(64), Mix::Trace("conv"), &[plain(360, 0.95)]),
        scenario("conv trace at 1.4", engine(64), Mix::Trace("conv"), &[plain(360, 1.4)]),
        scenario("code trace at .6", engine(64), Mix::Trace("code"), &[plain(360, 0.6)]),
        scenario("code trace at .95", engine(64), Mix::Trace("code"), &[plain(360, 0.95)]),
        scenario("code trace at 1.4", engine(64), Mix::Trace("code"), &[plain(360, 1.4)]),
        held_out(
            "ten times the load",
            engine(48),
            CHAT,
            &[plain(180, 0.15), plain(180, 1.5), plain(180, 0.15)],
        ),
        held_out(
            "twice as slow for a while",
            engine(48),
            CHAT,
            &[plain(180, 0.8), changed(180, 0.8, Change::Pace(2.0)), changed(180, 0.8, Change::Pace(1.0))],
        ),
        held_out("load that swells and ebbs", engine(64), CHAT, &swell()),
        held_out(
            "others share a limit of 60 at once",
            hosted(60, None),
            CHAT,
            &[
                changed(180, 0.9, Change::Others(0.1)),
                changed(180, 0.9, Change::Others(0.5)),
                changed(180, 0.9, Change::Others(0.1)),
            ],
        ),
        held_out(
            "prompts that grow",
            engine(48),
            CHAT,
            &[
                with(150, 0.9, grown(500)),
                with(150, 0.6, grown(2_000)),
                with(150, 0.4, grown(4_000)),
                with(150, 0.3, grown(7_000)),
            ],
        ),
        Scenario {
            terms: Terms { objective: Duration::from_secs(8), ..TERMS },
            ..held_out(
                "first tokens after 5 s whatever the load",
                Server::Hosted { at_once: 40, rate: None, first_token: FirstToken::REASONING },
                CHAT,
                &[plain(240, 0.8), plain(240, 1.3)],
            )
        },
        scenario(
            "a sixth takes fifteen times as long",
            Server::Hosted { at_once: 60, rate: None, first_token: FirstToken::NOISY },
            CHAT,
            &[plain(300, 0.8), plain(240, 1.2)],
        ),
        scenario(
            "half do not stream",
            engine(48),
            CHAT,
            &[
                with(200, 0.7, Habits { whole: 0.5, ..Habits::PLAIN }),
                with(240, 1.3, Habits { whole: 0.5, ..Habits::PLAIN }),
            ],
        ),
    ]
}
