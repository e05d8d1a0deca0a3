//! The seeds that an experiment runs on.

use std::ops::RangeInclusive;

/// A range of seeds. Both ends are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seeds {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Seeds {
    pub(crate) const fn new(first: u64, last: u64) -> Self {
        Self { first, last }
    }

    /// Returns the first `count` seeds of the range, or the whole range if it has fewer. `count` is
    /// at least 1.
    pub(crate) fn take(self, count: u64) -> Self {
        Self { last: self.last.min(self.first + count - 1), ..self }
    }

    pub(crate) fn count(self) -> u64 {
        self.last - self.first + 1
    }
}

impl IntoIterator for Seeds {
    type Item = u64;
    type IntoIter = RangeInclusive<u64>;

    fn into_iter(self) -> Self::IntoIter {
        self.first..=self.last
    }
}
