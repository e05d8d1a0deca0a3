//! The list of scenarios of `sweep`: servers with known limits.

use std::time::Duration;

use fastrand::Rng;
use tidegate_sim::engine::{EngineConfig, StepCost};
use tidegate_sim::faults::{Drift, LimitRamp, LoadGrowth, Overload, TokenRate};
use tidegate_sim::{Faults, SimConfig};
use tidegate_sweep::Binding;

use super::drawn_calls::{Lengths, Spread};
use super::server::Server;

/// A group of similar servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The binding limit, which determines the best cap. A sweep should name it.
    pub(crate) binds: Binding,
    /// The number of different servers. Each pair of consecutive seeds uses the next of them.
    pub(crate) kinds: usize,
    pub(crate) lengths: Lengths,
    build: fn(ServerInputs) -> SimConfig,
}

/// The inputs from which the configuration of a server is built.
#[derive(Clone, Copy, Debug)]
struct ServerInputs {
    kind: usize,
    spread: Spread,
    round_trip: Duration,
    state: State,
    /// A random number from 0 to 1, drawn from the seed.
    random: f64,
}

/// Which state of a server that changes during a sweep is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum State {
    /// The server changes during the run, as in a sweep.
    Whole,
    /// The server stays as it is before its change.
    Before,
    /// The server is as it is after its change, from the start on.
    After,
}

/// The properties of a scenario's server and calls that differ between seeds and that the best cap
/// depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Variant {
    pub(crate) kind: usize,
    pub(crate) spread: Spread,
    pub(crate) round_trip_ms: u64,
}

impl Scenario {
    pub(crate) fn variant(&self, seed: u64) -> Variant {
        let far = seed.is_multiple_of(2);
        let (spread, round_trip_ms) = if far { (Spread::Wide, 40) } else { (Spread::Narrow, 10) };
        Variant { kind: (seed as usize / 2) % self.kinds, spread, round_trip_ms }
    }

    /// Returns all variants of the scenario.
    pub(crate) fn variants(&self) -> Vec<Variant> {
        (0..2 * self.kinds as u64).map(|seed| self.variant(seed)).collect()
    }

    pub(crate) fn server(&self, variant: Variant, seed: u64, state: State) -> Server {
        let mut rng = Rng::with_seed(seed ^ 0x1cc);
        let (random, way) = (rng.f64(), rng.f64());
        let nominal = Duration::from_millis(variant.round_trip_ms);
        // The difference is too small to change the best cap by one.
        let round_trip = if state == State::Whole { nominal.mul_f64(0.5 + way) } else { nominal };
        let mut config = (self.build)(ServerInputs {
            kind: variant.kind,
            spread: variant.spread,
            round_trip: nominal,
            state,
            random,
        });
        config.faults.seed = seed;
        let read_time = if self.binds == Binding::Client { READ_TIME } else { Duration::ZERO };
        Server { config, round_trip, read_time }
    }

    /// Returns the number of calls after which the server changes. `None` if it does not change.
    pub(crate) fn changes_after(&self, variant: Variant, seed: u64) -> Option<u64> {
        self.server(variant, seed, State::Whole).config.faults.drift?.after_calls
    }
}

/// Mean output of a call, in tokens.
const OUTPUT: f64 = 16.0;
const SHORT: Lengths = Lengths { prompt: 100.0, output: OUTPUT };
/// The duration of a step of an idle server, in milliseconds.
const STEP_MS: f64 = 100.0;
/// The time that the slow client needs to read an event.
const READ_TIME: Duration = Duration::from_millis(5);

fn server(step: StepCost, faults: Faults) -> SimConfig {
    SimConfig {
        workers: 1,
        engine: EngineConfig {
            num_blocks: 1_000_000,
            max_num_seqs: 100_000,
            max_num_batched_tokens: 10_000_000,
            step,
            ..EngineConfig::default()
        },
        attempt_log: 0,
        faults,
        ..SimConfig::calibrated()
    }
}

/// Returns the step cost of a server that makes ten tokens per second for a single call, and has
/// its maximum throughput at `peak` concurrent calls. `sigma` is the contention coefficient of the
/// universal scalability law, from 0 to 1.
fn usl(peak: f64, sigma: f64) -> StepCost {
    StepCost::usl(1e3 / STEP_MS, sigma, (1.0 - sigma) / (peak * peak))
}

/// Returns the step cost of a server whose speed does not depend on the concurrency.
fn steady() -> StepCost {
    StepCost { base_ms: STEP_MS, per_prompt_token_ms: 0.0, per_sequence_ms: 0.0, ..StepCost::default() }
}

fn limited(limit: usize, retry_after: Option<f64>) -> SimConfig {
    let faults = Faults {
        concurrency_limit: Some(limit),
        limits_retry_after_s: retry_after,
        hide_limit_name: true,
        ..Faults::default()
    };
    server(steady(), faults)
}

