//! Tokens as a linear function of the bytes of text.

use super::COLD_RATIO;
use super::average::{KEEP, WARM, trust};

/// Minimum and maximum tokens per byte of any tokenizer: one per byte is the worst case of those
/// that fall back to bytes.
const RATIO: (f64, f64) = (1.0 / 64.0, 1.25);

/// Maximum number of tokens that a server adds to each prompt (templates, a preamble for tools).
const MOST_ADDED: f64 = 4_096.0;

/// Factor beyond which an observation is clamped.
const OFF: f64 = 4.0;

/// Length in bytes below which the variance of a count no longer depends on the length.
const SHORT: f64 = 256.0;

/// Strength of the pull towards the origin, in prompts of a few hundred bytes. Without it, a few
/// prompts of equal length would allow any slope.
const TO_THE_ORIGIN: f64 = 0.005;

/// A weighted least-squares fit with exponential forgetting. With weights of 1 over the length,
/// predicted and observed counts have equal sums.
///
/// Longer text never lowers a prediction: the slope is positive and the intercept is not negative.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// Number of observations, and the weighted sums of weights, bytes, tokens, squared bytes and
    /// products.
    sums: [f64; 6],
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    pub(super) added: f64,
    pub(super) ratio: f64,
}

impl Fit {
    pub(super) const COLD: Self = Self { added: 0.0, ratio: COLD_RATIO };

    pub(super) fn at(&self, bytes: f64) -> f64 {
        self.added + self.ratio * bytes
    }
}

impl Line {
    /// Records that `bytes` bytes were `tokens` tokens, where `expected` tokens were predicted.
    pub(super) fn learn(&mut self, bytes: f64, tokens: f64, expected: f64) {
        let most = bytes * RATIO.1 + MOST_ADDED;
        let mut tokens = tokens.clamp(0.0, most);
        if self.seen() >= WARM {
            tokens = tokens.clamp(expected / OFF, expected * OFF + 16.0);
        }
        let weight = 1.0 / (bytes + SHORT);
        let terms =
            [1.0, weight, weight * bytes, weight * tokens, weight * bytes * bytes, weight * bytes * tokens];
        for (sum, term) in self.sums.iter_mut().zip(terms) {
            *sum = *sum * KEEP + term;
        }
    }

    pub(super) fn seen(&self) -> f64 {
        self.sums[0]
    }

    /// Returns the fit, mixed with `belief` according to the number of observations.
    pub(super) fn instead_of(&self, belief: Fit, topmost: bool) -> Fit {
        let Some(own) = self.fit() else { return belief };
        let trust = trust(self.seen(), topmost);
        let mix = |own: f64, belief: f64| trust * own + (1.0 - trust) * belief;
        Fit { added: mix(own.added, belief.added), ratio: mix(own.ratio, belief.ratio) }
    }

    fn fit(&self) -> Option<Fit> {
        let [_, w, x, y, xx, xy] = self.sums;
        let w = w + TO_THE_ORIGIN;
        let spread = w * xx - x * x;
        if xx <= 0.0 || spread <= 0.0 {
            return None;
        }
        let slope = (w * xy - x * y) / spread;
        let through_origin = xy / xx;
        // The intercept is never negative: the line then goes through the origin.
        let ratio = if slope * x <= y { slope } else { through_origin }.clamp(RATIO.0, RATIO.1);
        let added = ((y - ratio * x) / w).clamp(0.0, MOST_ADDED);
        Some(Fit { added, ratio })
    }
}
