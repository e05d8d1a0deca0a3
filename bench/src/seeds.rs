//! The seeds that an experiment runs on.

use std::num::ParseIntError;
use std::ops::RangeInclusive;
use std::str::FromStr;

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

impl FromStr for Seeds {
    type Err = ParseIntError;

    /// Reads a range such as `1-4`, or a single seed.
    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Ok(Self::new(first.parse()?, last.parse()?))
    }
}

impl IntoIterator for Seeds {
    type Item = u64;
    type IntoIter = RangeInclusive<u64>;

    fn into_iter(self) -> Self::IntoIter {
        self.first..=self.last
    }
}
