//! Draws the calls that sweeps and peers make.

use std::sync::Arc;

use fastrand::Rng;
use http::Request;
use tidegate::{Lane, RequestBody};

use crate::trace_lengths::Work;

/// How call lengths vary around their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Spread {
    /// Uniformly, by up to a quarter of the mean.
    Narrow,
    /// Many short calls, and some of about three times the mean.
    Wide,
}

/// The mean lengths of the calls of a scenario, in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lengths {
    pub(crate) prompt: f64,
    pub(crate) output: f64,
}

/// The number of different calls that are drawn. A run repeats them.
const DIFFERENT: usize = 400;

/// Draws the calls of a seed independently of one another.
pub(crate) fn draw(lengths: Lengths, spread: Spread, seed: u64) -> Arc<[Work]> {
    drawn(lengths, spread, seed, |rng, _| rng.f64())
}

/// Draws the calls of a seed so that their mean is that of the distribution: each quantile once, in
/// random order. Used to measure the truth (the best cap of a server).
pub(crate) fn draw_evenly(lengths: Lengths, spread: Spread, seed: u64) -> Arc<[Work]> {
    drawn(lengths, spread, seed, |rng, place| (place as f64 + rng.f64()) / DIFFERENT as f64)
}

fn drawn(lengths: Lengths, spread: Spread, seed: u64, quantile: fn(&mut Rng, usize) -> f64) -> Arc<[Work]> {
    let mut rng = Rng::with_seed(seed ^ 0x5eed);
    let mut column = |mean: f64| {
        let length = |rng: &mut Rng, place| (mean * spread.at(quantile(rng, place))).round().max(1.0) as u32;
        let mut drawn: Vec<u32> = (0..DIFFERENT).map(|place| length(&mut rng, place)).collect();
        rng.shuffle(&mut drawn);
        drawn
    };
    let (prompts, outputs) = (column(lengths.prompt), column(lengths.output));
    prompts.into_iter().zip(outputs).map(|(prompt, output)| Work { prompt, output }).collect()
}

/// Returns the request of a call. If `streams` is `true`, the answer is streamed, which has no
/// effect on the server's work.
pub(crate) fn request(work: Work, streams: bool) -> Request<RequestBody> {
    work.ask("sweep", Lane::Standard, work.output, streams)
}

impl Spread {
    /// Returns the name that `oracle.json` uses for this spread.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Spread::Narrow => "narrow",
            Spread::Wide => "wide",
        }
    }

    /// Returns the length at the given quantile (from 0 to 1), divided by the mean length.
    fn at(self, quantile: f64) -> f64 {
        match self {
            Spread::Narrow => 0.75 + 0.5 * quantile,
            // Exponential above .4.
            Spread::Wide => (0.4 - 0.6 * (1.0 - quantile).max(1e-9).ln()).min(3.2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenly_drawn_lengths_have_the_same_mean_for_each_seed() {
        let lengths = Lengths { prompt: 200.0, output: 16.0 };
        for spread in [Spread::Narrow, Spread::Wide] {
            for seed in 0..20 {
                let drawn = draw_evenly(lengths, spread, seed);
                let mean = |of: fn(&Work) -> u32| drawn.iter().map(|w| f64::from(of(w))).sum::<f64>() / 400.0;
                assert!((mean(|w| w.output) / 16.0 - 1.0).abs() < 0.02, "{spread:?} {seed}");
                assert!((mean(|w| w.prompt) / 200.0 - 1.0).abs() < 0.02, "{spread:?} {seed}");
            }
        }
    }
}
