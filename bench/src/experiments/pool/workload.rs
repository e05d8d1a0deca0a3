//! The workloads of `pool`: calls and the prefixes that their prompts share.

use std::f64::consts::TAU;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tidegate::policy::placement::Affinity;
use tidegate::protocol::request::CHUNK;

use crate::Fallible;
use crate::traces::mooncake;

/// Bytes of text per token.
const TOKEN_BYTES: u32 = 4;
/// Tokens of text per prefix hash of a client.
const CHUNK_TOKENS: u32 = CHUNK as u32 / TOKEN_BYTES;

/// A call: its time, lengths, and hashes of its text.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) at: Duration,
    /// Prompt tokens.
    pub(crate) input: u32,
    /// Answer tokens.
    pub(crate) output: u32,
    /// Hashes of the full blocks of the prompt, which engines use for their caches. In generated
    /// conversations, the hashes of the answer's blocks follow.
    pub(crate) blocks: Arc<[u64]>,
    /// Prefix hashes of the prompt, as in [`Affinity::prefixes`]. Clients use them to choose a
    /// replica.
    pub(crate) prefixes: Arc<[u64]>,
    /// The session that the call belongs to.
    pub(crate) session: u64,
}

/// The source of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Mooncake's trace: twenty minutes of long prompts.
    Mooncake,
    /// Generated conversations of several turns, after system prompts of which a few are popular.
    Sessions,
}

impl Workload {
    pub(crate) const ALL: [Self; 2] = [Self::Mooncake, Self::Sessions];

    /// Returns the name of the workload in figures and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mooncake => "mooncake",
            Self::Sessions => "sessions",
        }
    }

    /// Returns the tokens per block: 512 in Mooncake's trace, and 128 in conversations, whose turns
    /// are short.
    pub(crate) fn block_size(self) -> u32 {
        match self {
            Self::Mooncake => 512,
            Self::Sessions => 128,
        }
    }

    /// Draws the calls of a seed in order of time. They arrive `speed` times as fast as recorded or
    /// generated.
    pub(crate) fn draw(self, seed: u64, speed: f64) -> Fallible<Vec<Call>> {
        let mut rng = Rng::with_seed(seed);
        let mut calls = match self {
            Self::Mooncake => traced(&mut rng)?,
            Self::Sessions => conversations(&mut rng),
        };
        for call in &mut calls {
            call.at = call.at.div_f64(speed);
        }
        calls.sort_by_key(|call| call.at);
        Ok(calls)
    }
}

/// Returns the calls of the trace, each delayed by up to two seconds. Without the delays, seeds
/// would only differ in the assignment of calls to clients.
fn traced(rng: &mut Rng) -> Fallible<Vec<Call>> {
    let calls = mooncake()?.into_iter().map(|traced| {
        // The last block is not full, and the engine does not share partial blocks.
        let full = (traced.input / 512) as usize;
        let ids: Vec<u64> = traced.blocks.iter().map(|id| mixed(*id, 0)).collect();
        Call {
            at: Duration::from_secs_f64(traced.at + 2.0 * rng.f64()),
            input: traced.input,
            output: traced.output,
            prefixes: prefixes(&ids, 512, traced.input),
            // The prompt's beginning is the only hint at its session.
            session: ids.first().copied().unwrap_or_default(),
            blocks: ids.get(..full).unwrap_or_default().into(),
        }
    });
    Ok(calls.collect())
}

