//! How many slots of a cap are in force, in code.

use std::time::Duration;

use super::{Target, Tool, or_none, text, time, whole};
use crate::config::parse::tree::{Table, Value};
use crate::config::{Decrease, Detector, Percentile};

/// How a limit adapts, for [`Target::limit`] and [`Tool::limit`]. Defaults and ranges: the [table](crate::config#limits).
///
/// ```
/// use std::time::Duration;
/// use tidegate::config::{Config, Decrease, LimitConfig, LimitSettings, Target};
///
/// let limit = LimitSettings::new().start(16).decrease(Decrease::Factor(0.9));
/// let config = Config::builder()
///     .target(Target::new("openai").ttft(Duration::from_secs(2)).limit(limit))
///     .target(Target::new("groq").cap(32))
///     .build()?;
/// assert!(matches!(&config.targets[0].limit, LimitConfig::Adaptive(keys) if keys.start == 16));
/// assert_eq!(config.targets[1].limit, LimitConfig::Fixed);
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct LimitSettings {
    keys: Table,
}

impl LimitSettings {
    /// An adaptive limit with the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.put(key, value);
        self
    }

    /// `start`: slots at the start. It doubles from there until the first cut; under a percentile it rises by one a tick.
    pub fn start(self, slots: usize) -> Self {
        self.set("start", whole(slots))
    }

    /// `min`: the floor.
    pub fn min(self, slots: usize) -> Self {
        self.set("min", whole(slots))
    }

    /// `awaiting`: the most calls that may await their first token at once; `None`: found as well under
    /// [`Decrease::Served`], else not bounded.
    pub fn awaiting(self, calls: impl Into<Option<usize>>) -> Self {
        self.set("awaiting", or_none(calls.into().map(whole)))
    }

    /// `decrease`: how far a cut for late calls goes; see [`Decrease`] for the others.
    pub fn decrease(self, how: Decrease) -> Self {
        let value = match how {
            Decrease::Served => text("served"),
            Decrease::Factor(share) => Value::Float(share),
            Decrease::Step(slots) => {
                let mut step = Table::default();
                step.put("step", whole(slots));
                Value::Table(step)
            }
        };
        self.set("decrease", value)
    }

    /// `detector`: what takes first tokens for too late.
    pub fn detector(self, detector: Detector) -> Self {
        let value = match &detector {
            Detector::Exceedance => text(detector.as_str()),
            Detector::Percentile(percentile) => Value::Table(settings_of(percentile)),
        };
        self.set("detector", value)
    }
}

fn settings_of(percentile: &Percentile) -> Table {
    let Percentile { quantile, window, tick, band, hold } = percentile;
    let mut keys = Table::default();
    keys.put("quantile", Value::Float(*quantile));
    keys.put("window", time(*window));
    keys.put("tick", time(*tick));
    keys.put("band", Value::Float(*band));
    keys.put("hold", Value::Whole((*hold).into()));
    keys
}

/// How many of its slots are in force. Without a word the limit adapts, but where there is a [`cap`](Target::cap) and no
/// [`ttft`](Target::ttft), of a lane neither: then it is fixed at that cap.
impl Target {
    /// `limit`: adaptive, with these settings; the cap is its ceiling.
    pub fn limit(self, settings: LimitSettings) -> Self {
        self.set("limit", Value::Table(settings.keys))
    }

    /// `limit = "fixed"`: as many slots as the cap, always.
    pub fn fixed(self) -> Self {
        self.set("limit", text("fixed"))
    }

    /// `tpot`: the objective for the time between two tokens, on average over a call, that the adaptive limit keeps to; `None` for none.
    pub fn tpot(self, objective: impl Into<Option<Duration>>) -> Self {
        self.set("tpot", time(objective))
    }
}

/// How many of its slots are in force: all of them, unless a [`latency`](Tool::latency) or a [`limit`](Tool::limit) is set.
impl Tool {
    /// `limit`: adaptive, with these settings; the cap is its ceiling.
    pub fn limit(self, settings: LimitSettings) -> Self {
        self.set("limit", Value::Table(settings.keys))
    }

    /// `limit = "fixed"`: as many slots as the cap, always.
    pub fn fixed(self) -> Self {
        self.set("limit", text("fixed"))
    }

    /// `latency`: the objective for how long a call takes, that the adaptive limit keeps to; `None` for none.
    pub fn latency(self, objective: impl Into<Option<Duration>>) -> Self {
        self.set("latency", time(objective))
    }
}
