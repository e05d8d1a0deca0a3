//! Prefixes of prompts, which calls in flight at the same engine may share in its KV cache.

use std::{collections::HashSet, sync::Arc};

/// The prefixes of one prompt with their lengths, each identified by the hash of everything before
/// its end.
///
/// Two prompts share everything up to the end of the longest prefix that both contain. The default
/// value has no prefixes and therefore shares nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    hashes: Arc<[u64]>,
    /// Bytes from the start of the prompt to the end of each prefix.
    ends: Arc<[u32]>,
    /// Length of the whole prompt in bytes.
    bytes: u64,
}

impl Prefix {
    /// Creates the prefixes of a prompt of `bytes` bytes. `ends` holds the number of bytes before
    /// the end of each prefix.
    ///
    /// If a hash repeats, it and all later prefixes are dropped, so that all hashes differ.
    pub fn new(hashes: Arc<[u64]>, mut ends: Vec<u32>, bytes: u64) -> Self {
        let mut seen = HashSet::with_capacity(hashes.len());
        ends.truncate(hashes.iter().take_while(|hash| seen.insert(**hash)).count());
        Self { hashes, ends: ends.into(), bytes }
    }

    /// Returns the same prefixes, with `hash` applied to the hashes of those that end within the
    /// first `bytes` bytes of the prompt.
    pub(crate) fn rehashed(self, bytes: u64, hash: impl Fn(u64) -> u64) -> Self {
        let hashes = self.hashes.iter().zip(&*self.ends);
        let hashes = hashes.map(|(of, end)| if u64::from(*end) <= bytes { hash(*of) } else { *of });
        Self::new(hashes.collect(), self.ends.to_vec(), self.bytes)
    }

    /// Returns, for each prefix, its hash and the number of tokens that it adds to the previous
    /// prefix, for a prompt of `input` tokens.
    ///
    /// Tokens are proportional to bytes and rounded down to whole blocks of `block` tokens. The
    /// last token of the prompt belongs to no prefix, because engines always compute it.
    pub fn chunks(&self, input: u64, block: u64) -> impl Iterator<Item = (u64, u64)> {
        let ratio = input as f64 / self.bytes.max(1) as f64;
        // The engine recomputes the last token of a prompt, whatever is cached.
        let longest = input.saturating_sub(1);
        let mut before = 0;
        self.hashes.iter().zip(&*self.ends).map(move |(hash, end)| {
            let blocks = ((f64::from(*end) * ratio) as u64).min(longest) / block;
            let tokens = (blocks * block).max(before);
            (*hash, tokens - std::mem::replace(&mut before, tokens))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(ends: &[u32], bytes: u64, input: u64) -> Vec<u64> {
        let hashes: Vec<u64> = (0..ends.len() as u64).collect();
        Prefix::new(hashes.into(), ends.to_vec(), bytes).chunks(input, 16).map(|(_, tokens)| tokens).collect()
    }

    #[test]
    fn prefixes_are_whole_blocks_and_never_the_whole_prompt() {
        assert_eq!(tokens(&[1_024, 2_048, 3_000], 4_000, 1_000), [256, 256, 736 - 512]);
        assert_eq!(tokens(&[1_024, 2_048], 2_048, 512), [256, 240], "the last token is computed anew");
        assert_eq!(tokens(&[1_024], 1_024, 16), [0]);
    }

    #[test]
    fn repeated_hash_ends_the_shared_prefixes() {
        let prefix = Prefix::new([7, 8, 7, 9].into(), vec![64, 128, 192, 256], 256);
        assert_eq!(prefix.chunks(256, 16).collect::<Vec<_>>(), [(7, 64), (8, 64)]);
    }

    #[test]
    fn nonsense_never_shares_more_than_the_input() {
        for (ends, bytes, input) in
            [(vec![u32::MAX; 3], 0, u64::MAX), (vec![500, 10], 100, 64), (vec![1], 1, 0)]
        {
            let sum: u64 = tokens(&ends, bytes, input).iter().sum();
            assert!(sum <= input, "{sum} of {input}");
        }
    }
}
