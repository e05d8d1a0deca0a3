//! Chooses the chunks at whose end a prefix ends: each of the first [`DENSE_PREFIXES`] chunks, then
//! every second, every fourth and every eighth chunk, each time for another [`DENSE_PREFIXES`]
//! prefixes.
//!
//! A long prompt therefore has few prefixes, and two prompts that share more than one chunk share a
//! prefix that covers most of what they share.

use std::sync::Arc;

use super::Affinity;
use crate::request::Prefix;

/// Number of prefixes after which the distance between two prefixes doubles.
const DENSE_PREFIXES: usize = 64;
/// Maximum number of prefixes of a prompt. They cover 960 chunks.
const MAX_PREFIXES: usize = 4 * DENSE_PREFIXES;

impl Affinity {
    /// Creates the affinity of a prompt from the cumulative hashes of its chunks: for each chunk in
    /// order, the hash of the prompt up to the end of the chunk. The lengths are unknown, so
    /// [`Affinity::prefix`] has no prefixes and shares nothing.
    pub fn from_hashes(session: Option<u64>, chunks: impl IntoIterator<Item = u64>) -> Self {
        let chunks = chunks.into_iter().map(|hash| (hash, 0));
        Self { prefix: Prefix::default(), ..Self::from_hashes_with_lengths(session, chunks, 0) }
    }

    /// Creates the affinity of a prompt of `bytes` bytes. `chunks` yields, for each chunk in order,
    /// the cumulative hash and the cumulative length: those of the prompt up to the end of the
    /// chunk, the length in bytes.
    pub fn from_hashes_with_lengths(
        session: Option<u64>,
        chunks: impl IntoIterator<Item = (u64, u64)>,
        bytes: u64,
    ) -> Self {
        let (mut prefixes, mut ends) = (Vec::new(), Vec::new());
        for (index, (hash, end)) in chunks.into_iter().enumerate().take(chunks_to(MAX_PREFIXES - 1)) {
            if chunks_to(prefixes.len()) == index + 1 {
                prefixes.push(hash);
                ends.push(u32::try_from(end).unwrap_or(u32::MAX));
            }
        }
        let prefixes: Arc<[u64]> = prefixes.into();
        Self { session, prefix: Prefix::new(prefixes.clone(), ends, bytes), prefixes }
    }

    /// Returns the estimated number of tokens up to the end of prefix `index`, in a prompt of
    /// `input` tokens. Tokens are assumed to be in proportion to chunks, and the last prefix counts
    /// as the whole prompt.
    pub fn tokens(&self, index: usize, input: u64) -> u64 {
        let all = chunks_to(self.prefixes.len().saturating_sub(1));
        let part = chunks_to(index) as f64 / all as f64;
        (input as f64 * part.min(1.0)) as u64
    }
}

/// Returns the number of chunks from the start of the prompt to the end of prefix `index`.
fn chunks_to(index: usize) -> usize {
    let index = index.min(MAX_PREFIXES - 1);
    let level = index / DENSE_PREFIXES;
    let step = 1 << level;
    DENSE_PREFIXES * (step - 1) + (index % DENSE_PREFIXES + 1) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_dense_at_first_and_sparse_later() {
        let ends: Vec<usize> = (0..MAX_PREFIXES).map(chunks_to).collect();
        assert_eq!(ends[..3], [1, 2, 3]);
        assert_eq!(ends[63..66], [64, 66, 68]);
        assert_eq!(ends[127..129], [192, 196]);
        assert_eq!(ends.last(), Some(&960));
        assert!(ends.is_sorted());
    }

    #[test]
    fn longer_prompt_has_the_prefixes_of_the_shorter() {
        let chunks = |count: u64| Affinity::from_hashes(None, 1..=count).prefixes;
        for (shorter, longer) in [(1, 2), (60, 70), (100, 5_000)] {
            let (shorter, longer) = (chunks(shorter), chunks(longer));
            assert_eq!(longer[..shorter.len()], shorter[..]);
        }
        assert_eq!(chunks(100_000).len(), MAX_PREFIXES);
        assert!(chunks(0).is_empty());
    }

    #[test]
    fn tokens_are_in_proportion_to_chunks() {
        let affinity = Affinity::from_hashes(None, 1..=192);
        assert_eq!(affinity.prefixes.len(), 128);
        assert_eq!(affinity.tokens(127, 19_200), 19_200);
        assert_eq!(affinity.tokens(63, 19_200), 6_400);
        assert_eq!(affinity.tokens(500, 19_200), 19_200, "never more than there are");
        assert_eq!(Affinity::default().tokens(0, 10), 10);
    }
}
