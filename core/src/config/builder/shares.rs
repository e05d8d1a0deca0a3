//! What tenants and lanes have to themselves, in code.

use std::time::Duration;

use super::{count, or_none, time, whole};
use crate::config::parse::tree::{Table, Value};

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

    /// `floor`: the share of the slots in force that is its own whenever it wants them. Only named tenants have one.
    pub fn floor(self, share: f64) -> Self {
        self.set("floor", Value::Float(share))
    }

    /// `tpm`: tokens it may take a minute, what it takes beyond them being owed; `None` for no such bound.
    pub fn tpm(self, tokens: impl Into<Option<u64>>) -> Self {
        self.set("tpm", or_none(tokens.into().map(count)))
    }

    /// `shed`: whether its waiting calls may be refused to make room for more urgent ones.
    pub fn shed(self, yes: bool) -> Self {
        self.set("shed", Value::Bool(yes))
    }
}

/// What a lane has to itself, for [`Target::lane`](super::Target::lane).
#[derive(Clone, Default)]
pub struct LaneSettings {
    pub(super) keys: Table,
}

impl LaneSettings {
    /// A lane with no floor, and no bounds but the target's.
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `floor`: the share of the slots in force that is its own whenever it wants them.
    pub fn floor(self, share: f64) -> Self {
        self.set("floor", Value::Float(share))
    }

    /// `queue`: the most of its calls that may wait, of all tenants together; `None` for no such bound.
    pub fn queue(self, calls: impl Into<Option<usize>>) -> Self {
        self.set("queue", or_none(calls.into().map(whole)))
    }

    /// `wait`: the wait budget of its calls; `None` for the target's.
    pub fn wait(self, longest: impl Into<Option<Duration>>) -> Self {
        self.set("wait", time(longest))
    }

    /// `ttft`: its objective for the time to first token; `None` for the target's.
    pub fn ttft(self, objective: impl Into<Option<Duration>>) -> Self {
        self.set("ttft", time(objective))
    }
}
