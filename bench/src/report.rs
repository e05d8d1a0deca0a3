//! The result of an experiment: one JSON object, printed as the last line of stdout.

use serde_json::{Map, Value, json};

/// The figures of one experiment, the figures of its peers (what Tidegate is compared with), and
/// its bars. A bar is a threshold that a figure has to meet.
#[derive(Debug)]
pub(crate) struct Report {
    name: &'static str,
    seeds: Vec<u64>,
    figures: Map<String, Value>,
    peers: Map<String, Value>,
    bars: Vec<Value>,
    /// Texts of pages and charts, by their path below `bench/`.
    pages: Map<String, Value>,
}

/// How a value is compared with its bar (threshold). A value equal to the bar meets it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    AtMost,
    AtLeast,
}

impl Report {
    pub(crate) fn new(name: &'static str, seeds: impl IntoIterator<Item = u64>) -> Self {
        let seeds = seeds.into_iter().collect();
        let (figures, peers, pages) = Default::default();
        Self { name, seeds, figures, peers, bars: Vec::new(), pages }
    }

    /// Records a figure of Tidegate under the name `key`.
    pub(crate) fn figure(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.figures.insert(key.into(), rounded(value.into()));
    }

    /// Records a figure of the peer `who`. A peer's figure that is compared with one of Tidegate's
    /// has the same `key`.
    pub(crate) fn peer(&mut self, who: &str, key: impl Into<String>, value: impl Into<Value>) {
        let peer = self.peers.entry(who).or_insert_with(|| json!({}));
        if let Value::Object(figures) = peer {
            figures.insert(key.into(), rounded(value.into()));
        }
    }

    /// Records whether `value` meets the bar (threshold) `bar`, and prints it. A NaN never meets a
    /// bar.
    pub(crate) fn bar(&mut self, what: impl Into<String>, value: f64, op: Op, bar: f64) {
        let (sign, ok) = match op {
            Op::AtMost => ("<=", value <= bar),
            Op::AtLeast => (">=", value >= bar),
        };
        self.push(what.into(), rounded(json!(value)), sign, rounded(json!(bar)), ok);
    }

    /// Records a bar (threshold) that is not a plain number comparison. `op` describes the
    /// comparison in words. `ok` is `true` if the value meets the bar.
    pub(crate) fn bar_as(&mut self, what: impl Into<String>, value: Value, op: &str, bar: Value, ok: bool) {
        self.push(what.into(), rounded(value), op, rounded(bar), ok);
    }

    fn push(&mut self, what: String, value: Value, op: &str, bar: Value, ok: bool) {
        eprintln!("{} {what}: {value} {op} {bar}", if ok { "  ok " } else { "MISS " });
        self.bars.push(json!({"what": what, "value": value, "op": op, "bar": bar, "ok": ok}));
    }

    /// Adds a page or chart. It is written to `path` below `bench/` when the result is recorded.
    pub(crate) fn page(&mut self, path: String, text: String) {
        self.pages.insert(path, Value::String(text));
    }

    /// Returns the JSON object that an experiment prints.
    pub(crate) fn json(self) -> Value {
        let Self { name, seeds, figures, peers, bars, pages } = self;
        let mut result =
            json!({"name": name, "seeds": seeds, "figures": figures, "peers": peers, "bars": bars});
        if !pages.is_empty() {
            result["pages"] = Value::Object(pages);
        }
        result
    }
}

/// The median, the minimum (`least`) and the maximum (`most`) of a figure over the seeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        let [median, least, most] = [0.5, 0.0, 1.0].map(|q| tidegate_sim::scenario::quantile(&mut values, q));
        Self { median, least, most }
    }

    /// Returns `true` if `value` is between minimum and maximum, both included.
    pub(crate) fn contains(&self, value: f64) -> bool {
        (self.least..=self.most).contains(&value)
    }
}

impl From<Spread> for Value {
    fn from(spread: Spread) -> Self {
        json!({"median": spread.median, "least": spread.least, "most": spread.most})
    }
}

/// Returns `value` with each floating-point number rounded to four significant digits, because
/// further digits are noise. Integers stay exact.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(n) if n.is_f64() => {
            let x = n.as_f64().unwrap_or_default();
            if x == 0.0 {
                return json!(0);
            }
            let unit = 10f64.powi(3 - x.abs().log10().floor() as i32);
            let x = (x * unit).round() / unit;
            if x.fract() == 0.0 && x.abs() < 1e15 { json!(x as i64) } else { json!(x) }
        }
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, rounded(value))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_is_met_at_its_bound_and_never_by_nan() {
        let mut report = Report::new("x", [1]);
        report.bar("edge", 1.2, Op::AtMost, 1.2);
        report.bar("nan", f64::NAN, Op::AtLeast, 0.0);
        let line = report.json();
        assert_eq!([&line["bars"][0]["ok"], &line["bars"][1]["ok"]], [&json!(true), &json!(false)]);
    }

    #[test]
    fn figures_keep_four_digits() {
        assert_eq!(rounded(json!(1234.567)), json!(1235));
        assert_eq!(rounded(json!({"median": 0.0123456})), json!({"median": 0.01235}));
    }
}
