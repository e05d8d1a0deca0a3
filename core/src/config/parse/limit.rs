//! How many slots of a cap are in force: as many as the upstream can take, or all of them.

use std::ops::RangeInclusive;

use super::CAP;
use super::section::{Given, Section};
use super::tree::Value;
use super::value::{InvalidValue, number, one_of, or_none, tick, whole, window};
use crate::config::{AdaptiveConfig, Decrease, Detector, LimitConfig, Percentile};

pub(super) const LIMIT: &[&str] = &["start", "min", "awaiting", "decrease", "detector"];
pub(super) const PERCENTILE: &[&str] = &["quantile", "window", "tick", "band", "hold"];
pub(super) const DECREASE: &[&str] = &["step"];

/// The range of a cut by a share. Less is a collapse, more is no cut.
const FACTOR: RangeInclusive<f64> = 0.1..=0.99;

/// Whether a limit moves.
#[derive(Clone, Copy, PartialEq)]
enum Chosen {
    Fixed,
    Adaptive,
}

const WORDS: &[(&str, Chosen)] = &[("adaptive", Chosen::Adaptive), ("fixed", Chosen::Fixed)];
const EXPECTED: &str = "\"adaptive\", \"fixed\" or a table of how it adapts";

/// Everything said of one limit, here and in the layers below.
#[derive(Clone, Default)]
pub(super) struct LimitLayers {
    /// Whether a cap was named.
    pub(super) capped: bool,
    /// Of a pool, whether its own was: a limit is each replica's there, and the target's cap bounds their sum.
    pub(super) pool_capped: Option<bool>,
    chosen: Option<Chosen>,
    /// Its `start` counts for nothing: where none was given it follows from the floor and the cap.
    keys: AdaptiveConfig,
    start: Option<usize>,
    /// Whether the layer that is read has said these itself. Else they give way.
    own_start: bool,
    own_min: bool,
}

impl LimitLayers {
    /// What is known of a tool before its own words: there is none without a cap.
    pub(super) fn of_a_tool() -> Self {
        Self { capped: true, ..Self::default() }
    }

    /// The same for the layer above, which has said nothing itself yet.
    pub(super) fn inherited(&self) -> Self {
        Self { own_start: false, own_min: false, ..self.clone() }
    }

    /// Reads `cap`, as far as it was named, and `limit`, each key over what a lower layer said.
    pub(super) fn read(&mut self, section: &Section<'_>) {
        self.capped |= section.has("cap");
        let Some(given) = section.get("limit") else { return };
        if matches!(given.value, Value::Table(_)) {
            self.chosen = Some(Chosen::Adaptive);
            self.table(given);
        } else {
            self.chosen = given.read(word).or(self.chosen);
        }
    }

    fn table(&mut self, given: Given<'_>) {
        let Some(section) = given.section_with(LIMIT, elsewhere) else { return };
        self.own_start = section.has("start");
        self.own_min = section.has("min");
        section.set("start", &mut self.start, |value| whole(CAP)(value).map(Some));
        section.set("min", &mut self.keys.min, whole(CAP));
        section.set("awaiting", &mut self.keys.awaiting, or_none(whole(CAP)));
        if let Some(given) = section.get("decrease") {
            self.keys.decrease = decrease(given).unwrap_or(self.keys.decrease);
        }
        if let Some(given) = section.get("detector") {
            detector(given, &mut self.keys.detector);
        }
    }

    /// **The rule**, for targets and tools: a limit adapts, unless `limit` says that it is fixed, or says nothing while a cap was
    /// named and no objective was: then that number is what one gets.
    ///
    /// The objective is the `ttft` of a target or of a lane of it, the `latency` of a tool.
    pub(super) fn in_force(&self, cap: usize, objective: bool) -> LimitConfig {
        let adapts = match self.chosen {
            Some(chosen) => chosen == Chosen::Adaptive,
            None => objective || !self.pool_capped.unwrap_or(self.capped),
        };
        if !adapts {
            return LimitConfig::Fixed;
        }
        let mut keys = self.keys.clone();
        // What was inherited gives way. The layer's own words are out of order only where a problem was found: nobody shall meet a floor
        // above the ceiling all the same.
        keys.min = keys.min.min(cap);
        if let Some(start) = self.start.filter(|_| self.own_start && !self.own_min) {
            keys.min = keys.min.min(start);
        }
        keys.start = self.start.unwrap_or(AdaptiveConfig::default().start).clamp(keys.min, cap);
        LimitConfig::Adaptive(keys)
    }

