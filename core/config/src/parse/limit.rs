//! Reads limits: whether a limit is fixed or adaptive, and its settings.

use crate::schema::declaration::{Group, names};
use crate::schema::given::{Given, Section};
use crate::schema::setting::InvalidValue;
use crate::schema::tree::Value;
use crate::schema::{LIMIT, PERCENTILE};
use crate::{AdaptiveConfig, LimitConfig};

#[derive(Clone, Copy, PartialEq)]
enum LimitMode {
    Fixed,
    Adaptive,
}

const EXPECTED: &str = "\"adaptive\", \"fixed\" or a table with settings of an adaptive limit";

/// The settings of one limit, from `defaults` and the target, or of a tool.
#[derive(Clone, Default)]
pub(super) struct LimitLayers {
    /// Whether a cap is given.
    pub(super) cap_given: bool,
    /// For pools, whether the pool's own cap is given. It replaces the target's cap, because the
    /// limit is that of each replica.
    pub(super) pool_cap_given: Option<bool>,
    mode: Option<LimitMode>,
    /// The settings of an adaptive limit.
    keys: AdaptiveConfig,
    start_given: bool,
    /// Whether the target sets `start` itself. An inherited one yields to its other settings.
    own_start: bool,
    /// As `own_start`, for `min`.
    own_min: bool,
}

impl LimitLayers {
    /// Creates the settings of a tool, which always has a cap.
    pub(super) fn for_tool() -> Self {
        Self { cap_given: true, ..Self::default() }
    }

    /// Creates the settings of a target that inherits these.
    pub(super) fn for_target(&self) -> Self {
        Self { own_start: false, own_min: false, ..self.clone() }
    }

    /// Reads `limit`, and whether `cap` is given. Replaces only the keys that are given.
    pub(super) fn read(&mut self, section: &Section<'_>) {
        self.cap_given |= section.has("cap");
        let Some(given) = section.get("limit") else { return };
        if matches!(given.value, Value::Table(_)) {
            self.mode = Some(LimitMode::Adaptive);
            self.table(given);
        } else {
            self.mode = given.read(read_keyword).or(self.mode);
        }
    }

    fn table(&mut self, given: Given<'_>) {
        let Some(section) = given.section_with(&names(&[&LIMIT]), misplaced_key) else { return };
        self.own_start = section.has("start");
        self.own_min = section.has("min");
        self.start_given |= self.own_start;
        self.keys.read(&section);
    }

    /// Returns the `start` that is given by the target or `defaults`.
    fn start(&self) -> Option<usize> {
        self.start_given.then_some(self.keys.start)
    }

    /// Returns the limit: as `limit` sets it, otherwise fixed if a cap is given and no objective
    /// is, otherwise adaptive. The objective is the `ttft` of a target or of one of its lanes, or
    /// the `latency` of a tool.
    pub(super) fn resolve(&self, cap: usize, objective: bool) -> LimitConfig {
        let adapts = match self.mode {
            Some(mode) => mode == LimitMode::Adaptive,
            None => objective || !self.pool_cap_given.unwrap_or(self.cap_given),
        };
        if !adapts {
            return LimitConfig::Fixed;
        }
        let mut keys = self.keys.clone();
        // Inherited values yield. The target's own are in order, unless a problem was reported.
        keys.min = keys.min.min(cap);
        if let Some(start) = self.start().filter(|_| self.own_start && !self.own_min) {
            keys.min = keys.min.min(start);
        }
        keys.start = self.keys.start.clamp(keys.min, cap);
        LimitConfig::Adaptive(keys)
    }

    /// Returns why a key that needs an adaptive limit is rejected. `objective` is the key that
    /// would make the limit adaptive.
    pub(super) fn fixed_reason(&self, objective: &str) -> String {
        if self.mode == Some(LimitMode::Fixed) {
            "has no effect with a fixed limit; set limit = \"adaptive\", or remove it".into()
        } else {
            let cap = if self.pool_cap_given.is_some() { "pool.cap" } else { "cap" };
            format!(
                "has no effect, because the limit is fixed with a {cap} and no \"{objective}\"; set limit = \"adaptive\", or remove it"
            )
        }
    }

    /// Rejects a `start` or `min` of the target that is above the cap, and a `min` above `start`.
    /// `named` is the key of the cap.
    pub(super) fn check_order(&self, section: &Section<'_>, cap: usize, named: &str) {
        if self.mode == Some(LimitMode::Fixed) {
            return;
        }
        let reject = |key, number: usize, other: &str, bound: usize| {
            let text = format!("{key} ({number}) is above {other} ({bound}); lower {key} or raise {other}");
            if let Some(given) = section.get("limit").and_then(|given| given.child(key)) {
                given.reject(text);
            }
        };
        let start = self.start().filter(|_| self.own_start);
        if let Some(start) = start.filter(|start| *start > cap) {
            reject("start", start, named, cap);
        }
        let Some(min) = self.own_min.then_some(self.keys.min) else { return };
        if min > cap {
            reject("min", min, named, cap);
        } else if let Some(start) = start.filter(|start| min > *start) {
            reject("min", min, "start", start);
        }
    }

    /// Rejects `awaiting`, for tools.
    pub(super) fn reject_awaiting(&self, section: &Section<'_>) {
        if let (Some(given), Some(_)) = (section.get("limit"), self.keys.awaiting)
            && let Some(given) = given.child("awaiting")
        {
            given.reject("has no effect for tools, whose calls have no first token; remove it");
        }
    }

    /// Makes the limit fixed. Rejects `limit` if the target sets it to adaptive itself.
    pub(super) fn force_fixed(&mut self, section: &Section<'_>, why: &str) {
        if self.mode == Some(LimitMode::Adaptive) && section.has("limit") {
            section.reject(&["limit"], why);
        }
        self.mode = Some(LimitMode::Fixed);
    }
}

fn read_keyword(value: &Value) -> Result<LimitMode, InvalidValue> {
    let invalid = InvalidValue::expected(EXPECTED);
    match value {
        Value::Text(text) if text == "adaptive" => Ok(LimitMode::Adaptive),
        Value::Text(text) if text == "fixed" => Ok(LimitMode::Fixed),
        Value::Whole(_) | Value::Float(_) => Err(invalid.hint("the maximum number of slots is the \"cap\"")),
        Value::Bool(false) | Value::Null => Err(invalid.hint("a limit that is not adaptive is \"fixed\"")),
        Value::Text(text) if matches!(&**text, "none" | "off") => {
            Err(invalid.hint("a limit that is not adaptive is \"fixed\""))
        }
        _ => Err(invalid),
    }
}

/// Returns what to write instead of a key that is not one of `limit`.
fn misplaced_key(key: &str) -> Option<String> {
    if PERCENTILE.names().any(|name| name == key) {
        return Some("it belongs in the table \"detector\", which selects the percentile detector".into());
    }
    match key {
        "max" | "ceiling" | "cap" => Some("the upper bound is the \"cap\", beside \"limit\"".into()),
        "step" => Some("to decrease by 4 slots, write decrease = { step = 4 }".into()),
        "factor" => Some("to decrease to a share, write decrease = 0.9".into()),
        "kind" | "mode" | "type" => {
            Some("a table is an adaptive limit; for a fixed limit write limit = \"fixed\"".into())
        }
        _ => None,
    }
}
