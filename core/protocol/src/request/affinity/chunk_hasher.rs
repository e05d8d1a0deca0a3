//! An incremental hash of text that records its value at the end of each chunk.

use super::CHUNK;
use crate::lenient_json::Scalar;

/// Maximum number of chunks. Bytes after the last chunk are counted but not hashed.
const MAX_CHUNKS: usize = 960;

/// Multiplier of the hash function: odd, with as many one bits as zero bits, from wyhash.
const MULTIPLIER: u64 = 0xa076_1d64_78bd_642f;

/// Hashes a sequence of bytes and records the hash at the end of each chunk of [`CHUNK`] bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkHasher {
    state: u64,
    /// Number of bytes since the end of the last chunk.
    since: usize,
    /// For each chunk, the hash of everything before its end, and the number of bytes before its
    /// end.
    pub(super) ends: Vec<(u64, u64)>,
    /// Number of bytes so far.
    pub(super) length: u64,
    /// Whether data was added that costs an unknown number of tokens, see [`ChunkHasher::opaque`].
    pub(super) opaque: bool,
}

impl ChunkHasher {
    /// Returns the hash of the sequence of `parts`, starting from the hash `state`. The hash
    /// depends on how the bytes are divided into parts.
    pub(super) fn hash_parts(state: u64, parts: &[&[u8]]) -> u64 {
        let mut hasher = Self { state, ..Self::default() };
        parts.iter().for_each(|part| hasher.add(part));
        hasher.hash()
    }

    /// Returns the hash of everything so far.
    pub(super) fn hash(&self) -> u64 {
        fold_multiply(self.state ^ MULTIPLIER, self.since as u64 ^ MULTIPLIER)
    }

    /// Adds a JSON scalar. A number counts as four bytes, about a token id. `null` and booleans
    /// count as zero bytes. A `data:` URL is [opaque](Self::opaque).
    #[inline]
    pub(super) fn scalar(&mut self, scalar: Scalar<'_>) {
        let bits = match scalar {
            Scalar::Null => return,
            Scalar::Bool(value) => return self.mark(1 + u64::from(value)),
            Scalar::Text(text) if text.starts_with("data:") => return self.opaque(text),
            Scalar::Text(text) => return self.add(text.as_bytes()),
            Scalar::Unsigned(value) => value,
            Scalar::Negative(value) => value as u64,
            Scalar::Float(value) => value.to_bits(),
        };
        self.mark(bits);
        // Stands for a token id, or for a few digits.
        self.add(&[0; 4]);
    }

    /// Adds bytes, and records the end of each chunk that they complete.
    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        let mut reached = self.length;
        self.length += bytes.len() as u64;
        while self.ends.len() < MAX_CHUNKS {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - self.since));
            self.mix(now);
            self.since += now.len();
            reached += now.len() as u64;
            if self.since < CHUNK {
                return;
            }
            self.end(reached);
            bytes = later;
        }
    }

    /// Adds data whose bytes the model does not read, such as an image. Only a hash of eight bytes
    /// is added, so the data is not split into chunks.
    pub(super) fn opaque(&mut self, data: &str) {
        let mut whole = Self::default();
        whole.mix(data.as_bytes());
        self.opaque = true;
        self.add(&whole.state.to_le_bytes());
    }

    /// Mixes a marker into the hash, to distinguish values with equal bytes. The marker has no
    /// length.
    pub(super) fn mark(&mut self, mark: u64) {
        self.state = fold_multiply(self.state ^ mark, MULTIPLIER);
    }

    /// Ends the current chunk before it is full. Does nothing if it is empty.
    pub(super) fn close(&mut self) {
        if self.since > 0 && self.ends.len() < MAX_CHUNKS {
            self.end(self.length);
        }
    }

    /// Records the end of a chunk, `length` bytes after the start of the text.
    fn end(&mut self, length: u64) {
        self.since = 0;
        self.ends.push((self.state, length));
    }

    /// Mixes bytes and their number into the state.
    fn mix(&mut self, bytes: &[u8]) {
        let mut state = self.state ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            state = fold_multiply(state ^ u64::from_le_bytes(*word), MULTIPLIER);
        }
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        self.state = fold_multiply(state ^ u64::from_le_bytes(last), MULTIPLIER.rotate_left(31));
    }
}

/// Returns a hash of two hashes, which depends on their order.
pub(super) fn combine(before: u64, after: u64) -> u64 {
    fold_multiply(before ^ MULTIPLIER, after ^ MULTIPLIER.rotate_left(17))
}

/// Multiplies two numbers and returns the exclusive or of the upper and lower half of the product.
fn fold_multiply(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product as u64) ^ ((product >> 64) as u64)
}
