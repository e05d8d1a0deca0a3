//! Settings of an adaptive limit.

use std::time::Duration;

use tidegate_config::AdaptiveConfig;

/// Settings of an adaptive limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitSettings {
    /// Maximum number of slots: the configured cap.
    pub max: usize,
    /// Upstream's share of the TTFT objective: the maximum time from sending a call to its first
    /// token. `None`: three times what similar calls take on an uncongested upstream.
    pub objective: Option<Duration>,
    /// Maximum time from sending a call that does not stream to its end. `None`: three times what
    /// similar calls take on an uncongested upstream.
    pub latency: Option<Duration>,
    /// Maximum mean time between two tokens of a call. `None`: not checked.
    pub tpot: Option<Duration>,
    /// The remaining settings.
    pub adaptive: AdaptiveConfig,
}
