//! Targets, tenants and retry settings in code.

use std::time::Duration;

use super::{on_full, or_none, text, time, whole};
use crate::config::OnFull;
use crate::config::parse::tree::{Table, Value};

/// A target, for [`ConfigBuilder::target`](super::ConfigBuilder::target). Units, defaults and ranges: the [table](crate::config).
#[derive(Clone)]
pub struct Target {
    pub(super) name: String,
    pub(super) keys: Table,
}

impl Target {
    /// A target of this name: a well-known provider's brings its URLs along.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), keys: Table::default() }
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `url`: a base URL whose requests are this target's; one more with each call.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.keys.append("url", text(url));
        self
    }

    /// `url = "none"`: no request is this target's; its slots are held by [`Gate::acquire_slot`](crate::Gate::acquire_slot) alone.
    pub fn slots_only(self) -> Self {
        self.set("url", text("none"))
    }

    /// `models`: a model name or pattern (`gpt-4o*`); one more with each call.
    pub fn model(mut self, pattern: impl Into<String>) -> Self {
        self.keys.append("models", text(pattern));
        self
    }

    /// `cap`: the most slots.
    pub fn cap(self, slots: usize) -> Self {
        self.set("cap", whole(slots))
    }

    /// `queue`: the most calls that may wait, per tenant.
    pub fn queue(self, calls: usize) -> Self {
        self.set("queue", whole(calls))
    }

    /// `wait`: the wait budget; `None` for none.
    pub fn wait(self, longest: impl Into<Option<Duration>>) -> Self {
        self.set("wait", time(longest))
    }

    /// `on_full`: queue, or refuse at once.
    pub fn on_full(self, what: OnFull) -> Self {
        self.set("on_full", on_full(what))
    }

    /// `deadline`: the longest a whole call may take.
    pub fn deadline(self, longest: Duration) -> Self {
        self.set("deadline", time(longest))
    }

    /// `first_token`: the longest from sending to the first token; `None` for no limit.
    pub fn first_token(self, longest: impl Into<Option<Duration>>) -> Self {
        self.set("first_token", time(longest))
    }

    /// `idle`: the longest silence between chunks; `None` for no limit.
    pub fn idle(self, longest: impl Into<Option<Duration>>) -> Self {
        self.set("idle", time(longest))
    }

    /// `stall`: how long a reader may leave a chunk unasked-for; `None` for no limit.
    pub fn stall(self, longest: impl Into<Option<Duration>>) -> Self {
        self.set("stall", time(longest))
    }

    /// `ttft`: the objective for the time to first token; `None` for none.
    pub fn ttft(self, objective: impl Into<Option<Duration>>) -> Self {
        self.set("ttft", time(objective))
    }

    /// `aging`: how much waiting raises a call by one lane.
    pub fn aging(self, step: Duration) -> Self {
        self.set("aging", time(step))
    }

    /// `retry`: how attempts follow each other.
    pub fn retry(self, retry: Retry) -> Self {
        self.set("retry", Value::Table(retry.keys))
    }

    /// `tenants.ID`: a named tenant's share of this target.
    pub fn tenant(mut self, id: impl Into<String>, tenant: Tenant) -> Self {
        self.keys.add("tenants", id.into(), tenant.keys);
        self
    }

    /// `default_tenant`: what tenants get that are not named.
    pub fn default_tenant(self, tenant: Tenant) -> Self {
        self.set("default_tenant", Value::Table(tenant.keys))
    }
}

/// A tenant's share of a target.
#[derive(Clone, Default)]
pub struct Tenant {
    pub(super) keys: Table,
}

impl Tenant {
    /// A tenant with weight 1 and no bounds of its own.
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `weight`: its weight in fair queueing.
    pub fn weight(self, weight: f64) -> Self {
        self.set("weight", Value::Float(weight))
    }

    /// `cap`: the most slots it may hold; `None` for the target's.
    pub fn cap(self, slots: impl Into<Option<usize>>) -> Self {
        self.set("cap", or_none(slots.into().map(whole)))
    }

    /// `queue`: the most of its calls that may wait; `None` for the target's.
    pub fn queue(self, calls: impl Into<Option<usize>>) -> Self {
        self.set("queue", or_none(calls.into().map(whole)))
    }
}

/// How attempts follow each other, for [`Target::retry`].
#[derive(Clone, Default)]
pub struct Retry {
    keys: Table,
}

impl Retry {
    /// The default retry settings.
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `attempts`: the most attempts of one call, the first included.
    pub fn attempts(self, attempts: usize) -> Self {
        self.set("attempts", whole(attempts))
    }

    /// `base`: the first backoff's upper bound.
    pub fn base(self, first: Duration) -> Self {
        self.set("base", time(first))
    }

    /// `max`: the longest backoff.
    pub fn max(self, longest: Duration) -> Self {
        self.set("max", time(longest))
    }

    /// `ratio`: retries earned per recent call.
    pub fn ratio(self, ratio: f64) -> Self {
        self.set("ratio", Value::Float(ratio))
    }

    /// `reserve`: retries that need not be earned.
    pub fn reserve(self, retries: usize) -> Self {
        self.set("reserve", whole(retries))
    }
}
