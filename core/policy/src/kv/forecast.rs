//! Forecast of the length of an answer.

use std::sync::Arc;

use tidegate_tokens::Output;

/// Maximum number of lengths kept: enough for the shape of a heavy tail, and few enough to iterate
/// at each survey.
const POINTS: usize = 32;

/// Possible lengths of an answer in tokens, all equally likely, and a maximum.
///
/// Lengths that an answer has exceeded are dropped where the forecast is used. An answer that has
/// exceeded all of them is expected to produce as much again, as answers with a heavy tail do.
///
/// The default knows nothing, and the call's expected output then counts as certain.
#[derive(Clone, Default)]
pub struct Forecast {
    /// Ascending lengths, shared by all calls with the same forecast.
    lengths: Arc<[u32]>,
    most: Option<u32>,
    in_one_piece: bool,
    /// Prompt tokens, if known better than when the call arrived.
    input: Option<u64>,
    /// Creates the forecast when it is needed.
    later: Option<Arc<dyn Fn() -> Forecast + Send + Sync>>,
}

impl Forecast {
    /// Creates a forecast of exactly `tokens` tokens.
    pub fn exact(tokens: u64) -> Self {
        Self { lengths: Arc::new([small(tokens)]), ..Self::default() }
    }

    /// Creates a forecast that `make` computes when the call is admitted, because more is known
    /// then than when the call arrived.
    pub fn later(make: impl Fn() -> Self + Send + Sync + 'static) -> Self {
        Self { later: Some(Arc::new(make)), ..Self::default() }
    }

    /// Returns the forecast as it is known now.
    pub fn now(self) -> Self {
        match &self.later {
            Some(make) => make(),
            None => self,
        }
    }

    /// Creates a forecast of equally likely lengths, in any order. More than 32 lengths are merged
    /// into the means of 32 groups.
    pub fn of(lengths: impl IntoIterator<Item = u64>) -> Self {
        let mut lengths: Vec<u32> = lengths.into_iter().map(small).collect();
        lengths.sort_unstable();
        if lengths.len() > POINTS {
            let count = lengths.len();
            lengths = (0..POINTS)
                .filter_map(|group| mean(lengths.get(group * count / POINTS..(group + 1) * count / POINTS)?))
                .collect();
        }
        Self { lengths: lengths.into(), ..Self::default() }
    }

    /// Limits the forecast to `most` tokens. `None` changes nothing.
    #[must_use]
    pub fn at_most(mut self, most: Option<u64>) -> Self {
        if let Some(most) = most.map(small) {
            self.most = Some(self.most.map_or(most, |before| before.min(most)));
        }
        self
    }

    /// Marks the answer as arriving in one piece: its progress is never observed, so it counts in
    /// full from the start.
    #[must_use]
    pub fn in_one_piece(mut self) -> Self {
        self.in_one_piece = true;
        self
    }

    /// Sets the number of prompt tokens, replacing the estimate made when the call arrived.
    #[must_use]
    pub fn of_input(mut self, tokens: u64) -> Self {
        self.input = Some(tokens);
        self
    }

    pub(super) fn input(&self) -> Option<u64> {
        self.input
    }

    /// Returns `true` if nothing is known.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns the mean length in tokens, or zero if nothing is known.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.lengths.iter().map(|length| f64::from(self.bounded(*length))).sum();
        sum / (self.lengths.len().max(1)) as f64
    }

    /// Returns the forecast, or one of exactly `tokens` if nothing is known.
    pub(super) fn or_exactly(mut self, tokens: u64) -> Self {
        if self.is_empty() {
            self.lengths = Arc::new([small(tokens)]);
        }
        self
    }

    pub(super) fn comes_in_one_piece(&self) -> bool {
        self.in_one_piece
    }

    /// Returns the lengths that are still possible for an answer of `produced` tokens. There is at
    /// least one.
    pub(super) fn remaining(&self, produced: u64) -> Remaining<'_> {
        let produced = small(produced);
        let outgrown = self.lengths.partition_point(|length| self.bounded(*length) <= produced);
        let left = self.lengths.get(outgrown..).unwrap_or_default();
        // The answer has exceeded all lengths: as much again, or the little that is allowed.
        let beyond = self.bounded(produced.saturating_mul(2)).saturating_sub(produced).max(1);
        Remaining { left, produced, most: self.most.unwrap_or(u32::MAX), beyond }
    }

    fn bounded(&self, length: u32) -> u32 {
        length.min(self.most.unwrap_or(u32::MAX))
    }
}

impl std::fmt::Debug for Forecast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forecast")
            .field("lengths", &self.lengths)
            .field("most", &self.most)
            .field("in_one_piece", &self.in_one_piece)
            .field("input", &self.input)
            .field("later", &self.later.is_some())
            .finish()
    }
}

/// Takes the middles of 32 equally likely parts of the learned distribution.
impl From<&Output> for Forecast {
    fn from(output: &Output) -> Self {
        let middle = |part: usize| (part as f64 + 0.5) / POINTS as f64;
        Self::of((0..POINTS).map(|part| output.quantile(middle(part)))).at_most(output.max())
    }
}

/// The tokens that the possible lengths leave to come. See [`Forecast::remaining`].
pub(super) struct Remaining<'a> {
    left: &'a [u32],
    produced: u32,
    most: u32,
    beyond: u32,
}

impl Remaining<'_> {
    /// Returns the number of possible lengths.
    pub(super) fn count(&self) -> usize {
        self.left.len().max(1)
    }

    /// Returns the tokens that each length leaves to come, the longest first.
    pub(super) fn descending(&self) -> impl Iterator<Item = u32> + '_ {
        let beyond = self.left.is_empty().then_some(self.beyond);
        self.left.iter().rev().map(|length| (*length).min(self.most) - self.produced).chain(beyond)
    }
}

fn mean(group: &[u32]) -> Option<u32> {
    let sum: u64 = group.iter().copied().map(u64::from).sum();
    u32::try_from(sum.checked_div(group.len() as u64)?).ok()
}

fn small(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(forecast: &Forecast, produced: u64) -> Vec<u32> {
        forecast.remaining(produced).descending().collect()
    }

    #[test]
    fn exceeded_lengths_are_dropped() {
        let forecast = Forecast::of([30, 10, 20]);
        assert_eq!(left(&forecast, 0), [30, 20, 10]);
        assert_eq!(left(&forecast, 10), [20, 10]);
        assert_eq!(left(&forecast, 29), [1]);
        // As much again.
        assert_eq!(left(&forecast, 30), [30]);
        assert_eq!(left(&forecast, 100), [100]);
    }

    #[test]
    fn forecast_is_bounded_by_max_tokens() {
        let forecast = Forecast::of([10, 500]).at_most(Some(100)).at_most(None).at_most(Some(200));
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
        let forecast = Forecast::of(1..=3200);
        assert_eq!(forecast.remaining(0).count(), POINTS);
        assert!((forecast.mean() - 1600.5).abs() <= 1.0, "{}", forecast.mean());
    }
}
