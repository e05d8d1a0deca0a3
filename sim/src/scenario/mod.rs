//! Calibration: the post on per-tenant caps, played on the engines in pure virtual time.
//!
//! The post ("Per-Tenant Concurrency Caps", third of a series on vLLM on EKS) has two workers, prompts of 512
//! tokens, answers of 128, and three runs. The constants of [`SimConfig::calibrated`](crate::SimConfig::calibrated) were
//! chosen on runs 1 (A and C alone) and 2 (B bursts, no caps). **Run 3, with caps, took no part in the
//! choice**: it is a prediction, made elsewhere, through the real client.
//!
//! # Which constant came from which figure
//!
//! | constant | value | from |
//! |---|---|---|
//! | `base_ms` | 47 | run 1's decode, 61 ms a token: a step costs 47 + .2 * 12 sequences, and about a fifth of the time goes to prompts |
//! | `per_prompt_token_ms` | .27 | run 2's p99 TTFT, 32.4 to 34.3 s: the burst's 230,000 prompt tokens take 31 s on two workers; and run 1's TTFT of about 200 ms, which is one step with a prompt in it behind the rest of another |
//! | `per_sequence_ms` | .2 | run 2's decode: A's and C's 131 and 134 ms beside B's 267 |
//! | `num_blocks` | 5,625 (90,000 tokens) | run 2's peaks (126, 73) and decode of A and C: who arrives while the cache is full waits, and decodes in steps that are as long as the cache is large. The post's plot shows the cache at 100 % |
//! | `max_num_seqs` | 256 | vLLM's usual figure; the cache holds about 140 to 175 of these sequences, so that it never binds and is not identified |
//! | `max_num_batched_tokens` | 2,048 | vLLM's default; not fitted |
//! | `block_size` | 16 | vLLM's default; not fitted |
//!
//! The four fitted ones were chosen from two grids, a coarse and a fine one (44-50, .25-.29, .15-.5,
//! 84,000-114,000), by the sum of squared logarithms of the ratios, each over its bar, with paced arrivals,
//! on up to five of the seeds 1 to 10 set aside for it. The table is for seeds 11 to 30, paced arrivals,
//! median over the seeds (`cargo run -p tidegate-sim --example calibration`, which prints the ranges and
//! Poisson arrivals as well):
//!
//! | run | tenant | median TTFT, post / model | p99 TTFT | decode | peak in flight |
//! |---|---|---|---|---|---|
//! | 1 | A | 195 / 211 ms | 263 / 236 ms | 61 / 61 ms | |
//! | 1 | C | 187 / 211 ms | 230 / 236 ms | 61 / 61 ms | |
//! | 2 | A | 1.3 / 5.4 s | 33.2 / 33.7 s | 131 / 140 ms | 126 / 122 |
//! | 2 | B | 5.5 / 12.1 s | 34.3 / 34.2 s | 267 / 249 ms | 450 / 450 |
//! | 2 | C | 6.1 / 5.4 s | 32.4 / 33.6 s | 134 / 140 ms | 73 / 61 |
//!
//! # Assumptions
//!
//! - B's burst is 450 calls at 30 a second, 15 s of them. The post says about 30 s, but counts 450 calls; at
//!   15 a second over 30 s no point of the grid came as near. It begins at 30 s; from 5 to 50 s the figures
//!   hardly differ, from 60 s on too few of A's and C's calls come after it.
//! - Arrivals are paced. With Poisson arrivals run 1's p99 TTFT is 340 to 350 ms and more (two prompts in one
//!   step), which the post did not see; run 2 differs little, but its medians spread over seconds from seed
//!   to seed.
//! - The gateway adds nothing: a constant of 20 ms moved the fit's score by a few hundredths either way, and
//!   is left out.
//!
//! # What remains off, and why we think so
//!
//! - **Run 2's median TTFTs of A and B** (4.2 and 2.2 times the post's). In one queue, first come first
//!   served, A and C wait alike when paced alike; the post has A at 1.3 s and C at 6.1 s. About half of A's
//!   calls meet the burst, so that A's median lies on the edge between 0.3 and 10 s and moves by seconds with
//!   the time of the burst. B's 5.5 s beside the same p99 would need arrivals that come slower at first, for
//!   instance from a load generator that falls behind its rate.
//! - **C's peak in run 2** (61 for 73). C sends one a second; 73 in flight means that one call took more than
//!   70 s, longer than any TTFT plus decode that the post reports. With Poisson arrivals some seeds reach 72.
//! - **A's p99 in run 1** (236 for 263): 120 calls, so that it is the second worst; some jitter of gateway
//!   and network is not modelled.
//! - The post reads its slow decode as preemption. In the model the cache is as full as there, with some 80
//!   preemptions; most of the slowness is prompts of the burst computed in the same steps (chunked
//!   prefill), 550 ms for a full step.

mod arrivals;
mod calibration;
mod noisy_neighbour;
mod summary;

pub use self::arrivals::Arrivals;
pub use self::calibration::{CalibrationFigure, CalibrationMetric, calibration};
pub use self::noisy_neighbour::{
    OUTPUT_TOKENS, PROMPT_TOKENS, Run, RunReport, TenantTraffic, noisy_neighbour,
};
pub use self::summary::{CallSummary, CallTiming, quantile, summarise};
