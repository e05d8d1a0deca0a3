//! Reads `limit`: whether the limit of a target or tool, which is its number of slots in force, is
//! fixed or adaptive, and the settings of an adaptive limit.

use crate::schema::{Given, InvalidValue, LIMIT, PERCENTILE, Value, names};
use crate::{AdaptiveConfig, LimitConfig};

const EXPECTED: &str = "\"adaptive\", \"fixed\" or a table with settings of an adaptive limit";

/// The keys of one limit that were read so far. A target starts with those of `defaults`, and a
/// tool with the default settings.
#[derive(Clone, Default)]
pub(super) struct LimitLayers {
    /// Whether `cap` is given. For pools this is the cap of the target, not that of the pool.
    pub(super) cap_given: bool,
    /// `true` if `limit` makes the limit adaptive, and `false` if it makes the limit fixed. `None`:
    /// `limit` is not given.
    pub(super) adaptive: Option<bool>,
    /// The settings that apply if the limit is adaptive.
    pub(super) keys: AdaptiveConfig,
}

impl LimitLayers {
    /// Reads the `limit` in `given`, the table of a target or tool, and records whether the table
    /// has a `cap`. Replaces only the settings that are given.
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

    /// Returns the limit of a target or tool. `given` is its table.
    ///
    /// If `limit` is not given, the limit is fixed if there is a cap (for pools, `pool.cap`) and no
    /// objective, and adaptive otherwise. `objective` is whether there is one: the `ttft` of the
    /// target or of one of its lanes, or the `latency` of the tool. `cap` is the upper bound of an
    /// adaptive limit.
    pub(super) fn resolve(&self, given: &Given<'_>, cap: usize, objective: bool) -> LimitConfig {
        // In pools each replica has a limit, so the cap of the pool decides.
        let cap_given = if given.has("pool") { given.has("pool.cap") } else { self.cap_given };
        if !self.adaptive.unwrap_or(objective || !cap_given) {
            return LimitConfig::Fixed;
        }
        let mut keys = self.keys.clone();
        // Inherited values are adjusted to the given ones. Given ones that contradict each other
        // were reported.
        keys.min = keys.min.min(cap);
        if given.has("limit.start") && !given.has("limit.min") {
            keys.min = keys.min.min(keys.start);
        }
        keys.start = keys.start.clamp(keys.min, cap);
        LimitConfig::Adaptive(keys)
    }

    /// Returns the error text for a key that has no effect because the limit is fixed. `objective`
    /// is the key (`ttft` or `latency`) that would make the limit adaptive.
    pub(super) fn fixed_reason(&self, given: &Given<'_>, objective: &str) -> String {
        if self.adaptive == Some(false) {
            return "has no effect with a fixed limit; set limit = \"adaptive\", or remove it".into();
        }
        let cap = if given.has("pool") { "pool.cap" } else { "cap" };
        format!(
            "has no effect, because the limit is fixed with a {cap} and no \"{objective}\"; set limit = \"adaptive\", or remove it"
        )
    }

    /// Reports a `start` or `min` that is given above the cap, and a given `min` above a given
    /// `start`. `named` is the key of the cap (`cap` or `pool.cap`) for errors. Does nothing if the
    /// limit is fixed.
    pub(super) fn check_order(&self, given: &Given<'_>, cap: usize, named: &str) {
        if self.adaptive == Some(false) {
            return;
        }
        let (cap, start, min) =
            ((named, &cap), ("limit.start", &self.keys.start), ("limit.min", &self.keys.min));
        let own = |(key, _): &(&str, &usize)| given.has(key);
        [start, min].into_iter().filter(own).for_each(|setting| given.reject_above(setting, cap));
        if own(&start) && own(&min) && min.1 <= cap.1 {
            given.reject_above(min, start);
        }
    }

    /// Makes the limit fixed. Reports the problem `why` if the table sets `limit` to adaptive.
    pub(super) fn force_fixed(&mut self, given: &Given<'_>, why: &str) {
        if self.adaptive == Some(true) {
            given.reject_key("limit", why);
        }
        self.adaptive = Some(false);
    }
}

/// Returns `true` for `"adaptive"` and `false` for `"fixed"`. Any other value is invalid.
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

/// Returns the advice for an unknown key of `limit`, or `None` if the error is to suggest the most
/// similar key.
fn misplaced_key(key: &str) -> Option<&'static str> {
    Some(match key {
        "max" | "ceiling" | "cap" => "the upper bound is the \"cap\", beside \"limit\"",
        "step" => "to decrease by 4 slots, write decrease = { step = 4 }",
        "factor" => "to decrease to a share, write decrease = 0.9",
        "kind" | "mode" | "type" => "a table is an adaptive limit; for a fixed limit write limit = \"fixed\"",
        _ if PERCENTILE.has(key) => {
            "it belongs in the table \"detector\", which selects the percentile detector"
        }
        _ => return None,
    })
}
