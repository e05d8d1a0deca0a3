//! How many slots of a cap are in force: as many as the upstream can take, or all of them.

use crate::config::schema::declaration::{Group, names};
use crate::config::schema::given::{Given, Section};
use crate::config::schema::setting::InvalidValue;
use crate::config::schema::tree::Value;
use crate::config::schema::{LIMIT, PERCENTILE};
use crate::config::{AdaptiveConfig, LimitConfig};

/// Whether a limit moves.
#[derive(Clone, Copy, PartialEq)]
enum LimitMode {
    Fixed,
    Adaptive,
}

const EXPECTED: &str = "\"adaptive\", \"fixed\" or a table of how it adapts";

/// Everything said of one limit, here and in the layers below.
#[derive(Clone, Default)]
pub(super) struct LimitLayers {
    /// Whether a cap was named.
    pub(super) cap_given: bool,
    /// Of a pool, whether its own was: a limit is each replica's there, and the target's cap bounds their sum.
    pub(super) pool_cap_given: Option<bool>,
    mode: Option<LimitMode>,
    /// The settings of an adaptive limit. Without a given `start` its value follows from the floor and the cap.
    keys: AdaptiveConfig,
    start_given: bool,
    /// Whether the layer that is read has said these itself. Else they give way.
    own_start: bool,
    own_min: bool,
}

impl LimitLayers {
    /// What is known of a tool before its own words: there is none without a cap.
    pub(super) fn for_tool() -> Self {
        Self { cap_given: true, ..Self::default() }
    }

    /// The same for the layer above, which has said nothing itself yet.
    pub(super) fn for_target(&self) -> Self {
        Self { own_start: false, own_min: false, ..self.clone() }
    }

    /// Reads `cap`, as far as it was named, and `limit`, each key over what a lower layer said.
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

    /// The start that was given, here or in a layer below.
    fn start(&self) -> Option<usize> {
        self.start_given.then_some(self.keys.start)
    }

    /// **The rule**, for targets and tools: a limit adapts, unless `limit` says that it is fixed, or says nothing while a cap was
    /// named and no objective was: then that number is what one gets.
    ///
    /// The objective is the `ttft` of a target or of a lane of it, the `latency` of a tool.
    pub(super) fn resolve(&self, cap: usize, objective: bool) -> LimitConfig {
        let adapts = match self.mode {
            Some(mode) => mode == LimitMode::Adaptive,
            None => objective || !self.pool_cap_given.unwrap_or(self.cap_given),
        };
        if !adapts {
            return LimitConfig::Fixed;
        }
        let mut keys = self.keys.clone();
        // What was inherited gives way. The layer's own words are out of order only where a problem was found: nobody shall meet a floor
        // above the ceiling all the same.
        keys.min = keys.min.min(cap);
        if let Some(start) = self.start().filter(|_| self.own_start && !self.own_min) {
            keys.min = keys.min.min(start);
        }
        keys.start = self.keys.start.clamp(keys.min, cap);
        LimitConfig::Adaptive(keys)
    }

    /// Why it is fixed, for what has no use then.
    pub(super) fn fixed_reason(&self, objective: &str) -> String {
        if self.mode == Some(LimitMode::Fixed) {
            "nothing keeps to it while the limit is fixed; set limit = \"adaptive\", or drop it".into()
        } else {
            let cap = if self.pool_cap_given.is_some() { "pool.cap" } else { "cap" };
            format!(
                "nothing keeps to it: a {cap} without a \"{objective}\" is a fixed limit; set limit = \"adaptive\", or drop it"
            )
        }
    }

    /// Numbers that the layer itself says, fine alone and out of order together. What it inherits gives way.
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

    /// Says, where first tokens were bounded, that there are none.
    pub(super) fn reject_awaiting(&self, section: &Section<'_>) {
        if let (Some(given), Some(_)) = (section.get("limit"), self.keys.awaiting)
            && let Some(given) = given.child("awaiting")
        {
            given.reject("a tool has no first tokens to await; drop it");
        }
    }

    /// Says, where `limit` was set to adapt, that it cannot. Inherited words give way instead.
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
        Value::Whole(_) | Value::Float(_) => Err(invalid.hint("the most slots are the \"cap\"")),
        Value::Bool(false) | Value::Null => Err(invalid.hint("a limit that does not adapt is \"fixed\"")),
        Value::Text(text) if matches!(&**text, "none" | "off") => {
            Err(invalid.hint("a limit that does not adapt is \"fixed\""))
        }
        _ => Err(invalid),
    }
}

/// Keys that belong somewhere else when they are found in a `limit`, whatever they mean in other tables.
fn misplaced_key(key: &str) -> Option<String> {
    if PERCENTILE.names().any(|name| name == key) {
        return Some(
            "a percentile's settings are a table under \"detector\", which makes it a percentile".into(),
        );
    }
    match key {
        "max" | "ceiling" | "cap" => Some("the ceiling is the \"cap\", beside \"limit\"".into()),
        "step" => Some("a cut by slots is decrease = { step = 4 }".into()),
        "factor" => Some("a cut to a share is decrease = 0.9".into()),
        "kind" | "mode" | "type" => Some("a table is an adaptive limit; another is limit = \"fixed\"".into()),
        _ => None,
    }
}
