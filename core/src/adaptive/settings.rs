//! What a limit is set up with.

use std::time::Duration;

use crate::config::AdaptiveConfig;

/// What a limit is set up with.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The ceiling: the cap.
    pub max: usize,
    /// The upstream's part of the TTFT objective: the longest from sending to the first token. `None`: three times what calls of a kind take when
    /// there is room.
    pub objective: Option<Duration>,
    /// The longest from sending to the end, of calls that do not stream. `None`: three times what calls of a kind take when there is room.
    pub latency: Option<Duration>,
    /// The longest between two tokens, on average over a call. `None`: not watched.
    pub tpot: Option<Duration>,
    /// The rest.
    pub adaptive: AdaptiveConfig,
}
