//! A limit's settings: those of a target that concern its limit and its queue, with the same ranges
//! and errors.

use std::time::Duration;

use super::state::LimitState;
use super::{AdaptiveLimitLayer, HttpJudge, Judge};
use crate::config::{Config, LimitSettings, Target};
use crate::duration;
use crate::error::Error;

/// Builds an [`AdaptiveLimitLayer`]: see [`AdaptiveLimitLayer::builder`].
#[derive(Clone)]
#[must_use = "nothing is limited before `build`"]
pub struct AdaptiveLimitBuilder<J = HttpJudge> {
    target: Target,
    latency: Option<Option<Duration>>,
    judge: J,
}

impl AdaptiveLimitBuilder {
    pub(super) fn new(name: impl Into<String>) -> Self {
        // An empty table of settings: a cap without an objective is a ceiling here, and not the
        // limit itself.
        let target = Target::new(name).limit(LimitSettings::new());
        Self { target, latency: None, judge: HttpJudge }
    }
}

impl<J: Judge> AdaptiveLimitBuilder<J> {
    fn map(self, set: impl FnOnce(Target) -> Target) -> Self {
        Self { target: set(self.target), ..self }
    }

    /// The longest until the first token, wait for a slot included (1 ms to 10 minutes; see
    /// [`AdaptiveLimitLayer::new`]). Default: none, and an answer is late that takes three times
    /// what its like take when there is room.
    pub fn objective(self, objective: impl Into<Option<Duration>>) -> Self {
        self.map(|target| target.ttft(objective))
    }

    /// The longest that a call may take whose [`CallKind`](crate::adaptive::CallKind) says that it does not stream, from getting its slot to the end of its
    /// body (1 ms at least); `None`: three times what its like take when there is room. Default: the upstream's part of the objective.
    pub fn latency(self, latency: impl Into<Option<Duration>>) -> Self {
        let latency = latency.into().map(|latency| latency.clamp(Duration::from_millis(1), duration::MAX));
        Self { latency: Some(latency), ..self }
    }

    /// The ceiling (1 to 65,536). Default 256.
    pub fn cap(self, slots: usize) -> Self {
        self.map(|target| target.cap(slots))
    }

    /// How the limit adapts, in place of what was set of it before. Default:
    /// [`LimitSettings::new`].
    pub fn limit(self, settings: LimitSettings) -> Self {
        self.map(|target| target.limit(settings))
    }

    /// The most calls that may wait (0 to 1,000,000). Default 10,000.
    pub fn queue(self, calls: usize) -> Self {
        self.map(|target| target.queue(calls))
    }

    /// The wait budget: the longest that a call may wait for its slot (1 ms to 10 minutes); one
    /// that is predicted to wait longer is refused at once. Default: 10 minutes.
    pub fn wait(self, longest: impl Into<Option<Duration>>) -> Self {
        self.map(|target| target.wait(longest))
    }

    /// Who reads requests and answers. Default: [`HttpJudge`].
    pub fn judge<K: Judge>(self, judge: K) -> AdaptiveLimitBuilder<K> {
        AdaptiveLimitBuilder { target: self.target, latency: self.latency, judge }
    }

    /// The layer.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), naming each setting that is out of range or
    /// in conflict, one a line.
    pub fn build(self) -> Result<AdaptiveLimitLayer<J>, Error> {
        let config = Config::builder().target(self.target).build()?;
        let [target] = config.targets.as_slice() else { return Err(Error::config("a limit needs a name")) };
        Ok(AdaptiveLimitLayer { state: LimitState::new(target, self.latency, self.judge) })
    }
}