/// Returns 1 % more than the tokens per minute that `cap` concurrent calls need.
fn tokens_a_minute(cap: f64, place: ServerInputs) -> f64 {
    // A call joins the step after the current one.
    let took = (OUTPUT + 0.8) * STEP_MS / 1e3 + place.round_trip.as_secs_f64() / 2.0;
    1.01 * cap / took * 60.0 * (SHORT.prompt + SHORT.output)
}

fn rate(place: ServerInputs, headers: bool) -> SimConfig {
    let saved = match (place.state, place.kind) {
        // Saved tokens change nothing in the long run, and hide the limit.
        (State::After, _) => 10.0,
        (_, 0) => 10.0,
        _ => 60.0,
    };
    let token_rate = TokenRate {
        tokens_per_minute: Some(tokens_a_minute(12.0, place)),
        burst_s: saved,
        headers,
        retry_after: headers,
        ..TokenRate::default()
    };
    server(steady(), Faults { token_rate: Some(token_rate), ..Faults::default() })
}

fn drifting(place: ServerInputs) -> SimConfig {
    let (limit, after, factor) = match place.kind {
        0 => (24, 14, 1.0),
        1 => (14, 24, 1.0),
        _ => (24, 24, 1.6),
    };
    let mut config = limited(if place.state == State::After { after } else { limit }, None);
    let slower = if place.state == State::After { factor } else { 1.0 };
    config.engine.step.base_ms *= slower;
    if place.state == State::Whole {
        config.faults.drift = Some(Drift {
            after_s: None,
            after_calls: Some(100 + (400.0 * place.random) as u64),
            factor,
            limit: Some(after),
        });
    }
    config
}

/// Returns a server with memory for 40 sequences of mean length. Sequences that are preempted have
/// to be computed again, which is expensive.
fn kv(place: ServerInputs) -> SimConfig {
    let step =
        StepCost { base_ms: 40.0, per_prompt_token_ms: 3.0, per_sequence_ms: 0.2, ..StepCost::default() };
    let mut config = server(step, Faults::default());
    config.engine.block_size = 4;
    // Long calls are over-represented among those in flight.
    config.engine.num_blocks = if place.spread == Spread::Wide { 485 } else { 410 };
    config.engine.max_num_seqs = 256;
    config.engine.max_num_batched_tokens = 2_048;
    config.engine.max_model_len = 1_024;
    config
}

/// Returns all scenarios.
pub(crate) fn all() -> Vec<Scenario> {
    let scenario = |name, binds, kinds, build| Scenario { name, binds, kinds, lengths: SHORT, build };
    use Binding::{Client, ConcurrencyLimit, KvCliff, Saturation, TokenRate as Tokens};
    vec![
        scenario("usl 35", Saturation, 1, |_| server(usl(35.0, 0.02), Faults::default())),
        scenario("usl 97", Saturation, 1, |_| server(usl(97.0, 0.01), Faults::default())),
        scenario("limit 10", ConcurrencyLimit, 1, |_| limited(10, None)),
        scenario("limit 10, Retry-After", ConcurrencyLimit, 1, |_| limited(10, Some(1.0))),
        scenario("limit 24", ConcurrencyLimit, 1, |_| limited(24, None)),
        scenario("limit 24, Retry-After", ConcurrencyLimit, 1, |_| limited(24, Some(1.0))),
        Scenario {
            lengths: Lengths { prompt: 16.0, output: 40.0 },
            ..scenario("kv cliff 40", KvCliff, 1, kv)
        },
        scenario("tokens a minute, headers", Tokens, 2, |place| rate(place, true)),
        scenario("tokens a minute, no headers", Tokens, 2, |place| rate(place, false)),
        // The load may only rise slowly, in front of a server that saturates.
        scenario("slow start", Saturation, 1, |_| {
            let growth = Some(LoadGrowth { at_once: 6, per_s: 1.0 });
            server(
                usl(35.0, 0.02),
                Faults { load_growth: growth, hide_limit_name: true, ..Faults::default() },
            )
        }),
        // Machines are added.
        scenario("limit that ramps", ConcurrencyLimit, 1, |place| {
            let mut config = limited(24, None);
            if place.state != State::After {
                let over_s = 30.0 + 30.0 * place.random;
                config.faults.limit_ramp = Some(LimitRamp { from: 6, over_s });
            }
            config
        }),
        // The server is slower for a while after an overload.
        scenario("hysteresis", Saturation, 1, |place| {
            let for_s = 20.0 + 40.0 * place.random;
            let overload = Some(Overload { above: 50, for_s, factor: 2.5, limit: None });
            server(usl(35.0, 0.02), Faults { overload, ..Faults::default() })
        }),
        // The limit is halved for a while after a rejection.
        scenario("hysteresis of a limit", ConcurrencyLimit, 1, |place| {
            let mut config = limited(24, None);
            let for_s = 5.0 + 25.0 * place.random;
            config.faults.overload = Some(Overload { above: 24, for_s, factor: 1.0, limit: Some(12) });
            config
        }),
        scenario("drift", ConcurrencyLimit, 3, drifting),
        scenario("client", Client, 1, |_| server(usl(97.0, 0.01), Faults::default())),
    ]
}
