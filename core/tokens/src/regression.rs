//! The tokens of a text as a linear function of its bytes.

use super::COLD_RATIO;
use super::weighted_average::{DECAY, WARM_COUNT, own_weight};

/// The minimum and the maximum of the learned tokens per byte of text. A tokenizer that falls back
/// to bytes produces at most one token per byte, and the maximum allows a quarter more.
const RATIO_RANGE: (f64, f64) = (1.0 / 64.0, 1.25);

/// The maximum tokens that a server may add to each prompt, for example by a template or a preamble
/// for tools.
const MAX_INTERCEPT: f64 = 4_096.0;

/// The maximum factor between observed and expected tokens. Larger deviations are learned as this
/// factor.
const MAX_DEVIATION: f64 = 4.0;

/// The length in bytes that is added to each text when its weight (1 / length) is computed, so that
/// short texts do not dominate.
const SHORT_TEXT: f64 = 256.0;

/// The weight of an artificial observation of 0 tokens for 0 bytes. It determines the slope if all
/// observed texts have the same length.
const ORIGIN_WEIGHT: f64 = 0.005;

/// A weighted least-squares fit of tokens over bytes. Each observation multiplies the weight of the
/// older ones by [`DECAY`].
///
/// Observations are weighted by 1 over their length, so predicted and observed tokens have equal
/// sums. The slope is positive and the intercept is not negative, so a longer text never has a
/// lower prediction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Regression {
    /// The number of observations, and the sums over them of weight, weight × bytes, weight ×
    /// tokens, weight × bytes², and weight × bytes × tokens.
    sums: [f64; 6],
}

/// A linear function from the bytes of a text to its tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    /// The tokens that are added to each text.
    pub(super) intercept: f64,
    /// The tokens per byte.
    pub(super) ratio: f64,
}

impl Line {
    /// The function used before the first observation.
    pub(super) const COLD: Self = Self { intercept: 0.0, ratio: COLD_RATIO };

    /// Returns the predicted tokens of a text.
    pub(super) fn tokens(&self, bytes: f64) -> f64 {
        self.intercept + self.ratio * bytes
    }
}

impl Regression {
    /// Adds the observation that a text of `bytes` bytes had `tokens` tokens. `expected` is the
    /// number of tokens that was predicted before this observation.
    pub(super) fn learn(&mut self, bytes: f64, tokens: f64, expected: f64) {
        let max_tokens = bytes * RATIO_RANGE.1 + MAX_INTERCEPT;
        let mut tokens = tokens.clamp(0.0, max_tokens);
        if self.count() >= WARM_COUNT {
            tokens = tokens.clamp(expected / MAX_DEVIATION, expected * MAX_DEVIATION + 16.0);
        }
        let weight = 1.0 / (bytes + SHORT_TEXT);
        let terms =
            [1.0, weight, weight * bytes, weight * tokens, weight * bytes * bytes, weight * bytes * tokens];
        for (sum, term) in self.sums.iter_mut().zip(terms) {
            *sum = *sum * DECAY + term;
        }
    }

    /// Returns the number of observations, each multiplied by [`DECAY`] for each later one.
    fn count(&self) -> f64 {
        self.sums[0]
    }

    /// Returns the weighted mean of the fit and of `prior`; see [`own_weight`]. Returns `prior` if
    /// there is no fit.
    pub(super) fn blended_with(&self, prior: Line, prior_is_cold: bool) -> Line {
        let Some(own) = self.fit() else { return prior };
        let own_weight = own_weight(self.count(), prior_is_cold);
        let mix = |own: f64, prior: f64| own_weight * own + (1.0 - own_weight) * prior;
        Line { intercept: mix(own.intercept, prior.intercept), ratio: mix(own.ratio, prior.ratio) }
    }

    /// Returns the fit, or `None` without an observation of a text that is not empty.
    fn fit(&self) -> Option<Line> {
        let [_, w, x, y, xx, xy] = self.sums;
        let w = w + ORIGIN_WEIGHT;
        let spread = w * xx - x * x;
        if xx <= 0.0 || spread <= 0.0 {
            return None;
        }
        let slope = (w * xy - x * y) / spread;
        let through_origin = xy / xx;
        // If the intercept would be negative, the line goes through the origin instead.
        let ratio = if slope * x <= y { slope } else { through_origin }.clamp(RATIO_RANGE.0, RATIO_RANGE.1);
        let intercept = ((y - ratio * x) / w).clamp(0.0, MAX_INTERCEPT);
        Some(Line { intercept, ratio })
    }
}
