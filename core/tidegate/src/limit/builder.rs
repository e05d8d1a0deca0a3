//! The builder of an adaptive limit. Its settings are those of a target that concern the limit and
//! the queue, with the same ranges and errors.

use std::time::Duration;

use super::state::LimitState;
use super::{AdaptiveLimitLayer, HttpJudge, Judge};
use crate::config::{Config, LimitSettings, Target};
use crate::duration;
use crate::error::Error;

/// A builder for an [`AdaptiveLimitLayer`]. See [`AdaptiveLimitLayer::builder`].
#[derive(Clone)]
#[must_use = "the builder limits nothing before `build`"]
pub struct AdaptiveLimitBuilder<J = HttpJudge> {
    target: Target,
    /// The latency objective of calls that do not stream: `None` if the setting was not made,
    /// `Some(None)` if it was set to no objective.
    latency: Option<Option<Duration>>,
    judge: J,
}

impl AdaptiveLimitBuilder {
    pub(super) fn new(name: impl Into<String>) -> Self {
        // With a table of limit settings, a cap without an objective is the ceiling of the adaptive
        // limit. Without the table, it would be a fixed limit.
        let target = Target::new(name).limit(LimitSettings::new());
        Self { target, latency: None, judge: HttpJudge }
    }
}

impl<J: Judge> AdaptiveLimitBuilder<J> {
    fn map(self, set: impl FnOnce(Target) -> Target) -> Self {
        Self { target: set(self.target), ..self }
    }

    /// Sets the objective: the maximum time from the request to the first token, including the wait
    /// for a slot (1 ms to 10 minutes; see [`AdaptiveLimitLayer::new`]). Unless
    /// [`wait`](Self::wait) is set, it also bounds the wait of each call, whether or not the call
    /// streams.
    ///
    /// `None` (default) sets no objective: a response is then late if it takes three times as long
    /// as comparable calls take without load.
    pub fn objective(self, objective: impl Into<Option<Duration>>) -> Self {
        self.map(|target| target.ttft(objective))
    }

    /// Sets the objective of calls whose [`CallKind`](crate::adaptive::CallKind) does not stream:
    /// the maximum time from getting the slot to the end of the body. Shorter times than 1 ms are
    /// increased to 1 ms.
    ///
    /// With `None`, a response is late if it takes three times as long as comparable calls take
    /// without load. Default: the part of [`objective`](Self::objective) that the upstream may use
    /// (see [`AdaptiveLimitLayer::new`]).
    pub fn latency(self, latency: impl Into<Option<Duration>>) -> Self {
        let latency = latency.into().map(|latency| latency.clamp(Duration::from_millis(1), duration::MAX));
        Self { latency: Some(latency), ..self }
    }

    /// Sets the maximum of the limit, in slots (1 to 65,536). Default: 256.
    pub fn cap(self, slots: usize) -> Self {
        self.map(|target| target.cap(slots))
    }

    /// Sets how the limit adapts. A later call of this method replaces all settings of an earlier
    /// one. Default: [`LimitSettings::new`].
    pub fn limit(self, settings: LimitSettings) -> Self {
        self.map(|target| target.limit(settings))
    }

    /// Sets the maximum number of waiting calls (0 to 1,000,000). Further calls are rejected.
    /// Default: 10,000.
    pub fn queue(self, calls: usize) -> Self {
        self.map(|target| target.queue(calls))
    }

    /// Sets the wait budget: the maximum time that a call may wait for its slot (1 ms to 10
    /// minutes). A call whose predicted wait is longer is rejected immediately.
    ///
    /// With `None` (default), a call waits only as long as it can still meet the
    /// [`objective`](Self::objective), or for at most 10 minutes if there is no objective.
    pub fn wait(self, longest: impl Into<Option<Duration>>) -> Self {
        self.map(|target| target.wait(longest))
    }

    /// Sets how requests, responses and errors are interpreted. Default: [`HttpJudge`].
    pub fn judge<K: Judge>(self, judge: K) -> AdaptiveLimitBuilder<K> {
        AdaptiveLimitBuilder { target: self.target, latency: self.latency, judge }
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), with one line for each setting that is out
    /// of range or in conflict with another.
    pub fn build(self) -> Result<AdaptiveLimitLayer<J>, Error> {
        let config = Config::builder().target(self.target).build()?;
        let [target] = config.targets.as_slice() else { return Err(Error::config("a limit needs a name")) };
        Ok(AdaptiveLimitLayer { state: LimitState::new(target, self.latency, self.judge) })
    }
}
