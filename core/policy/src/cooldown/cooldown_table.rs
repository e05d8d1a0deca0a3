//! Cool-downs of a target that several credentials or models share: one per credential and model,
//! which together are a *key*.
//!
//! A Retry-After must delay only the calls with the credential and model that received it, so each
//! key has an entry in a bounded table. A target that only one key uses has a single
//! [`Cooldown`](super::Cooldown), which also detects outages.
//!
//! - After a Retry-After, no call of the key is admitted until it has passed. A later time replaces
//!   an earlier one.
//! - Then one call of the key is admitted as the probe. The other calls of the key are admitted
//!   when the probe succeeds, or when it has not failed for one second. If the probe fails with
//!   another Retry-After, the key cools down again.
//! - A Retry-After of an attempt that was sent before the probe is counted from when that attempt
//!   was sent. If that time has passed, the Retry-After delays only the call that received it. A
//!   delay of more than a day also delays only that call.
//! - Outages are not detected. After a failure without a Retry-After, other calls of the key are
//!   still admitted, and each call backs off by itself.
//!
//! The table holds [`CAPACITY`] keys in about 2 MiB, including keys whose cool-down is over. The
//! key that expires first is evicted to make room, and its calls are then admitted. Operations take
//! O(log n).

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::{MAX_DELAY, retry_after_jitter};

/// Maximum number of keys in the table.
const CAPACITY: usize = 16_384;

/// Time from the admission of a probe after which it counts as a success if it has not failed.
const MAX_PROBE: Duration = Duration::from_secs(1);

/// Whether calls of a key are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    /// The key cools down: no call of the key is admitted before `until`.
    Held,
    /// The probe is in flight. `until` is when it counts as a success if it has not failed.
    Probing,
    /// Calls of the key have been admitted without a limit since `until`.
    Open,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    until: Instant,
    state: EntryState,
}

/// The cool-downs of up to 16,384 keys. A key stands for a credential and a model.
#[derive(Debug, Default)]
pub struct CooldownTable {
    entries: HashMap<u64, Entry>,
    /// The same entries, ordered by their `until`.
    by_expiry: BTreeSet<(Instant, u64)>,
}

impl CooldownTable {
    /// Admits a call of the key and returns `true`. If the key cools down or its probe is in
    /// flight, does not admit the call and returns `false`.
    ///
    /// The first call after a cool-down becomes the probe. Other calls of the key are refused until
    /// the probe succeeds, at most for one second.
    pub fn admit(&mut self, now: Instant, key: u64) -> bool {
        let Some(entry) = self.entries.get(&key) else { return true };
        if entry.until > now {
            return false;
        }
        match entry.state {
            EntryState::Held => {
                self.insert(key, Entry { until: now + MAX_PROBE, state: EntryState::Probing })
            }
            EntryState::Probing => self.insert(key, Entry { state: EntryState::Open, ..*entry }),
            EntryState::Open => {}
        }
        true
    }

    /// Returns the time before which no call of the key is admitted: the end of the cool-down, or
    /// the time at which its probe counts as a success. `None` if calls are admitted now.
    pub fn until(&self, now: Instant, key: u64) -> Option<Instant> {
        self.entries.get(&key).map(|entry| entry.until).filter(|until| *until > now)
    }

    /// Returns `true` if calls of at least one key are refused now.
    pub fn is_cooling(&self, now: Instant) -> bool {
        self.last_until(now).is_some()
    }

    /// Returns the time before which no call of the key with the longest cool-down is admitted.
    /// `None` if calls of every key are admitted now.
    pub fn last_until(&self, now: Instant) -> Option<Instant> {
        self.by_expiry.last().map(|(until, _)| *until).filter(|until| *until > now)
    }

    /// Refuses calls of the key for `delay` plus jitter. `delay` is the `Retry-After` of an attempt
    /// that was sent at `sent`. The jitter is `jitter` (uniform in `[0, 1)`) times the sum of 20 ms
    /// and a tenth of the delay (at most 1 s).
    ///
    /// Returns `true` if calls of the key are refused for the whole delay. Returns `false` if the
    /// rejected call must wait for the delay by itself, because the delay is longer than a day
    /// (then no other call is refused), or because the attempt was sent before the probe (then
    /// calls of the key are refused until `delay` after `sent`).
    pub fn cool_down(&mut self, now: Instant, sent: Instant, key: u64, delay: Duration, jitter: f64) -> bool {
        if delay > MAX_DELAY {
            return false;
        }
        let entry = self.entries.get(&key);
        let asked_since = match entry {
            Some(Entry { until, state: EntryState::Probing }) => sent + MAX_PROBE < *until,
            Some(Entry { until, state: EntryState::Open }) => sent < *until,
            _ => false,
        };
        let ends = if asked_since { sent + delay } else { now + delay };
        if !asked_since || ends > now {
            self.cool_down_until(key, ends + retry_after_jitter(delay, jitter));
        }
        !asked_since
    }

    /// Records that a call of the key that was sent at `sent` succeeded. If it was the probe of the
    /// key, admits all calls of the key from now on and returns `true`. Otherwise returns `false`
    /// and changes nothing: a success does not end a `Retry-After`.
    pub fn on_success(&mut self, now: Instant, sent: Instant, key: u64) -> bool {
        let is_probe = self
            .entries
            .get(&key)
            .is_some_and(|entry| entry.state == EntryState::Probing && sent + MAX_PROBE >= entry.until);
        if is_probe {
            self.insert(key, Entry { until: now, state: EntryState::Open });
        }
        is_probe
    }

    /// Refuses calls of the key until `until`, or longer if they are refused for longer already.
    pub fn cool_down_until(&mut self, key: u64, until: Instant) {
        let held = self.entries.get(&key).filter(|entry| entry.state == EntryState::Held);
        let until = held.map_or(until, |entry| entry.until.max(until));
        self.insert(key, Entry { until, state: EntryState::Held });
    }

