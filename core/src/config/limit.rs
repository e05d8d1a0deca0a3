//! How many slots of a cap are in force: as many as the upstream can take, or all of them.
//!
//! Plain values, in range, as those of [`super::model`].

use std::time::Duration;

/// How many slots of the cap are in force.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitConfig {
    /// All of them, always.
    Fixed,
    /// As many as the upstream can take.
    Adaptive(AdaptiveConfig),
}

/// How the adaptive limit moves.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveConfig {
    /// Slots at the start (from the floor to the cap). Default 8, or the nearest to it within those. It doubles from there until the first cut;
    /// under a percentile it rises by one a tick.
    pub start: usize,
    /// The floor (1 to the cap). Default 1.
    pub min: usize,
    /// Default: [`Detector::Exceedance`].
    pub detector: Detector,
    /// How far a cut for late calls goes. Default: [`Decrease::Served`].
    pub decrease: Decrease,
    /// The most calls that may await their first token at once (1 to 65,536). Default: found as well under [`Decrease::Served`], else not
    /// bounded.
    pub awaiting: Option<usize>,
}

/// What takes first tokens for too late.
#[derive(Clone, Debug, PartialEq)]
pub enum Detector {
    /// A sequential test of the share of calls over the objective, by kind of call (the default).
    Exceedance,
    /// A percentile over a window, looked at in ticks.
    Percentile(Percentile),
}

/// A percentile over a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentile {
    /// Which (0.01 to 0.999). Default 0.99.
    pub quantile: f64,
    /// The window (1 s to 1 h). Default 30 s.
    pub window: Duration,
    /// How often it is looked at (100 ms to 10 min). Default 5 s.
    pub tick: Duration,
    /// The dead band on either side of the objective, as a share of it (0 to 0.9). Default 0.2.
    pub band: f64,
    /// Ticks that pass after a cut before the next one (0 to 1,000). Default 3.
    pub hold: u32,
}

/// How far a cut for late calls goes.
///
/// Of those alone: a run of 429s that are not for a rate cuts to what was taken in, and 503s, 529s, timeouts and a TPOT above its objective by a
/// tenth, whatever is set here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decrease {
    /// To what the upstream is seen to serve at once, or by a tenth where that cannot be seen (the default).
    Served,
    /// To this share of what it was (0.1 to 0.99).
    Factor(f64),
    /// By so many slots (1 to 65,536).
    Step(usize),
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self { start: 8, min: 1, detector: Detector::Exceedance, decrease: Decrease::Served, awaiting: None }
    }
}

impl Default for Percentile {
    fn default() -> Self {
        Self {
            quantile: 0.99,
            window: Duration::from_secs(30),
            tick: Duration::from_secs(5),
            band: 0.2,
            hold: 3,
        }
    }
}
