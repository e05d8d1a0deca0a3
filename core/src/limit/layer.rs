//! The layer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower::Layer;

use super::state::LimitState;
use super::{AdaptiveLimit, AdaptiveLimitBuilder, HttpJudge, Judge, Snapshot};
use crate::config::TargetConfig;

/// Lets through as many calls at once as the service below keeps to the objective with; the rest
/// wait, first come first served.
///
/// **One layer is one limit**: its clones, and all services that it makes, share it and its queue.
/// An upstream of its own needs a layer of its own.
///
/// *Default* ([`AdaptiveLimitLayer::new`]): starts at 8 slots, and finds its number between 1 and
/// 256; up to 10,000 calls wait, for 10 minutes at most.
pub struct AdaptiveLimitLayer<J = HttpJudge> {
    pub(super) state: Arc<LimitState<J>>,
}

impl AdaptiveLimitLayer {
    /// A limit that keeps to this objective (1 ms to 10 minutes; beyond, the nearest of the two),
    /// with every default.
    ///
    /// The objective is the *caller's*, wait for a slot included: half of it is the upstream's,
    /// from getting the slot to the first token, or to the end of an answer that does not stream.
    /// With a wait budget ([`AdaptiveLimitBuilder::wait`]) the upstream has what that leaves, if it
    /// is more.
    pub fn new(objective: Duration) -> Self {
        let mut config = TargetConfig::new("limit");
        config.ttft = Some(objective.clamp(Duration::from_millis(1), config.deadline));
        Self { state: LimitState::new(&config, None, HttpJudge) }
    }

    /// A limit with settings of its own. It goes by that name in errors and logs (1 to 200 bytes).
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
    /// What the limit sees now, and why it moved.
    pub fn snapshot(&self) -> Snapshot {
        self.state.snapshot()
    }
}

// By hand: a derived one would want the judge to be `Clone`.
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
