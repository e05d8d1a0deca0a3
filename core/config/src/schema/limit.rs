//! The keys of `limit`: whether the number of slots in force is fixed, or adaptive up to the cap.

use std::ops::RangeInclusive;
use std::time::Duration;

#[cfg(test)]
use super::Kind;
use super::{CAP_RANGE, Given, InvalidValue, Lines, Scalar, Setting, Value, millis, on_one_line, secs};

/// How the number of slots in force is determined. It is at most the cap.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitConfig {
    /// The number of slots always equals the cap.
    Fixed,
    /// The number of slots is adapted to what the upstream can serve within the objective, up to
    /// the cap.
    Adaptive(AdaptiveConfig),
}

builders! {
    /// The settings of an adaptive limit, for [`Target::limit`](super::Target::limit) and
    /// [`Tool::limit`](super::Tool::limit).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_config::{Config, Decrease, LimitConfig, LimitSettings, Target};
    ///
    /// let limit = LimitSettings::new().start(16).decrease(Decrease::Factor(0.9));
    /// let config = Config::builder()
    ///     .target(Target::new("openai").ttft(Duration::from_secs(2)).limit(limit))
    ///     .target(Target::new("groq").cap(32))
    ///     .build()?;
    /// assert!(matches!(&config.targets[0].limit, LimitConfig::Adaptive(keys) if keys.start == 16));
    /// assert_eq!(config.targets[1].limit, LimitConfig::Fixed);
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    LimitSettings;
}

settings! {
    /// How an adaptive limit changes. Its upper bound is the `cap` of the target, tool or pool.
    pub struct AdaptiveConfig, table LIMIT "LimitConfig", builders [LimitSettings];
    keys {
        /// The limit at the start, from `min` to `cap`. The limit doubles from there until the
        /// first decrease. With a percentile detector it increases by 1 per tick instead.
        start: usize "slots" = 8, CAP_RANGE => "8, or the nearest that `min` and `cap` allow";
        /// The lower bound of the limit, at most `cap`.
        min: usize "slots" = 1, CAP_RANGE;
        /// The maximum number of calls that await their first token at the same time. A value above
        /// the cap has no effect. Not for tools.
        awaiting: Option<usize> "calls" = None, CAP_RANGE
            => "limited adaptively if decrease is \"served\", otherwise not limited";
        /// How far the limit is decreased when calls miss the objective: to the concurrency that
        /// the upstream was observed to serve (`"served"`), to a share of the limit (0.1 to 0.99),
        /// or by a number of slots (`{ step = 4 }`, 1 to 65536). Other causes have fixed decreases:
        /// 429 responses that are not about a rate decrease the limit to the number of calls that
        /// were accepted; 503, 529, timeouts and a missed `tpot` decrease it by a tenth.
        decrease: Decrease = Decrease::Served, ();
        /// How late first tokens are detected: by a sequential test of the share of calls above the
        /// objective, per kind of call (`"exceedance"`), or by a percentile over a time window
        /// (`"percentile"`, or a table with its settings).
        detector: Detector = Detector::Exceedance, ();
    }
}

/// How the limit detects that first tokens are late.
#[derive(Clone, Debug, PartialEq)]
pub enum Detector {
    /// By a sequential test of the share of calls that exceed the objective. Each class of calls of
    /// similar length is tested separately. The default.
    Exceedance,
    /// By a percentile of the time to first token over a time window.
    Percentile(Percentile),
}

settings! {
    /// A percentile of the time to first token over a time window, as the detector of late calls.
    pub struct Percentile, table PERCENTILE "PercentileConfig", builders [];
    check check_tick;
    keys {
        /// The quantile of the time to first token that is compared with the objective. 0.99 is the
        /// 99th percentile.
        quantile: f64 = 0.99, 0.01..=0.999;
        /// The time over which the quantile is computed.
        window: Duration = secs(30), secs(1)..=secs(3600);
        /// The time between two evaluations, at most `window`.
        tick: Duration = secs(5), millis(100)..=secs(600);
        /// The dead band: the limit stays as it is while the quantile differs from the objective by
        /// less than this share of the objective.
        band: f64 = 0.2, 0.0..=0.9;
        /// The number of ticks after a decrease in which the limit is not decreased again.
        hold: u32 "ticks" = 3, 0..=1_000;
    }
}

/// Reports a `tick` above `window`, because calls between two windows would not be evaluated.
fn check_tick(percentile: &Percentile, given: &Given<'_>) {
    given.reject_above(("tick", &percentile.tick), ("window", &percentile.window));
}

/// How far the limit is decreased when calls exceed the objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decrease {
    /// Decreases the limit to the number of concurrent calls that the upstream was observed to
    /// serve within the objective, or by a tenth if that number is not known. The default.
    Served,
    /// Decreases the limit to this share of its current value (0.1 to 0.99): 0.9 decreases it by a
    /// tenth.
    Factor(f64),
    /// Decreases the limit by this number of slots (1 to 65,536).
    Step(usize),
}

