//! Reads limits: whether a limit is fixed or adaptive, and its settings.

use crate::schema::{Given, Group, InvalidValue, LIMIT, PERCENTILE, Value, names};
use crate::{AdaptiveConfig, LimitConfig};

const EXPECTED: &str = "\"adaptive\", \"fixed\" or a table with settings of an adaptive limit";

/// The settings of one limit, from `defaults` and the target, or of a tool.
#[derive(Clone, Default)]
pub(super) struct LimitLayers {
    /// Whether a cap is given, for pools that of the target.
    pub(super) cap_given: bool,
    /// Whether `limit` makes the limit adaptive. `None`: it is not given.
    pub(super) adaptive: Option<bool>,
    /// The settings of an adaptive limit.
    pub(super) keys: AdaptiveConfig,
}

impl LimitLayers {
    /// Reads `limit`, and whether `cap` is given. Replaces only the keys that are given.
    pub(super) fn read(&mut self, given: &Given<'_>) {
        self.cap_given |= given.has("cap");
        let Some(limit) = given.get("limit") else { return };
        if limit.is_table() {
            self.adaptive = Some(true);
            limit.check_keys(&names(&[&LIMIT]), misplaced_key);
            self.keys.read(&limit);
        } else {
            self.adaptive = limit.read(read_keyword).or(self.adaptive);
        }
    }

    /// Returns the limit: as `limit` sets it, otherwise fixed if a cap is given and no objective
    /// is, otherwise adaptive. The objective is the `ttft` of a target or of one of its lanes, or
    /// the `latency` of a tool. `given` is the table of the target or tool.
    pub(super) fn resolve(&self, given: &Given<'_>, cap: usize, objective: bool) -> LimitConfig {
        // The limit of a pool is that of each replica.
        let cap_given = if given.has("pool") { given.has("pool.cap") } else { self.cap_given };
        if !self.adaptive.unwrap_or(objective || !cap_given) {
            return LimitConfig::Fixed;
        }
        let mut keys = self.keys.clone();
        // Inherited values yield. The target's own are in order, unless a problem was reported.
        keys.min = keys.min.min(cap);
        if given.has("limit.start") && !given.has("limit.min") {
            keys.min = keys.min.min(keys.start);
        }
        keys.start = keys.start.clamp(keys.min, cap);
        LimitConfig::Adaptive(keys)
    }

    /// Returns why a key that needs an adaptive limit is rejected. `objective` is the key that
    /// would make the limit adaptive.
    pub(super) fn fixed_reason(&self, given: &Given<'_>, objective: &str) -> String {
        if self.adaptive == Some(false) {
            return "has no effect with a fixed limit; set limit = \"adaptive\", or remove it".into();
        }
        let cap = if given.has("pool") { "pool.cap" } else { "cap" };
        format!(
            "has no effect, because the limit is fixed with a {cap} and no \"{objective}\"; set limit = \"adaptive\", or remove it"
        )
    }

    /// Rejects a `start` or `min` of the target that is above the cap, and a `min` above `start`.
    /// `named` is the key of the cap.
    pub(super) fn check_order(&self, given: &Given<'_>, cap: usize, named: &str) {
        if self.adaptive == Some(false) {
            return;
        }
        let (cap, start, min) =
            ((named, &cap), ("limit.start", &self.keys.start), ("limit.min", &self.keys.min));
        let (own_start, own_min) = (given.has("limit.start"), given.has("limit.min"));
        if own_start {
            given.reject_above(start, cap);
        }
        if own_min {
            given.reject_above(min, cap);
        }
        if own_start && own_min && min.1 <= cap.1 {
            given.reject_above(min, start);
        }
    }

    /// Makes the limit fixed. Rejects `limit` if the target sets it to adaptive itself.
    pub(super) fn force_fixed(&mut self, given: &Given<'_>, why: &str) {
        if self.adaptive == Some(true) && given.has("limit") {
            given.reject_key(&["limit"], why);
        }
        self.adaptive = Some(false);
    }
}

/// Returns `true` for `"adaptive"` and `false` for `"fixed"`.
fn read_keyword(value: &Value) -> Result<bool, InvalidValue> {
    let hint = match (value.as_text(), value) {
        (Some("adaptive"), _) => return Ok(true),
        (Some("fixed"), _) => return Ok(false),
        (Some("none" | "off"), _) | (_, Value::Bool(false) | Value::Null) => {
            "a limit that is not adaptive is \"fixed\""
        }
        (_, Value::Whole(_) | Value::Float(_)) => "the maximum number of slots is the \"cap\"",
        _ => "",
    };
    Err(InvalidValue::expected(EXPECTED).hint(hint))
}

/// Returns what to write instead of a key that is not one of `limit`.
fn misplaced_key(key: &str) -> Option<String> {
    let advice = match key {
        "max" | "ceiling" | "cap" => "the upper bound is the \"cap\", beside \"limit\"",
        "step" => "to decrease by 4 slots, write decrease = { step = 4 }",
        "factor" => "to decrease to a share, write decrease = 0.9",
        "kind" | "mode" | "type" => "a table is an adaptive limit; for a fixed limit write limit = \"fixed\"",
        _ if PERCENTILE.names().any(|name| name == key) => {
            "it belongs in the table \"detector\", which selects the percentile detector"
        }
        _ => return None,
    };
    Some(advice.to_owned())
}