    /// Why it is fixed, for what has no use then.
    pub(super) fn why_fixed(&self, objective: &str) -> String {
        if self.chosen == Some(Chosen::Fixed) {
            "nothing keeps to it while the limit is fixed; set limit = \"adaptive\", or drop it".into()
        } else {
            let cap = if self.pool_capped.is_some() { "pool.cap" } else { "cap" };
            format!(
                "nothing keeps to it: a {cap} without a \"{objective}\" is a fixed limit; set limit = \"adaptive\", or drop it"
            )
        }
    }

    /// Numbers that the layer itself says, fine alone and out of order together. What it inherits gives way.
    pub(super) fn order(&self, section: &Section<'_>, cap: usize, named: &str) {
        if self.chosen == Some(Chosen::Fixed) {
            return;
        }
        let reject = |key, number: usize, other: &str, bound: usize| {
            let text = format!("{key} ({number}) is above {other} ({bound}); lower {key} or raise {other}");
            if let Some(given) = section.get("limit").and_then(|given| given.child(key)) {
                given.reject(text);
            }
        };
        let start = self.start.filter(|_| self.own_start);
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
    pub(super) fn cannot_await(&self, section: &Section<'_>) {
        if let (Some(given), Some(_)) = (section.get("limit"), self.keys.awaiting)
            && let Some(given) = given.child("awaiting")
        {
            given.reject("a tool has no first tokens to await; drop it");
        }
    }

    /// Says, where `limit` was set to adapt, that it cannot. Inherited words give way instead.
    pub(super) fn cannot_adapt(&mut self, section: &Section<'_>, why: &str) {
        if self.chosen == Some(Chosen::Adaptive) && section.has("limit") {
            section.reject(&["limit"], why);
        }
        self.chosen = Some(Chosen::Fixed);
    }
}

fn word(value: &Value) -> Result<Chosen, InvalidValue> {
    one_of(WORDS)(value).map_err(|_| {
        let bad = InvalidValue::expected(EXPECTED);
        match value {
            Value::Whole(_) | Value::Float(_) => bad.hint("the most slots are the \"cap\""),
            Value::Bool(false) | Value::Null => bad.hint("a limit that does not adapt is \"fixed\""),
            Value::Text(text) if matches!(&**text, "none" | "off") => {
                bad.hint("a limit that does not adapt is \"fixed\"")
            }
            _ => bad,
        }
    })
}

/// Keys that belong somewhere else when they are found in a `limit`, whatever they mean in other tables.
fn elsewhere(key: &str) -> Option<String> {
    if PERCENTILE.contains(&key) {
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

/// `"served"`, a share, or a step in a table.
fn decrease(given: Given<'_>) -> Option<Decrease> {
    if matches!(given.value, Value::Table(_)) {
        let section = given.section(DECREASE)?;
        let Some(step) = section.get("step") else {
            section.reject(&[], "needs a \"step\": by how many slots a cut lowers the limit");
            return None;
        };
        return step.read(whole(CAP)).map(Decrease::Step);
    }
    let expected = || {
        InvalidValue::expected(format!(
            "\"served\", the share that a cut leaves ({} to {}) or {{ step = SLOTS }}",
            FACTOR.start(),
            FACTOR.end()
        ))
    };
    given.read(|value| match value {
        Value::Text(text) if text == "served" => Ok(Decrease::Served),
        _ => number(FACTOR)(value).map(Decrease::Factor).map_err(|_| match value {
            Value::Whole(slots) if *slots > 1 => {
                expected().hint(format!("for so many slots write {{ step = {slots} }}"))
            }
            Value::Text(text) if text.parse::<f64>().is_ok() => expected().hint("write it without quotes"),
            _ => expected(),
        }),
    })
}

/// A word, or a percentile's settings, each key over what a lower layer said of one.
fn detector(given: Given<'_>, into: &mut Detector) {
    let mut percentile = match into {
        Detector::Percentile(percentile) => percentile.clone(),
        Detector::Exceedance => Percentile::default(),
    };
    if !matches!(given.value, Value::Table(_)) {
        let chosen = given.read(|value| match value {
            Value::Text(text) if text == "exceedance" => Ok(Detector::Exceedance),
            Value::Text(text) if text == "percentile" => Ok(Detector::Percentile(percentile.clone())),
            _ => Err(InvalidValue::expected(
                "\"exceedance\", \"percentile\" or a table of a percentile's settings",
            )),
        });
        if let Some(chosen) = chosen {
            *into = chosen;
        }
        return;
    }
    let Some(section) = given.section(PERCENTILE) else { return };
    section.set("quantile", &mut percentile.quantile, number(0.01..=0.999));
    section.set("window", &mut percentile.window, window);
    section.set("tick", &mut percentile.tick, tick);
    section.set("band", &mut percentile.band, number(0.0..=0.9));
    section.set("hold", &mut percentile.hold, whole(0..=1_000));
    super::conflicts::check_ticks(&section, &percentile);
    *into = Detector::Percentile(percentile);
}
