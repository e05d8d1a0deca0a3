//! Forecast of how many tokens the answer of a call will have.

use std::fmt;
use std::sync::Arc;

use crate::saturate;
use tidegate_tokens::Output;

/// Maximum number of lengths in a forecast: enough to represent a heavy tail, and few enough to
/// iterate whenever memory use is calculated.
const POINTS: usize = 32;

/// Possible lengths of an answer in tokens, all equally likely, with a maximum.
///
/// Lengths that the answer has exceeded are ignored. If the answer has exceeded all of them, as
/// many more tokens are expected as it already has, as is typical of a heavy tail.
///
/// The default contains no lengths. Then the expected output of the call is its only possible
/// length.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    /// The possible lengths of the answer, in tokens, in ascending order.
    lengths: Arc<[u32]>,
    /// Upper bound on the lengths, in tokens. `None` if there is none.
    most: Option<u32>,
    /// Whether the answer arrives in one piece, so that its progress is not observed.
    pub(super) non_streaming: bool,
    /// Number of prompt tokens, if a better number than the estimate made on arrival is known,
    /// otherwise `None`.
    pub(super) input: Option<u64>,
    /// Creates the forecast that replaces this one at admission. `None` if this one is final.
    deferred: Option<Deferred>,
}

/// A function that creates a forecast when the call is admitted.
#[derive(Clone)]
struct Deferred(Arc<dyn Fn() -> Forecast + Send + Sync>);

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deferred")
    }
}

impl Forecast {
    /// Creates a forecast of exactly `tokens` output tokens.
    #[cfg(test)]
    pub(crate) fn exact(tokens: u64) -> Self {
        Self { lengths: Arc::new([saturate(tokens)]), ..Self::default() }
    }

    /// Creates a forecast that `make` computes when the call is admitted, because more is known at
    /// that time.
    pub fn deferred(make: impl Fn() -> Self + Send + Sync + 'static) -> Self {
        Self { deferred: Some(Deferred(Arc::new(make))), ..Self::default() }
    }

    /// Returns the forecast as known now: the result of the function given to
    /// [`Forecast::deferred`], otherwise `self`.
    pub fn resolve(self) -> Self {
        self.deferred.as_ref().map(|Deferred(make)| make()).unwrap_or(self)
    }

    /// Creates a forecast from equally likely lengths in tokens, in any order. More than 32 lengths
    /// are merged into the means of 32 groups.
    pub fn from_lengths(lengths: impl IntoIterator<Item = u64>) -> Self {
        let mut lengths: Vec<u32> = lengths.into_iter().map(saturate).collect();
        lengths.sort_unstable();
        if lengths.len() > POINTS {
            let count = lengths.len();
            lengths = (0..POINTS)
                .filter_map(|group| mean(lengths.get(group * count / POINTS..(group + 1) * count / POINTS)?))
                .collect();
        }
        Self { lengths: lengths.into(), ..Self::default() }
    }

    /// Limits all lengths to `most` tokens. `None` sets no limit.
    #[must_use]
    pub(crate) fn at_most(mut self, most: Option<u64>) -> Self {
        if let Some(most) = most.map(saturate) {
            self.most = Some(self.most.map_or(most, |before| before.min(most)));
        }
        self
    }

    /// Marks the answer as arriving in one piece. Its progress is not observed, so its whole length
    /// counts from the start.
    #[must_use]
    pub fn non_streaming(mut self) -> Self {
        self.non_streaming = true;
        self
    }

    /// Sets the number of prompt tokens, which replaces the estimate made when the call arrived.
    #[must_use]
    pub fn with_input(mut self, tokens: u64) -> Self {
        self.input = Some(tokens);
        self
    }

    /// Returns `true` if the forecast contains no lengths.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns the mean length in tokens. 0 if the forecast contains no lengths.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.lengths.iter().map(|length| f64::from(self.bounded(*length))).sum();
        sum / (self.lengths.len().max(1)) as f64
    }

    /// Returns this forecast. If it contains no lengths, `tokens` becomes its single length.
    pub(super) fn or_exact(mut self, tokens: u64) -> Self {
        if self.is_empty() {
            self.lengths = Arc::new([saturate(tokens)]);
        }
        self
    }

    /// Returns, for an answer of `produced` tokens, the tokens still to come under each possible
    /// length, the largest first. There is at least one value, and each is at least 1.
    pub(super) fn remaining(&self, produced: u64) -> impl Iterator<Item = u32> + Clone {
        let produced = saturate(produced);
        let outgrown = self.lengths.partition_point(|length| self.bounded(*length) <= produced);
        let left = self.lengths.get(outgrown..).unwrap_or_default();
        // The answer has exceeded all lengths: as many tokens again are expected, but no more than
        // the maximum allows.
        let beyond = self.bounded(produced.saturating_mul(2)).saturating_sub(produced).max(1);
        let beyond = left.is_empty().then_some(beyond);
        left.iter().rev().map(move |length| self.bounded(*length) - produced).chain(beyond)
    }

    fn bounded(&self, length: u32) -> u32 {
        length.min(self.most.unwrap_or(u32::MAX))
    }
}

/// Creates a forecast from the medians of 32 equally likely parts of the learned distribution,
/// limited to its maximum.
impl From<&Output> for Forecast {
    fn from(output: &Output) -> Self {
        let middle = |part: usize| (part as f64 + 0.5) / POINTS as f64;
        Self::from_lengths((0..POINTS).map(|part| output.quantile(middle(part)))).at_most(output.max())
    }
}

/// Returns the mean of a group of lengths, rounded down. `None` if the group is empty.
fn mean(group: &[u32]) -> Option<u32> {
    let sum: u64 = group.iter().copied().map(u64::from).sum();
    u32::try_from(sum.checked_div(group.len() as u64)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(forecast: &Forecast, produced: u64) -> Vec<u32> {
        forecast.remaining(produced).collect()
    }

    #[test]
    fn exceeded_lengths_are_dropped() {
        let forecast = Forecast::from_lengths([30, 10, 20]);
        assert_eq!(left(&forecast, 0), [30, 20, 10]);
        assert_eq!(left(&forecast, 10), [20, 10]);
        assert_eq!(left(&forecast, 29), [1]);
        // As much again.
        assert_eq!(left(&forecast, 30), [30]);
        assert_eq!(left(&forecast, 100), [100]);
    }

    #[test]
    fn forecast_is_bounded_by_max_tokens() {
        let forecast = Forecast::from_lengths([10, 500]).at_most(Some(100)).at_most(None).at_most(Some(200));
        assert_eq!(left(&forecast, 0), [100, 10]);
        assert_eq!(left(&forecast, 99), [1]);
        // A server that goes past the maximum all the same.
        assert_eq!(left(&forecast, 300), [1]);
        assert_eq!(forecast.mean(), 55.0);
    }

    #[test]
    fn unknown_length_is_at_least_one_token() {
        assert!(Forecast::default().is_empty());
        assert_eq!(left(&Forecast::default(), 0), [1]);
        assert_eq!(Forecast::default().mean(), 0.0);
        assert_eq!(left(&Forecast::exact(u64::MAX), 5), [u32::MAX - 5]);
        assert_eq!(left(&Forecast::exact(1), u64::MAX), [1]);
    }

    #[test]
    fn merged_lengths_keep_their_mean() {
        let forecast = Forecast::from_lengths(1..=3200);
        assert_eq!(forecast.remaining(0).count(), POINTS);
        assert!((forecast.mean() - 1600.5).abs() <= 1.0, "{}", forecast.mean());
    }
}
