//! Tokens as a line over the bytes of text: a share for each byte, and what is there before the first.

use super::COLD_RATIO;
use super::average::{KEEP, WARM, trust};

/// No tokenizer makes less of a byte, or more: one for each byte is the worst of those that fall back to bytes.
const RATIO: (f64, f64) = (1.0 / 64.0, 1.25);

/// The most tokens that a server adds to every prompt (templates, a preamble for tools) as far as is believed.
const MOST_ADDED: f64 = 4_096.0;

/// An observation further off than so many times, either way, counts as if it were just there.
const OFF: f64 = 4.0;

/// Bytes below which the scatter of a count no longer depends on the length.
const SHORT: f64 = 256.0;

/// How strongly the line is drawn to the origin, in prompts of a few hundred bytes: without, a handful of prompts of one length would have any slope.
const TO_THE_ORIGIN: f64 = 0.005;

/// A fit by weighted least squares that forgets. Weighed by 1 over the length, the counts it predicts add up to those observed.
///
/// Longer text never lowers a prediction: the slope is above zero, and what is added not below.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// Observations; and sums of the weights, of bytes, tokens, squares of bytes and their products, each weighed.
    sums: [f64; 6],
}

/// A line itself.
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
    /// So many bytes were so many tokens, where so many were `expected`.
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

    /// Its fit, in place of `belief` as far as it is known.
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
        // What is added is never less than nothing: then the line goes through the origin.
        let ratio = if slope * x <= y { slope } else { through_origin }.clamp(RATIO.0, RATIO.1);
        let added = ((y - ratio * x) / w).clamp(0.0, MOST_ADDED);
        Some(Fit { added, ratio })
    }
}
