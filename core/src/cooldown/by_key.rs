//! Cool-downs of the credentials and models that share one target.
//!
//! Each other target has one [`Cooldown`](super::Cooldown). Here, a Retry-After must hold only the
//! credential and model that received it, so each key has an entry in a bounded table.
//!
//! - A Retry-After holds its key until it has passed. A later time replaces an earlier one.
//! - Then one call of the key is admitted as the probe. The key opens when the probe succeeds, or
//!   when it has not failed for [`PROBE`]. If it fails with another Retry-After, that holds the key.
//! - Outages are not detected: failures without a Retry-After leave the key open, and each call
//!   backs off by itself.
//!
//! The table holds [`CAPACITY`] keys in about 2 MiB. The key that expires first is evicted to make
//! room, and is open from then on. Operations take O(log n).

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::{LONGEST, MOST_PATIENCE, spread};

/// The number of keys in the table.
const CAPACITY: usize = 16_384;

/// Time after which a probe that has not failed counts as a success.
const PROBE: Duration = MOST_PATIENCE;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// No call of the key is admitted before this time.
    until: Instant,
    is_probing: bool,
}

/// A bounded table of cool-downs by key. Pure: time is an argument.
#[derive(Debug)]
pub(crate) struct KeyedCooldowns {
    entries: HashMap<u64, Entry>,
    /// The same entries, ordered by expiry.
    by_expiry: BTreeSet<(Instant, u64)>,
    capacity: usize,
}

impl Default for KeyedCooldowns {
    fn default() -> Self {
        Self::with_capacity(CAPACITY)
    }
}

impl KeyedCooldowns {
    fn with_capacity(capacity: usize) -> Self {
        Self { entries: HashMap::new(), by_expiry: BTreeSet::new(), capacity }
    }

    /// Admits a call of the key. Returns `false` if the key is held.
    ///
    /// The first call after a cool-down becomes the probe and holds the key until it succeeds, at
    /// most for [`PROBE`].
    pub(crate) fn admit(&mut self, now: Instant, key: u64) -> bool {
        let Some(entry) = self.entries.get(&key) else { return true };
        if entry.until > now {
            return false;
        }
        if entry.is_probing {
            self.remove(key);
        } else {
            self.insert(key, Entry { until: now + PROBE, is_probing: true });
        }
        true
    }

    /// Returns the time before which no call of the key is admitted, if the key is held.
    pub(crate) fn until(&self, now: Instant, key: u64) -> Option<Instant> {
        self.entries.get(&key).map(|entry| entry.until).filter(|until| *until > now)
    }

    /// Returns `true` if any key is held.
    pub(crate) fn is_cooling(&self, now: Instant) -> bool {
        self.by_expiry.last().is_some_and(|(until, _)| *until > now)
    }

    /// Holds the key for `delay`, a provider's Retry-After, plus jitter: a tenth of the delay, but
    /// at most 1 s, plus 20 ms, times `jitter` (uniform in `[0, 1)`).
    ///
    /// Returns `false` for a delay of more than a day, which concerns its call alone.
    pub(crate) fn hold(&mut self, now: Instant, key: u64, delay: Duration, jitter: f64) -> bool {
        if delay > LONGEST {
            return false;
        }
        let until = now + delay + spread(delay, jitter);
        let cooling = self.entries.get(&key).filter(|entry| !entry.is_probing);
        let until = cooling.map_or(until, |entry| entry.until.max(until));
        self.insert(key, Entry { until, is_probing: false });
        true
    }

    /// Opens the key if its probe is under way, and returns `true` if so. A success does not end a
    /// Retry-After.
    pub(crate) fn on_success(&mut self, key: u64) -> bool {
        let is_probing = self.entries.get(&key).is_some_and(|entry| entry.is_probing);
        if is_probing {
            self.remove(key);
        }
        is_probing
    }

    fn remove(&mut self, key: u64) {
        if let Some(entry) = self.entries.remove(&key) {
            self.by_expiry.remove(&(entry.until, key));
        }
    }

    fn insert(&mut self, key: u64, entry: Entry) {
        self.remove(key);
        self.entries.insert(key, entry);
        self.by_expiry.insert((entry.until, key));
        if self.entries.len() > self.capacity
            && let Some((_, first)) = self.by_expiry.pop_first()
        {
            self.entries.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delay_holds_its_key_alone() {
        let (now, mut table) = (epoch(), KeyedCooldowns::default());
        assert!(table.hold(now, 1, 5 * SECOND, 0.0));
        assert_eq!((table.until(now, 1), table.admit(now, 1)), (Some(now + 5 * SECOND), false));
        assert_eq!((table.until(now, 2), table.admit(now, 2)), (None, true));
        assert!(table.is_cooling(now) && !table.is_cooling(now + 5 * SECOND));
        assert!(!table.hold(now, 2, 25 * 3600 * SECOND, 0.0), "concerns its call alone");
        assert!(table.admit(now, 2));
    }

    #[test]
    fn later_delay_wins_and_early_success_does_not_end_it() {
        let (now, mut table) = (epoch(), KeyedCooldowns::default());
        table.hold(now, 1, 9 * SECOND, 0.0);
        table.hold(now, 1, 5 * SECOND, 0.0);
        assert!(!table.on_success(1));
        assert_eq!(table.until(now, 1), Some(now + 9 * SECOND));
    }

    #[test]
    fn one_call_goes_first_and_the_others_follow_its_success() {
        let (now, mut table) = (epoch(), KeyedCooldowns::default());
        table.hold(now, 1, 5 * SECOND, 0.0);
        let then = now + 5 * SECOND;
        assert!(table.admit(then, 1));
        assert_eq!((table.admit(then, 1), table.until(then, 1)), (false, Some(then + PROBE)));
        assert!(table.on_success(1));
        assert!(table.admit(then, 1));
        assert!(table.entries.is_empty() && table.by_expiry.is_empty());
    }

    #[test]
    fn delay_of_a_probe_holds_the_others_and_silence_opens_the_key() {
        let (now, mut table) = (epoch(), KeyedCooldowns::default());
        table.hold(now, 1, SECOND, 0.0);
        assert!(table.admit(now + SECOND, 1));
        table.hold(now + SECOND, 1, SECOND / 2, 0.0);
        assert_eq!(table.until(now + SECOND, 1), Some(now + SECOND * 3 / 2), "before the probe's time");
        assert!(table.admit(now + 2 * SECOND, 1));
        assert!(!table.admit(now + 2 * SECOND, 1));
        assert!(table.admit(now + 3 * SECOND, 1));
        assert!(table.admit(now + 3 * SECOND, 1), "the silent probe counts as a success");
    }

    #[test]
    fn full_table_evicts_the_key_that_expires_first() {
        let (now, mut table) = (epoch(), KeyedCooldowns::with_capacity(3));
        for (key, seconds) in [(1, 9), (2, 5), (3, 7), (4, 8)] {
            table.hold(now, key, seconds * SECOND, 0.0);
        }
        let held: Vec<u64> = (1..=4).filter(|key| table.until(now, *key).is_some()).collect();
        assert_eq!(held, [1, 3, 4]);
        for key in 0..100_000 {
            table.hold(now, key, Duration::from_millis(key), 0.0);
            assert!(table.entries.len() <= 3 && table.entries.len() == table.by_expiry.len());
        }
    }

    #[test]
    fn full_table_takes_the_documented_memory() {
        let entry = size_of::<(u64, Entry)>() + size_of::<(Instant, u64)>();
        // Both collections are half empty at worst.
        assert!(CAPACITY * 2 * entry <= 2 << 20, "{entry} bytes for each");
    }
}
