//! Batch size: how many calls an upstream decodes at the same time, as their first tokens show it.
//!
//! # Algorithm
//!
//! While the batch of an engine is full, a call gets its first token only after another call has
//! ended. So it waits longer than the prompts before it take, and the number of calls that are
//! decoded does not grow. If a call waits that long, and the next call too, without more calls
//! being decoded, the batch is full, and its size is the maximum number of calls that were decoded
//! in that time.
//!
//! The size grows if more calls are decoded at the same time, and by one if two calls do not wait
//! although the batch should be full, and no call waits in between. It is forgotten some time after
//! the batch was last seen to be full.
//!
//! If ends of calls follow each other faster than the engine reads prompts, as with a large batch,
//! a full batch delays calls little, and its size is not found.

use std::time::{Duration, Instant};

/// Time to the first token from which a call waited for the end of another one, divided by the time
/// that the prompts of all calls awaiting their first token take on a quiet upstream.
const WAITED: f64 = 1.5;
/// The number of calls that do not wait although the batch should be full until its size grows by
/// one.
const MIN_UNDELAYED: u32 = 2;
/// Time after which the size is forgotten.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The size of an upstream's batch, if it is known.
#[derive(Debug, Default)]
pub(super) struct BatchSize {
    /// The size, and when the batch was last seen to be full.
    known: Option<(Instant, usize)>,
    /// The maximum number of decoded calls since the first of the last calls in succession that
    /// waited. `None` if the last call did not wait.
    peak: Option<usize>,
    /// The number of calls that did not wait although the batch should have been full, since the
    /// last call that waited and since the size last grew because of such calls. Calls that found
    /// the batch not full are not counted.
    undelayed: u32,
}

impl BatchSize {
    /// Returns the size, or `None` if it is not known.
    pub(super) fn calls(&self) -> Option<usize> {
        self.known.map(|(_, size)| size)
    }

    /// Records a first token. `decoded` is the number of calls that the upstream decodes then. See
    /// [`WAITED`] for `slowdown`.
    pub(super) fn observe(&mut self, now: Instant, decoded: usize, slowdown: f64) {
        self.known = self.known.filter(|(at, _)| now.saturating_duration_since(*at) <= KNOWN_FOR);
        let size = self.calls().map_or(decoded, |size| size.max(decoded));
        self.known = self.known.map(|(at, _)| (at, size));
        if slowdown < WAITED {
            self.peak = None;
            self.undelayed += u32::from(self.calls() == Some(decoded));
            if self.undelayed >= MIN_UNDELAYED {
                self.undelayed = 0;
                self.known = self.known.map(|(at, _)| (at, size + 1));
            }
            return;
        }
        self.undelayed = 0;
        match self.peak {
            Some(peak) if decoded <= peak => self.known = Some((now, size.max(peak))),
            _ => self.peak = Some(decoded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    /// Returns the size after first tokens with these numbers of decoded calls and slowdowns, one
    /// in each second.
    fn after(tokens: &[(usize, f64)]) -> Option<usize> {
        let (mut batch, zero) = (BatchSize::default(), epoch());
        for (second, (decoded, slowdown)) in tokens.iter().enumerate() {
            batch.observe(zero + Duration::from_secs(second as u64), *decoded, *slowdown);
        }
        batch.calls()
    }

    #[test]
    fn batch_is_full_if_calls_wait_and_no_more_are_decoded() {
        assert_eq!(after(&[(14, 1.0), (15, 1.2), (16, 1.8)]), None, "more calls are decoded");
        assert_eq!(after(&[(15, 1.2), (16, 1.8), (16, 2.0)]), Some(16));
        assert_eq!(after(&[(16, 1.8), (15, 2.0)]), Some(16), "another call has ended meanwhile");
        assert_eq!(after(&[(16, 1.8), (16, 1.0), (16, 1.8)]), None, "not in succession");
    }

    #[test]
    fn size_grows_if_calls_do_not_wait_in_full_batch() {
        let full = [(8, 2.0), (8, 2.0)];
        assert_eq!(after(&[&full[..], &[(8, 1.0), (7, 1.0)]].concat()), Some(8), "not full");
        assert_eq!(after(&[&full[..], &[(8, 1.0), (8, 1.0)]].concat()), Some(9));
        assert_eq!(after(&[&full[..], &[(8, 1.0), (8, 2.0), (8, 1.0)]].concat()), Some(8), "one waited");
        assert_eq!(after(&[&full[..], &[(12, 2.0)]].concat()), Some(12), "12 calls are decoded");
    }

    #[test]
    fn size_is_forgotten() {
        let quiet = vec![(1, 1.0); 70];
        assert_eq!(after(&[&[(8, 2.0), (8, 2.0)], &quiet[..60]].concat()), Some(8));
        assert_eq!(after(&[&[(8, 2.0), (8, 2.0)], &quiet[..]].concat()), None);
    }
}
