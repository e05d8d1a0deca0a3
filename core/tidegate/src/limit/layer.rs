//! The tower layer of the adaptive limit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower::Layer;

use super::state::LimitState;
use super::{AdaptiveLimit, AdaptiveLimitBuilder, AdaptiveLimitSnapshot, HttpJudge, Judge};
use crate::config::TargetConfig;

/// A layer that limits concurrency to the number of calls that the service below completes within
/// the objective. Further calls wait in a first-come, first-served queue.
///
/// **One layer is one limit**: its clones, and all services that it creates, share its slots and
/// its queue. Use a separate layer for each upstream.
///
/// With the default settings, the limit starts at 8 slots and adapts between 1 and 256. Up to
/// 10,000 calls wait, each as long as it can still meet the objective, or for at most 10 minutes if
/// there is no objective. Further calls are rejected.
pub struct AdaptiveLimitLayer<J = HttpJudge> {
    pub(super) state: Arc<LimitState<J>>,
}

impl AdaptiveLimitLayer {
    /// Creates a limit with this latency objective and default settings. The objective is clamped
    /// to 1 ms to 10 minutes.
    ///
    /// The objective includes the caller's wait for a slot. Half of it is the upstream's share: the
    /// time from getting the slot to the first token, or to the end of a response that does not
    /// stream. If there is a wait budget ([`AdaptiveLimitBuilder::wait`]) and it leaves more than
    /// half, the upstream's share is the rest.
    ///
    /// Without a wait budget, a call waits for at most the part of the objective that the upstream
    /// does not need: the objective minus a time within which nearly all recent first tokens
    /// arrived, and half of the objective before the first one. A call that is still waiting then,
    /// or whose predicted wait is longer, is rejected.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::limit::AdaptiveLimitLayer;
    ///
    /// let limit = AdaptiveLimitLayer::new(Duration::from_secs(2));
    /// assert_eq!(limit.snapshot().limit, 8);
    /// ```
    pub fn new(objective: Duration) -> Self {
        let mut config = TargetConfig::new("limit");
        config.ttft = Some(objective.clamp(Duration::from_millis(1), config.deadline));
        Self { state: LimitState::new(&config, None, HttpJudge) }
    }

    /// Starts to configure a limit. Errors and logs contain `name` (1 to 200 bytes).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::config::LimitSettings;
    /// use tidegate::limit::AdaptiveLimitLayer;
    ///
    /// let limit = AdaptiveLimitLayer::builder("llama")
    ///     .objective(Duration::from_secs(2))
    ///     .wait(Duration::from_millis(500))
    ///     .queue(200)
    ///     .cap(128)
    ///     .limit(LimitSettings::new().start(16).min(2))
    ///     .build()?;
    /// assert_eq!(limit.snapshot().limit, 16);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn builder(name: impl Into<String>) -> AdaptiveLimitBuilder {
        AdaptiveLimitBuilder::new(name)
    }
}

impl<J> AdaptiveLimitLayer<J> {
    /// Returns the current state of the limit and its queue, and the latest changes of the limit.
    pub fn snapshot(&self) -> AdaptiveLimitSnapshot {
        self.state.snapshot()
    }
}

// Not derived: a derived implementation would require `J: Clone`.
impl<J> Clone for AdaptiveLimitLayer<J> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone() }
    }
}

impl<S, J: Judge> Layer<S> for AdaptiveLimitLayer<J> {
    type Service = AdaptiveLimit<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        AdaptiveLimit { inner, state: self.state.clone() }
    }
}

impl<J> fmt::Debug for AdaptiveLimitLayer<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimitLayer").field("state", &self.state).finish()
    }
}