    fn insert(&mut self, key: u64, entry: Entry) {
        if let Some(former) = self.entries.insert(key, entry) {
            self.by_expiry.remove(&(former.until, key));
        }
        self.by_expiry.insert((entry.until, key));
        if self.entries.len() > CAPACITY
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
        let (now, mut table) = (epoch(), CooldownTable::default());
        assert!(table.cool_down(now, now, 1, 5 * SECOND, 0.0));
        assert_eq!((table.until(now, 1), table.admit(now, 1)), (Some(now + 5 * SECOND), false));
        assert_eq!((table.until(now, 2), table.admit(now, 2)), (None, true));
        assert!(table.is_cooling(now) && !table.is_cooling(now + 5 * SECOND));
        assert!(!table.cool_down(now, now, 2, 25 * 3600 * SECOND, 0.0), "concerns its call alone");
        assert!(table.admit(now, 2));
    }

    #[test]
    fn later_delay_wins_and_early_success_does_not_end_it() {
        let (now, mut table) = (epoch(), CooldownTable::default());
        table.cool_down(now, now, 1, 9 * SECOND, 0.0);
        table.cool_down(now, now, 1, 5 * SECOND, 0.0);
        assert!(!table.on_success(now, now, 1));
        assert_eq!(table.until(now, 1), Some(now + 9 * SECOND));
    }

    #[test]
    fn one_probe_is_admitted_until_it_succeeds() {
        let (now, mut table) = (epoch(), CooldownTable::default());
        table.cool_down(now, now, 1, 5 * SECOND, 0.0);
        let then = now + 5 * SECOND;
        assert!(table.admit(then, 1));
        assert_eq!((table.admit(then, 1), table.until(then, 1)), (false, Some(then + MAX_PROBE)));
        assert!(!table.on_success(then, now, 1), "it was sent before the probe");
        assert!(!table.admit(then, 1));
        assert!(table.on_success(then, then, 1));
        assert!(table.admit(then, 1) && table.admit(then, 1));
        assert!(!table.is_cooling(then));
    }

    #[test]
    fn late_delay_that_is_over_does_not_hold_its_key_again() {
        let (sent, mut table) = (epoch(), CooldownTable::default());
        let now = sent + SECOND;
        table.cool_down(now, sent, 1, 2 * SECOND, 0.0);
        let probe = sent + 3 * SECOND;
        assert!(table.admit(probe, 1));
        assert!(!table.cool_down(probe, sent, 1, 2 * SECOND, 0.0), "the probe is under way");
        assert!(table.on_success(probe + SECOND, probe, 1));
        let late = sent + 9 * SECOND;
        assert!(!table.cool_down(late, sent, 1, 9 * SECOND, 0.0));
        assert_eq!((table.until(late, 1), table.admit(late, 1)), (None, true));
        assert!(!table.cool_down(late, sent, 1, 10 * SECOND, 0.0), "its call waits for all of it");
        assert_eq!(table.until(late, 1), Some(late + SECOND), "the others for what is left of it");
        assert!(table.cool_down(late, late, 2, SECOND, 0.0), "another key");
    }

    #[test]
    fn delay_of_an_attempt_sent_after_the_probe_holds_its_key_in_full() {
        let (now, mut table) = (epoch(), CooldownTable::default());
        table.cool_down(now, now, 1, SECOND, 0.0);
        assert!(table.admit(now + SECOND, 1));
        assert!(table.on_success(now + 2 * SECOND, now + SECOND, 1));
        assert!(table.cool_down(now + 5 * SECOND, now + 3 * SECOND, 1, SECOND, 0.0));
        assert_eq!(table.until(now + 5 * SECOND, 1), Some(now + 6 * SECOND));
    }

    #[test]
    fn rejected_probe_holds_its_key_and_a_silent_probe_opens_it() {
        let (now, mut table) = (epoch(), CooldownTable::default());
        table.cool_down(now, now, 1, SECOND, 0.0);
        assert!(table.admit(now + SECOND, 1));
        table.cool_down(now + SECOND, now + SECOND, 1, SECOND / 2, 0.0);
        assert_eq!(table.until(now + SECOND, 1), Some(now + SECOND * 3 / 2), "before the probe's time");
        assert!(table.admit(now + 2 * SECOND, 1));
        assert!(!table.admit(now + 2 * SECOND, 1));
        assert!(table.admit(now + 3 * SECOND, 1));
        assert!(table.admit(now + 3 * SECOND, 1), "the silent probe counts as a success");
    }

    #[test]
    fn full_table_evicts_the_key_that_expires_first() {
        let (now, mut table) = (epoch(), CooldownTable::default());
        for key in 0..=CAPACITY as u64 {
            let seconds = if key == 4_711 { 5 } else { 7 + key as u32 % 3 };
            table.cool_down(now, now, key, seconds * SECOND, 0.0);
        }
        let evicted: Vec<u64> =
            (0..=CAPACITY as u64).filter(|key| table.until(now, *key).is_none()).collect();
        assert_eq!(evicted, [4_711]);
        for key in 0..100_000 {
            table.cool_down(now, now, key, Duration::from_millis(key), 0.0);
            assert!(table.entries.len() <= CAPACITY && table.entries.len() == table.by_expiry.len());
        }
    }

    #[test]
    fn full_table_takes_the_documented_memory() {
        let entry = size_of::<(u64, Entry)>() + size_of::<(Instant, u64)>();
        // Both collections are half empty at worst.
        assert!(CAPACITY * 2 * entry <= 2 << 20, "{entry} bytes for each");
    }
}
