//! How long an answer may become, as far as it is known.

use std::sync::Arc;

use tidegate_tokens::Output;

/// The most points that a forecast keeps: enough for the shape of a heavy tail, few enough to be gone through at each survey.
const POINTS: usize = 32;

/// How long an answer may become: lengths that are equally likely, and a length that it never exceeds.
///
/// What it has produced already is taken into account where the forecast is used: the lengths that it has outgrown drop out. One that has
/// outgrown all of them is expected to produce as much again, as answers with a heavy tail do.
///
/// The default knows nothing; what is expected of the call then counts as certain.
#[derive(Clone, Default)]
pub struct Forecast {
    /// Ascending. Shared by all calls that are forecast alike.
    lengths: Arc<[u32]>,
    most: Option<u32>,
    in_one_piece: bool,
    /// What the prompt takes, where that is known better than when the call came.
    input: Option<u64>,
    /// Where it is made only when it is wanted.
    later: Option<Arc<dyn Fn() -> Forecast + Send + Sync>>,
}

impl Forecast {
    /// It will be so long.
    pub fn exact(tokens: u64) -> Self {
        Self { lengths: Arc::new([small(tokens)]), ..Self::default() }
    }

    /// What `make` says when the call is admitted. A call may wait for long, and more is known then than when it came.
    pub fn later(make: impl Fn() -> Self + Send + Sync + 'static) -> Self {
        Self { later: Some(Arc::new(make)), ..Self::default() }
    }

    /// What is known now.
    pub fn now(self) -> Self {
        match &self.later {
            Some(make) => make(),
            None => self,
        }
    }

    /// Lengths that are equally likely, in any order. Where there are more than 32 of them, the means of 32 groups of them are kept.
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

    /// The same, never longer than `most`; `None` changes nothing.
    #[must_use]
    pub fn at_most(mut self, most: Option<u64>) -> Self {
        if let Some(most) = most.map(small) {
            self.most = Some(self.most.map_or(most, |before| before.min(most)));
        }
        self
    }

    /// The same, of an answer that comes in one piece: how far it has come is never seen, so that it counts as whole from its beginning.
    #[must_use]
    pub fn in_one_piece(mut self) -> Self {
        self.in_one_piece = true;
        self
    }

    /// The same, of a prompt of so many tokens, whatever it was thought to take when the call came.
    #[must_use]
    pub fn of_input(mut self, tokens: u64) -> Self {
        self.input = Some(tokens);
        self
    }

    pub(super) fn input(&self) -> Option<u64> {
        self.input
    }

    /// Whether it knows nothing.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Its mean, in tokens; zero where it knows nothing.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.lengths.iter().map(|length| f64::from(self.bounded(*length))).sum();
        sum / (self.lengths.len().max(1)) as f64
    }

    /// The same, or exactly `tokens` where it knows nothing.
    pub(super) fn or_exactly(mut self, tokens: u64) -> Self {
        if self.is_empty() {
            self.lengths = Arc::new([small(tokens)]);
        }
        self
    }

    pub(super) fn comes_in_one_piece(&self) -> bool {
        self.in_one_piece
    }

    /// The most of its lengths that are still possible for an answer of `produced` tokens, as what is still to come, descending; at least one.
    pub(super) fn remaining(&self, produced: u64) -> Remaining<'_> {
        let produced = small(produced);
        let outgrown = self.lengths.partition_point(|length| self.bounded(*length) <= produced);
        let left = self.lengths.get(outgrown..).unwrap_or_default();
        // It goes on where it should have ended: as much again, or the little that it is allowed.
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

/// The middles of 32 equally likely parts of what was learned.
impl From<&Output> for Forecast {
    fn from(output: &Output) -> Self {
        let middle = |part: usize| (part as f64 + 0.5) / POINTS as f64;
        Self::of((0..POINTS).map(|part| output.quantile(middle(part)))).at_most(output.most())
    }
}

/// See [`Forecast::remaining`].
pub(super) struct Remaining<'a> {
    left: &'a [u32],
    produced: u32,
    most: u32,
    beyond: u32,
}

impl Remaining<'_> {
    /// How many lengths are possible.
    pub(super) fn count(&self) -> usize {
        self.left.len().max(1)
    }

    /// What each of them leaves to come, the longest first.
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
