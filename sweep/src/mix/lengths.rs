//! Distribution of prompt and answer lengths.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::normal_distribution;

/// Distribution of lengths in tokens: log-normal, or constant if `spread` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lengths {
    /// Mean length in tokens, 1 to 1,000,000.
    pub mean: u64,
    /// Standard deviation divided by the mean, 0 to 3. Default 0.
    #[serde(default)]
    pub spread: f64,
}

impl Lengths {
    pub(super) fn check(&self, what: &str) -> Result<(), String> {
        if !(1..=1_000_000).contains(&self.mean) {
            return Err(format!("--{what}-tokens: must be 1 to 1000000; got {}", self.mean));
        }
        if !(0.0..=3.0).contains(&self.spread) {
            return Err(format!("--spread: must be 0 to 3; got {}", self.spread));
        }
        Ok(())
    }

    /// Returns a random length in tokens, from 1 to eight times the mean. The upper bound limits
    /// the cost of a call.
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        if self.spread == 0.0 {
            return self.mean;
        }
        let variance = (1.0 + self.spread * self.spread).ln();
        let mean = self.mean as f64;
        let drawn = (mean.ln() - variance / 2.0 + variance.sqrt() * normal_distribution::draw(rng)).exp();
        // Finite and positive; the cast saturates.
        (drawn.round() as u64).clamp(1, self.mean.saturating_mul(8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_mean_and_spread() {
        let lengths = Lengths { mean: 500, spread: 0.5 };
        let mut rng = Rng::with_seed(1);
        let drawn: Vec<f64> = (0..20_000).map(|_| lengths.draw(&mut rng) as f64).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let deviation = (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64).sqrt();
        assert!((mean - 500.0).abs() < 10.0 && (deviation / mean - 0.5).abs() < 0.03, "{mean} {deviation}");
        assert_eq!(Lengths { mean: 7, spread: 0.0 }.draw(&mut rng), 7);
    }
}
