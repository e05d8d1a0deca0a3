//! Separate cool-downs for each credential and model that use a target.
//!
//! A key identifies a credential and a model. While all calls of a target have the same key, the
//! cool-down of the target itself suffices. From the first call with another key on, a
//! `Retry-After` delays only the calls with the key that received it, because providers limit each
//! model and each credential separately. If one of the keys is not used for an hour, for example
//! because it was replaced, the target counts as used with one key again.
//!
//! A call whose key is in a cool-down waits for its end before it is queued for a slot. Calls of
//! other keys do not wait behind it, and this time does not count against the wait budget of the
//! call, unless the target has a fallback. Calls that wait here do not count as queued, and as many
//! of them are permitted as may be queued: for each tenant, for each lane, and in total. A call
//! that has waited here is queued even if the queue is full.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock;
use crate::config::TargetConfig;
use crate::context::Lane;
use crate::cooldown::CooldownTable;
use crate::error::Reason;
use crate::schedule::{Refusal, Rule, SchedulerView, TenantView, Ticket, WaitExplanation};
use tidegate_policy::outcome::AttemptOutcome;
use tidegate_policy::retry::RetryPath;

/// Returns the key of calls with the hash of their credential and that of their model.
pub(crate) fn key_of(credential: u64, model: u64) -> u64 {
    model << 32 | credential & u64::from(u32::MAX)
}

/// Returns `true` if two keys of [`key_of`] have different models.
pub(super) fn is_other_model(one: u64, other: u64) -> bool {
    one >> 32 != other >> 32
}

/// Time after which a key that is not used no longer counts as one of several keys.
const KEY_LIFETIME: Duration = Duration::from_secs(3600);

/// The keys that were used recently, as far as matters for whether there are several.
#[derive(Debug, Default)]
struct RecentKeys {
    /// The key of the last call, and when the call was made.
    latest: Option<(u64, Instant)>,
    /// The key of the last call with another key, and when the call was made.
    other: Option<(u64, Instant)>,
}

impl RecentKeys {
    /// Records a call with the key at `now`. Returns `true` if several keys are in use.
    fn on_call(&mut self, now: Instant, key: u64) -> bool {
        let before = self.latest.replace((key, now)).filter(|(before, _)| *before != key);
        self.other = before.or(self.other);
        self.other.is_some_and(|(_, used)| now.saturating_duration_since(used) < KEY_LIFETIME)
    }
}

/// A change of the keys with which a target is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeysChange {
    /// Calls with several keys use the target from now on. So far, all had the key `first`.
    Several {
        /// The key of the calls so far.
        first: u64,
    },
    /// Only one key is used.
    One,
}

/// The cool-downs of the keys that share a target. A key identifies a credential and a model.
#[derive(Debug)]
pub(crate) struct KeyedCooldowns {
    cooldowns: Mutex<CooldownTable>,
    recent_keys: Mutex<RecentKeys>,
    /// Whether calls with several keys were made recently, as of the last call.
    has_several_keys: AtomicBool,
    /// Whether a call without a key was asked to wait, by which the whole target cools down.
    has_keyless_wait: AtomicBool,
    /// Whether the cool-down of the target itself is not used, so that outages are not detected.
    replaces_cooldown: bool,
    held: Mutex<HeldCalls>,
    draining: AtomicBool,
    /// Wakes the waiting calls when a cool-down ends early, or when the target drains.
    changed: Notify,
}