/// Returns a hash of `id` and `salt`.
fn mixed(id: u64, salt: u64) -> u64 {
    let mut x = (id ^ salt.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns the prefix hashes that a client computes of a prompt with these blocks, one per
/// [`CHUNK_TOKENS`] of its text.
fn prefixes(blocks: &[u64], block_size: u32, input: u32) -> Arc<[u64]> {
    let whole = input / CHUNK_TOKENS;
    let of = |chunk: u32| {
        let last = ((chunk + 1) * CHUNK_TOKENS - 1) / block_size;
        let block = blocks.get(last as usize)?;
        Some(mixed(*block, u64::from(chunk) + 1))
    };
    Affinity::from_hashes(None, (0..whole).map_while(of)).prefixes
}

const SESSIONS: usize = 900;
const APPS: usize = 60;
/// The time in seconds during which sessions begin.
const OVER_S: f64 = 900.0;

/// Generates conversations. Sessions begin at random times, and a turn does not wait for the answer
/// of the turn before, so that all choosers get the same calls.
fn conversations(rng: &mut Rng) -> Vec<Call> {
    let size = Workload::Sessions.block_size();
    let apps: Vec<u32> = (0..APPS).map(|_| lognormal(rng, 1_800.0, 0.7, 300, 12_000)).collect();
    let shares: Vec<f64> = (0..APPS).map(|rank| 1.0 / (rank + 1) as f64).collect();
    let mut calls = Vec::new();
    for _ in 0..SESSIONS {
        let app = pick(rng, &shares);
        let salt = rng.u64(..);
        let system = apps.get(app).copied().unwrap_or_default();
        let mut at = OVER_S * rng.f64();
        let mut history = system;
        loop {
            // One message in ten contains a document.
            let document = if rng.f64() < 0.1 { lognormal(rng, 5_000.0, 0.8, 500, 40_000) } else { 0 };
            let input = history + document + lognormal(rng, 120.0, 1.0, 8, 4_000);
            let output = lognormal(rng, 180.0, 0.9, 4, 1_500);
            let blocks: Vec<u64> = (0..(input + output).div_ceil(size))
                .map(|place| {
                    // A block that ends within the system prompt belongs to the application.
                    let shared = (place + 1) * size <= system;
                    mixed(u64::from(place) + 1, if shared { app as u64 + 1 } else { salt })
                })
                .collect();
            let full = ((input + output) / size) as usize;
            calls.push(Call {
                at: Duration::from_secs_f64(at),
                input,
                output,
                prefixes: prefixes(&blocks, size, input),
                blocks: blocks.get(..full).unwrap_or_default().into(),
                session: salt,
            });
            history = input + output;
            if rng.f64() < 0.18 || history > 100_000 {
                break;
            }
            at += 4.0 + 0.02 * f64::from(output) - 15.0 * (1.0 - rng.f64()).ln();
        }
    }
    calls
}

fn pick(rng: &mut Rng, shares: &[f64]) -> usize {
    let mut left = rng.f64() * shares.iter().sum::<f64>();
    shares
        .iter()
        .position(|share| {
            left -= share;
            left <= 0.0
        })
        .unwrap_or_default()
}

fn lognormal(rng: &mut Rng, median: f64, sigma: f64, least: u32, most: u32) -> u32 {
    let normal = (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (TAU * rng.f64()).cos();
    ((median * (sigma * normal).exp()) as u32).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_begins_with_the_previous_turn_and_its_answer() {
        let calls = Workload::Sessions.draw(1, 1.0).unwrap();
        let first = &calls[0];
        let turns: Vec<&Call> = calls.iter().filter(|call| call.session == first.session).collect();
        assert!(calls.windows(2).all(|pair| pair[0].at <= pair[1].at));
        for pair in turns.windows(2) {
            assert!(pair[1].blocks.starts_with(&pair[0].blocks), "answer included");
            assert!(pair[1].prefixes.starts_with(&pair[0].prefixes));
        }
        let others = calls.iter().filter(|call| call.session != first.session);
        let alike = others.filter(|call| call.prefixes.first() == first.prefixes.first()).count();
        assert!(alike > 0, "system prompts are shared");
        assert_eq!(first.prefixes.len(), (first.input / CHUNK_TOKENS).min(64) as usize);
    }

    #[test]
    fn speed_changes_only_times() {
        let [slow, fast] = [1.0, 2.0].map(|speed| Workload::Sessions.draw(7, speed).unwrap());
        assert!(slow.iter().zip(&fast).all(|(slow, fast)| slow.blocks == fast.blocks
            && slow.at.abs_diff(fast.at * 2) < Duration::from_micros(1)));
    }
}
