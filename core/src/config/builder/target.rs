//! Targets and their retry settings in code.

use std::time::Duration;

use super::{LaneSettings, Tenant, count, or_none, text, time, whole};
use crate::config::parse::tree::{Table, Value};
use crate::config::{CostRule, Lane, OnFull, Predict, Tokenizer};

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

    pub(super) fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `url`: a base URL whose requests are this target's; one more with each call.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.keys.append("url", text(url));
        self
    }

    /// `url = "none"`: no request is this target's; its slots are held by `Gate::acquire_slot` alone.
    pub fn slots_only(self) -> Self {
        self.set("url", text("none"))
    }

    /// `models`: a model name or pattern (`gpt-4o*`); one more with each call.
    pub fn model(mut self, pattern: impl Into<String>) -> Self {
        self.keys.append("models", text(pattern));
        self
    }

    /// `cap`: the most slots. Without a [`ttft`](Target::ttft) or a [`limit`](Target::limit) it is the number in force as well.
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
        self.set("on_full", text(what.as_str()))
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

    /// `ttft`: the objective for the time to first token, which the adaptive limit keeps to; `None` for none.
    pub fn ttft(self, objective: impl Into<Option<Duration>>) -> Self {
        self.set("ttft", time(objective))
    }

    /// `aging`: how much waiting raises a lane by one; it then goes before that one for an eighth of the capacity.
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

    /// `lanes.LANE`: what a lane has to itself.
    pub fn lane(mut self, lane: Lane, settings: LaneSettings) -> Self {
        self.keys.add("lanes", lane.as_str().into(), settings.keys);
        self
    }

    /// `backlog`: the most calls that may wait, of all tenants together.
    pub fn backlog(self, calls: usize) -> Self {
        self.set("backlog", whole(calls))
    }

    /// `cost`: what a call is charged in fair queueing.
    pub fn cost(self, rule: CostRule) -> Self {
        self.set("cost", text(rule.as_str()))
    }

    /// `short_bias`: by how much later a call of a thousand tokens stands in its tenant's own queue; `None` for not at all.
    pub fn short_bias(self, later: impl Into<Option<Duration>>) -> Self {
        self.set("short_bias", time(later))
    }

    /// `reclaim`: whether a call that was lent another's floor, and has no answer yet, is called back when the other wants it.
    pub fn reclaim(self, yes: bool) -> Self {
        self.set("reclaim", Value::Bool(yes))
    }

    /// `predict`: when a call is refused because it would wait too long.
    pub fn predict(self, when: Predict) -> Self {
        self.set("predict", text(when.as_str()))
    }

    /// `max_prompt`: the longest prompt, in estimated tokens; `None` for any.
    pub fn max_prompt(self, tokens: impl Into<Option<u64>>) -> Self {
        self.set("max_prompt", or_none(tokens.into().map(count)))
    }

    /// `kv_tokens`: how many tokens the engine's memory for keys and values holds; `None` where it is not known.
    pub fn kv_tokens(self, tokens: impl Into<Option<u64>>) -> Self {
        self.set("kv_tokens", or_none(tokens.into().map(count)))
    }

    /// `kv_headroom`: the share of that memory that is kept free.
    pub fn kv_headroom(self, share: f64) -> Self {
        self.set("kv_headroom", Value::Float(share))
    }

    /// `tokenizer`: how prompts are counted.
    pub fn tokenizer(self, tokenizer: Tokenizer) -> Self {
        self.set("tokenizer", text(tokenizer.as_str()))
    }

    /// `ask_usage`: whether streams are asked to report their usage where the caller did not ask.
    pub fn ask_usage(self, yes: bool) -> Self {
        self.set("ask_usage", Value::Bool(yes))
    }

    /// `fallback`: the name of the target that takes what this one refuses; `None` for none.
    pub fn fallback<'a>(self, target: impl Into<Option<&'a str>>) -> Self {
        self.set("fallback", or_none(target.into().map(text)))
    }

    /// `model`: the model that calls ask for which fall back to this target. Not the models whose requests it takes: [`Target::model`].
    pub fn fallback_model(self, name: impl Into<String>) -> Self {
        self.set("model", text(name))
    }

    /// `key_env`: the environment variable with the credential of calls that fall back to this target. Without it the caller's own
    /// goes along to the same host only, unless `forward_headers` names its header.
    pub fn key_env(self, variable: impl Into<String>) -> Self {
        self.set("key_env", text(variable))
    }

    /// `forward_headers`: a caller header that this target receives, beside the [standard
    /// allowlist](crate::config#fallbacks), when a call falls back to it on another server or with
    /// the key of [`key_env`](Target::key_env). Adds one such header. Default: none.
    pub fn forward_header(mut self, name: impl Into<String>) -> Self {
        self.keys.append("forward_headers", text(name));
        self
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
