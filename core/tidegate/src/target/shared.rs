//! Cool-downs for each of the credentials and models that share a target.
//!
//! A held call waits here before it is queued for a slot. Calls of other keys do not wait behind
//! it, and the time held does not count against its wait budget. At most `backlog` calls are held,
//! in addition to the queued ones.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock;
use crate::config::{OnFull, TargetConfig};
use crate::cooldown::{Hold, KeyedCooldowns};
use crate::error::Reason;
use crate::schedule::{Refusal, Rule, WaitExplanation};

/// The cool-downs of the keys that share a target. A key identifies a credential and a model.
#[derive(Debug)]
pub(crate) struct SharedCooldowns {
    cooldowns: Mutex<KeyedCooldowns>,
    /// Maximum number of calls held at the same time.
    backlog: usize,
    /// Whether calls are rejected instead of held.
    on_full: OnFull,
    held: AtomicUsize,
    draining: AtomicBool,
    /// Wakes held calls when a key is opened or the target drains.
    changed: Notify,
}

impl SharedCooldowns {
    pub(super) fn new(config: &TargetConfig) -> Self {
        Self {
            cooldowns: Mutex::default(),
            backlog: config.backlog,
            on_full: config.on_full,
            held: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Waits while the key cools down, before its call queues for a slot. Returns at once if the
    /// target drains, because the queue then rejects the call.
    ///
    /// # Errors
    /// Rejects the call if the cool-down outlasts its deadline, if the target does not queue
    /// (`on_full`), or if too many calls are held.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect on other calls.
    pub(crate) async fn wait(&self, key: u64, queued_at: Instant, deadline: Instant) -> Result<(), Refusal> {
        let mut held_call = None;
        loop {
            // Created before the state is read, because a change between the two would be missed.
            let changed = self.changed.notified();
            let now = clock::now();
            let Some(until) = self.cooldowns.lock().until(now, key) else { return Ok(()) };
            if self.draining.load(Ordering::Acquire) {
                return Ok(());
            }
            let rejection = |reason| Refusal {
                reason,
                position: 0,
                retry_after: Some(until.saturating_duration_since(now)),
                why: Some(held_since(now, queued_at, until)),
                max_tokens: None,
            };
            if until > deadline || self.on_full == OnFull::Refuse {
                return Err(rejection(Reason::CoolDown));
            }
            if held_call.is_none() {
                held_call = Some(
                    HeldCall::new(&self.held, self.backlog).ok_or_else(|| rejection(Reason::QueueFull))?,
                );
            }
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => {}
                () = changed => {}
            }
        }
    }

    /// Admits a call that holds a slot. Returns `false` if its key is held. After a cool-down, the
    /// first admitted call is the probe and holds the key for up to 1 s.
    pub(crate) fn admit(&self, key: u64) -> bool {
        self.cooldowns.lock().admit(clock::now(), key)
    }

    /// Records the failure of an attempt that was sent at `sent`. Returns [`Hold::CoolDown`] if the
    /// key is held for as long as the call has to wait, otherwise [`Hold::No`].
    pub(crate) fn on_failure(&self, key: u64, sent: Instant, delay: Option<Duration>) -> Hold {
        let mut cooldowns = self.cooldowns.lock();
        let now = clock::now();
        let held = match delay {
            Some(delay) => cooldowns.hold(now, sent, key, delay, fastrand::f64()),
            None => cooldowns.until(now, key).is_some(),
        };
        if held { Hold::CoolDown } else { Hold::No }
    }

    /// Records that an attempt of the key succeeded.
    pub(crate) fn on_success(&self, key: u64) {
        let is_opened = self.cooldowns.lock().on_success(clock::now(), key);
        if is_opened {
            self.changed.notify_waiters();
        }
    }

    /// Returns why a call of the key waits, if its cool-down is in force.
    pub(crate) fn explain(&self, key: u64, queued_at: Instant) -> Option<WaitExplanation> {
        let now = clock::now();
        self.cooldowns.lock().until(now, key).map(|until| held_since(now, queued_at, until))
    }

    /// Returns the time before which no call of the key is admitted, if the key is held.
    pub(crate) fn until(&self, key: u64) -> Option<Instant> {
        self.cooldowns.lock().until(clock::now(), key)
    }

    /// Returns `true` if any key is held.
    pub(crate) fn is_cooling(&self) -> bool {
        self.cooldowns.lock().is_cooling(clock::now())
    }

    /// Returns the number of calls that are held.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Sends the held calls on to the queue, which rejects them.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }
}

/// Returns the explanation of a call that a cool-down holds until `until`.
fn held_since(now: Instant, queued_at: Instant, until: Instant) -> WaitExplanation {
    let waited = now.saturating_duration_since(queued_at);
    let expected = Some(until.saturating_duration_since(now));
    WaitExplanation { rule: Rule::CoolDown, since: waited, waited, ahead: 0, expected }
}

/// Counts one held call until it is dropped.
struct HeldCall<'a>(&'a AtomicUsize);

impl<'a> HeldCall<'a> {
    /// Counts one more held call. Returns `None` if `max` calls are already held.
    fn new(held: &'a AtomicUsize, max: usize) -> Option<Self> {
        let call = Self(held);
        (held.fetch_add(1, Ordering::Relaxed) < max).then_some(call)
    }
}

impl Drop for HeldCall<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