impl KeyedCooldowns {
    /// Creates the cool-downs of a target that is usually used with one key.
    pub(super) fn new() -> Self {
        Self {
            cooldowns: Mutex::default(),
            recent_keys: Mutex::default(),
            has_several_keys: AtomicBool::new(false),
            has_keyless_wait: AtomicBool::new(false),
            replaces_cooldown: false,
            held: Mutex::default(),
            draining: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Creates the cool-downs of a target that is always used with several keys. Each failure
    /// concerns its key alone.
    pub(super) fn replacing_cooldown() -> Self {
        Self { has_several_keys: AtomicBool::new(true), replaces_cooldown: true, ..Self::new() }
    }

    /// Records a call with the key at `now`. Returns how the keys changed. `None` if it is as
    /// before whether several of them are in use.
    pub(super) fn on_call(&self, now: Instant, key: u64) -> Option<KeysChange> {
        let mut keys = self.recent_keys.lock();
        let is_several = keys.on_call(now, key);
        if self.has_several_keys.swap(is_several, Ordering::AcqRel) == is_several {
            return None;
        }
        Some(if is_several { KeysChange::Several { first: keys.other?.0 } } else { KeysChange::One })
    }

    /// Records that a call without a key was asked to wait.
    pub(crate) fn on_keyless_wait(&self) {
        self.has_keyless_wait.store(true, Ordering::Release);
    }

    /// Returns `true` if a call without a key was asked to wait at any time.
    pub(super) fn has_keyless_wait(&self) -> bool {
        self.has_keyless_wait.load(Ordering::Acquire)
    }

    /// Returns `true` if calls with several keys were made recently.
    pub(super) fn has_several_keys(&self) -> bool {
        self.has_several_keys.load(Ordering::Acquire)
    }

    /// Returns `true` if the failure of an attempt concerns its key, and not the whole target: a
    /// 429 with a `Retry-After`.
    pub(crate) fn concerns_key(&self, outcome: &AttemptOutcome) -> bool {
        self.replaces_cooldown || outcome.is_rate_limited() && outcome.retry_after().is_some()
    }

    /// Continues a cool-down of the whole target, until `until`, as that of the key.
    pub(super) fn resume(&self, key: u64, until: Instant) {
        self.cooldowns.lock().cool_down_until(key, until);
    }

    /// Waits until the cool-down of the key ends, and returns whether the call had to wait. Returns
    /// immediately if the key is not in a cool-down, or if the target drains, because the queue
    /// then rejects the call. `config` is that of the target. `may_wait` returns whether the call
    /// of `ticket` may wait from now until a time.
    ///
    /// # Errors
    /// Rejects the call if it may not wait until the cool-down ends, or if too many calls wait
    /// already and it is neither a retry nor accepted before.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect on other calls.
    pub(crate) async fn wait(
        &self,
        key: u64,
        ticket: &Ticket,
        config: &TargetConfig,
        may_wait: impl Fn(Instant) -> bool,
    ) -> Result<bool, Refusal> {
        let mut held_call = None;
        loop {
            // Created before the state is read, because a change between the two would be missed.
            let changed = self.changed.notified();
            let now = clock::now();
            let until = self.cooldowns.lock().until(now, key);
            let Some(until) = until.filter(|_| !self.draining.load(Ordering::Acquire)) else {
                return Ok(held_call.is_some());
            };
            let rejection = |reason| Refusal {
                reason,
                position: 0,
                retry_after: Some(until.saturating_duration_since(now)),
                why: Some(held_since(now, ticket.queued_at, until)),
                max_tokens: None,
            };
            if !may_wait(until) {
                return Err(rejection(Reason::CoolDown));
            }
            if held_call.is_none() {
                let counted = HeldCall::new(&self.held, ticket, config);
                held_call = Some(counted.ok_or_else(|| rejection(Reason::QueueFull))?);
            }
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => {}
                () = changed => {}
            }
        }
    }

    /// Returns `true` if a call of the key that has got a slot may be sent, and `false` if the key
    /// is in a cool-down. The first call that may be sent after a cool-down is a probe. Until the
    /// probe has ended, but for at most 1 s, no other call of the key may be sent.
    pub(crate) fn admit(&self, key: u64) -> bool {
        self.cooldowns.lock().admit(clock::now(), key)
    }

    /// Records the failure of an attempt that was sent at `sent`. `delay` is the time after which
    /// the upstream allows a retry, or `None` if it stated none. Returns
    /// [`RetryPath::AfterCoolDown`] if the key is now in a cool-down, otherwise
    /// [`RetryPath::Backoff`].
    pub(crate) fn on_failure(&self, key: u64, sent: Instant, delay: Option<Duration>) -> RetryPath {
        let mut cooldowns = self.cooldowns.lock();
        let now = clock::now();
        let held = match delay {
            Some(delay) => cooldowns.cool_down(now, sent, key, delay, fastrand::f64()),
            None => cooldowns.until(now, key).is_some(),
        };
        if held { RetryPath::AfterCoolDown } else { RetryPath::Backoff }
    }

    /// Records that an attempt of the key that was sent at `sent` succeeded. If the attempt was the
    /// probe of the key, ends the cool-down and wakes the waiting calls. Otherwise has no effect.
    pub(crate) fn on_success(&self, key: u64, sent: Instant) {
        let is_opened = self.cooldowns.lock().on_success(clock::now(), sent, key);
        if is_opened {
            self.changed.notify_waiters();
        }
    }

    /// Returns why a call of the key that was made at `queued_at` waits. `None` if the key is not
    /// in a cool-down.
    pub(crate) fn explain(&self, key: u64, queued_at: Instant) -> Option<WaitExplanation> {
        let now = clock::now();
        self.cooldowns.lock().until(now, key).map(|until| held_since(now, queued_at, until))
    }

    /// Returns the end of the key's cool-down. `None` if the key is not in a cool-down.
    pub(crate) fn until(&self, key: u64) -> Option<Instant> {
        self.cooldowns.lock().until(clock::now(), key)
    }

    /// Returns `true` if any key is in a cool-down.
    pub(crate) fn is_cooling(&self) -> bool {
        self.cooldowns.lock().is_cooling(clock::now())
    }

    /// Adds to `view` the calls that wait for the end of a cool-down now, and the time until the
    /// last cool-down ends.
    pub(super) fn add_to(&self, view: &mut SchedulerView) {
        let now = clock::now();
        let until = self.cooldowns.lock().last_until(now);
        view.cool_for = view.cool_for.max(until.map(|until| until.saturating_duration_since(now)));
        let held = self.held.lock();
        for (lane, calls) in view.lanes.iter_mut().zip(held.by_lane) {
            view.waiting += calls;
            lane.waiting += calls;
        }
        for (name, by_lane) in &held.by_tenant {
            let calls = by_lane.iter().sum();
            match view.tenants.iter_mut().find(|tenant| tenant.name == *name) {
                Some(tenant) => tenant.waiting += calls,
                None => view.tenants.push(TenantView {
                    name: name.clone(),
                    in_flight: 0,
                    peak: 0,
                    waiting: calls,
                    floor: 0,
                    debt: 0,
                    held_for: None,
                }),
            }
        }
    }

    /// Ends the waits of all calls, which then continue to the queue and are rejected there.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }
}

/// Returns the explanation, at `now`, of a call that was made at `queued_at` and waits for a
/// cool-down until `until`.
fn held_since(now: Instant, queued_at: Instant, until: Instant) -> WaitExplanation {
    let waited = now.saturating_duration_since(queued_at);
    let expected = Some(until.saturating_duration_since(now));
    WaitExplanation { rule: Rule::CoolDown, origin: None, since: waited, waited, ahead: 0, expected }
}

/// The numbers of calls that wait for the end of a cool-down now.
#[derive(Debug, Default)]
struct HeldCalls {
    by_lane: [usize; 3],
    /// The calls of each tenant by lane. There is no entry without calls.
    by_tenant: HashMap<Arc<str>, [usize; 3]>,
}

impl HeldCalls {
    /// Returns `true` if no other new call of the tenant in the lane may wait.
    fn is_full(&self, tenant: &Arc<str>, lane: Lane, config: &TargetConfig) -> bool {
        let of_tenant: usize = self.by_tenant.get(tenant).map_or(0, |by_lane| by_lane.iter().sum());
        let max_of_tenant = config.tenants.get(tenant).unwrap_or(&config.default_tenant).queue;
        let max_of_lane = config.lanes[lane as usize].queue;
        of_tenant >= max_of_tenant.unwrap_or(config.queue)
            || max_of_lane.is_some_and(|max| self.by_lane[lane as usize] >= max)
            || self.by_lane.iter().sum::<usize>() >= config.backlog
    }
}

/// A guard that counts one call as waiting for the end of a cool-down, until the guard is dropped.
struct HeldCall<'a> {
    held: &'a Mutex<HeldCalls>,
    tenant: Arc<str>,
    lane: Lane,
}

impl<'a> HeldCall<'a> {
    /// Counts the call of `ticket` in `held` until the returned guard is dropped. Returns `None`,
    /// and counts nothing, if the call is new and `held` is full.
    fn new(held: &'a Mutex<HeldCalls>, ticket: &Ticket, config: &TargetConfig) -> Option<Self> {
        let (tenant, lane) = (ticket.tenant.clone(), ticket.lane);
        let mut calls = held.lock();
        if !ticket.ignores_queue_size() && calls.is_full(&tenant, lane, config) {
            return None;
        }
        calls.by_lane[lane as usize] += 1;
        calls.by_tenant.entry(tenant.clone()).or_default()[lane as usize] += 1;
        Some(Self { held, tenant, lane })
    }
}

impl Drop for HeldCall<'_> {
    fn drop(&mut self) {
        let mut calls = self.held.lock();
        calls.by_lane[self.lane as usize] -= 1;
        if let Some(by_lane) = calls.by_tenant.get_mut(&self.tenant) {
            by_lane[self.lane as usize] -= 1;
            if *by_lane == [0; 3] {
                calls.by_tenant.remove(&self.tenant);
            }
        }
    }
}