/// The range of [`Decrease::Factor`]. A smaller share would leave almost no slots, and a larger one
/// would have almost no effect.
const FACTOR_RANGE: RangeInclusive<f64> = 0.1..=0.99;

impl From<Decrease> for Value {
    fn from(decrease: Decrease) -> Self {
        match decrease {
            Decrease::Served => Value::Text("served".to_owned()),
            Decrease::Factor(share) => share.into(),
            Decrease::Step(slots) => Value::Table([("step", slots.into())].into()),
        }
    }
}

impl Setting for Decrease {
    type Bounds = ();

    fn overlay(&mut self, given: &Given<'_>, (): &()) {
        let expected = || {
            let (low, high) = (FACTOR_RANGE.start(), FACTOR_RANGE.end());
            InvalidValue::expected(format!(
                "\"served\", the share that remains after a decrease ({low} to {high}), or {{ step = SLOTS }}"
            ))
        };
        let chosen = match given.value {
            Value::Table(_) => {
                given.check_table(&[&STEP]);
                let Some(step) = given.get("step") else {
                    return given.reject("needs a \"step\": the number of slots of a decrease");
                };
                step.read(|value| usize::read(value, &CAP_RANGE)).map(Decrease::Step)
            }
            Value::Text(text) if text == "served" => Some(Decrease::Served),
            _ => given.read(|value| {
                f64::read(value, &FACTOR_RANGE).map(Decrease::Factor).map_err(|_| match value {
                    Value::Whole(slots) if *slots > 1 => {
                        expected().hint(format!("to decrease by {slots} slots write {{ step = {slots} }}"))
                    }
                    _ => expected().hint_quotes(value, "write it without quotes"),
                })
            }),
        };
        *self = chosen.unwrap_or(*self);
    }

    fn list(&self, path: &str, _unit: &str, _none: &str) -> Lines {
        let text = match self {
            Decrease::Served => "to the concurrency that is served".to_owned(),
            Decrease::Factor(share) => format!("to {share} of the limit"),
            Decrease::Step(slots) => format!("by {slots} slots"),
        };
        vec![(path.to_owned(), text)]
    }

    #[cfg(test)]
    fn kind((): &()) -> Kind {
        Kind::Special {
            reference: "`\"served\"`, a number, or a table with `step`",
            typescript: "\"served\" | number | { step: number }",
            python: "Literal[\"served\"] | float | StepConfig",
        }
    }
}

settings! {
    /// A decrease of an adaptive limit by a fixed number of slots.
    table STEP "StepConfig";
    /// The number of slots.
    step: <usize as Setting>::kind(&CAP_RANGE) => "required";
}

impl From<Detector> for Value {
    fn from(detector: Detector) -> Self {
        match detector {
            Detector::Exceedance => Value::Text("exceedance".to_owned()),
            Detector::Percentile(Percentile { quantile, window, tick, band, hold }) => Value::Table(
                [
                    ("quantile", quantile.into()),
                    ("window", window.into()),
                    ("tick", tick.into()),
                    ("band", band.into()),
                    ("hold", hold.into()),
                ]
                .into(),
            ),
        }
    }
}

/// Reads a keyword, or a table with settings of the percentile detector. Settings that the table
/// omits keep their values.
impl Setting for Detector {
    type Bounds = ();

    fn overlay(&mut self, given: &Given<'_>, (): &()) {
        let mut percentile = match self {
            Detector::Percentile(percentile) => percentile.clone(),
            Detector::Exceedance => Percentile::default(),
        };
        match given.value {
            Value::Table(_) => percentile.overlay(given, &()),
            Value::Text(text) if text == "percentile" => {}
            Value::Text(text) if text == "exceedance" => return *self = Detector::Exceedance,
            other => {
                let expected = "\"exceedance\", \"percentile\" or a table of a percentile's settings";
                return given.reject(InvalidValue::expected(expected).message(other));
            }
        }
        *self = Detector::Percentile(percentile);
    }

    fn list(&self, path: &str, _unit: &str, _none: &str) -> Lines {
        let text = match self {
            Detector::Exceedance => "exceedance".to_owned(),
            Detector::Percentile(percentile) => format!("percentile: {}", on_one_line(percentile.lines(""))),
        };
        vec![(path.to_owned(), text)]
    }

    #[cfg(test)]
    fn kind((): &()) -> Kind {
        Kind::Special {
            reference: "`\"exceedance\"`, `\"percentile\"`, or a table",
            typescript: "\"exceedance\" | \"percentile\" | PercentileConfig",
            python: "Literal[\"exceedance\", \"percentile\"] | PercentileConfig",
        }
    }
}
