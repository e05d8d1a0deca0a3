//! Measures the truth about a server, with which the answers of sweeps are compared: its best cap.
//! The best cap is found from the long-run yields (goodput and failures), in the server's final
//! state, of all caps that could be an answer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::drawn_calls::{self, Lengths};
use super::long_run_yield::{TARGET, Yield, measure_yield};
use super::scenarios::{Scenario, State, Variant};
use super::server::Server;
use crate::client_call::URL;
use crate::trace_lengths::Work;
use crate::{Fallible, output_files, virtual_time};

/// A stable cap counts as a right answer if its goodput is at most this share below the best
/// goodput of all stable caps.
const TOLERANCE: f64 = 0.02;
/// The seed that the measured calls are drawn from.
const SEED: u64 = 9_999;
/// The largest cap that is measured, in concurrent calls.
const MAX_CAP: usize = 160;

/// The long-run yields (goodput and failures) of one server, by cap. Each is measured at most once.
pub(crate) struct Curve {
    server: Server,
    works: Arc<[Work]>,
    /// The tokens per minute that a gate for this server has to be configured with, in addition to
    /// a cap. `None` if tokens do not limit the server.
    rate: Option<f64>,
    known: Mutex<BTreeMap<usize, Yield>>,
    /// The yields with a cap but without `rate`, for answers that suggest no rate.
    plain: Mutex<BTreeMap<usize, Yield>>,
    truth: OnceLock<Truth>,
    /// The key in `oracle.json`: scenario, call lengths and server.
    pub(crate) key: String,
}

/// The truth about one server: its right caps (those with nearly the best goodput), and the best
/// goodput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Truth {
    /// The smallest right cap: stable, and within [`TOLERANCE`] of the best goodput.
    pub(crate) cap: usize,
    /// The best goodput of all stable caps, in calls per second.
    pub(crate) goodput: f64,
    /// The largest right cap: stable, and within [`TOLERANCE`] of the best goodput.
    pub(crate) up_to: usize,
}

impl Curve {
    pub(crate) fn of(scenario: &Scenario, variant: Variant, state: State) -> Self {
        let server = scenario.server(variant, SEED, state);
        let rate = server.config.faults.token_rate.and_then(|rate| rate.tokens_per_minute);
        let works = drawn_calls::draw_evenly(scenario.lengths, variant.spread, SEED);
        let Lengths { prompt, output } = scenario.lengths;
        let key = format!(
            "{}: {} lengths around {prompt} + {output} tokens, {}",
            scenario.name,
            variant.spread.name(),
            server.description()
        );
        Self {
            server,
            works,
            rate,
            known: Mutex::default(),
            plain: Mutex::default(),
            truth: OnceLock::new(),
            key,
        }
    }

    /// Measures the yields of the caps that the truth depends on: those around the smallest right
    /// cap, those from the largest stable cap to the first unstable one, and some others.
    fn measure(&self) -> Fallible<()> {
        let mut cap = 1;
        let (mut most, mut unstable) = (0.0_f64, 0);
        // Stops at a cap above which no better cap can follow.
        while cap <= MAX_CAP && unstable < 2 {
            let seen = self.at(cap)?;
            unstable = if seen.is_stable() { 0 } else { unstable + 1 };
            if seen.is_stable() {
                most = most.max(seen.goodput);
            }
            if seen.goodput < most * 0.9 && unstable == 0 {
                break;
            }
            cap = cap * 9 / 8 + 1;
        }
        let known = self.known.lock().clone();
        let stable = |(_, seen): &(&usize, &Yield)| seen.is_stable();
        let last = known.iter().filter(stable).map(|(cap, _)| *cap).max().unwrap_or(1);
        let reaches = |share: f64| {
            let enough = |(_, seen): &(&usize, &Yield)| seen.is_stable() && seen.goodput >= most * share;
            known.iter().find(enough).map_or(1, |(cap, _)| *cap)
        };
        let below = known.range(..reaches(1.0 - TOLERANCE)).next_back().map_or(1, |(cap, _)| *cap);
        let above = known.range(last + 1..).next().map_or(last, |(cap, _)| *cap);
        let best = reaches(1.0);
        let before = known.range(..best).next_back().map_or(1, |(cap, _)| *cap);
        let after = known.range(best + 1..).next().map_or(best, |(cap, _)| *cap);
        // All caps around the peak, or every few caps if these are many.
        let peak = (before..=after).step_by(1 + (after - before) / 8);
        for cap in (below..=reaches(1.0 - TOLERANCE / 4.0)).chain(last.min(above)..=above).chain(peak) {
            self.at(cap)?;
        }
        Ok(())
    }

    /// Returns the yield with the given cap, and with `rate` configured too if the server needs a
    /// rate. Measures the yield if it is not known.
    pub(crate) fn at(&self, cap: usize) -> Fallible<Yield> {
        self.cached(&self.known, cap, self.rate)
    }

    /// Returns the yield with the given cap, without `rate`. Measures it if it is not known.
    pub(crate) fn plain(&self, cap: usize) -> Fallible<Yield> {
        if self.has_rates() { self.cached(&self.plain, cap, None) } else { self.at(cap) }
    }

    fn cached(
        &self,
        known: &Mutex<BTreeMap<usize, Yield>>,
        cap: usize,
        rate: Option<f64>,
    ) -> Fallible<Yield> {
        if let Some(seen) = known.lock().get(&cap) {
            return Ok(*seen);
        }
        let rate = rate.map_or_else(String::new, |rate| format!("tpm = {}\n", rate.floor()));
        let seen = self.lines(&format!("[targets.{TARGET}]\nurl = \"{URL}\"\ncap = {cap}\n{rate}"), cap)?;
        known.lock().insert(cap, seen);
        Ok(seen)
    }

    /// Measures the yield of the configuration `lines` (TOML), whose maximum concurrency is `cap`.
    pub(crate) fn lines(&self, lines: &str, cap: usize) -> Fallible<Yield> {
        measure_yield(&self.server, lines, cap, &self.works)
    }

    /// Returns `true` if a gate for this server needs a token rate in addition to a cap.
    pub(crate) fn has_rates(&self) -> bool {
        self.rate.is_some()
    }

    /// Returns the right caps and the best goodput of the server. They are computed once, from the
    /// yields that are known at the first call.
    pub(crate) fn truth(&self) -> Truth {
        *self.truth.get_or_init(|| self.read())
    }

    fn read(&self) -> Truth {
        let known = self.known.lock();
        let goodput = best(&known);
        let mut good = known
            .iter()
            .filter(|(_, seen)| seen.is_stable() && seen.goodput >= goodput * (1.0 - TOLERANCE))
            .map(|(cap, _)| *cap);
        let cap = good.next().unwrap_or(1);
        Truth { cap, goodput, up_to: good.next_back().unwrap_or(cap) }
    }

    /// Returns the known yields, in order of the caps.
    pub(crate) fn points(&self) -> Vec<(usize, Yield)> {
        self.known.lock().iter().map(|(cap, seen)| (*cap, *seen)).collect()
    }
}

fn best(known: &BTreeMap<usize, Yield>) -> f64 {
    known.values().filter(|seen| seen.is_stable()).map(|seen| seen.goodput).fold(0.0, f64::max)
}

/// The file `oracle.json`, which stores measured yields, because measuring takes longer than all
/// sweeps.
///
/// The key of a curve contains the properties of its server under names of its own. Therefore a
/// server with other properties is measured again, and a renamed field of the simulator changes no
/// key.
pub(crate) struct OracleFile(PathBuf);

impl OracleFile {
    pub(crate) fn new() -> Self {
        Self(output_files::folder("sweep").join("oracle.json"))
    }

    /// Loads the yields of the curves from the file. Measures those that are missing, and adds them
    /// to the file.
    pub(crate) fn complete(&self, curves: &[&Curve]) -> Fallible<()> {
        let cached: Value = match std::fs::read_to_string(&self.0) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(_) => json!({}),
        };
        let saving = Mutex::new(());
        virtual_time::each(0..curves.len() as u64, |place| {
            let Some(curve) = curves.get(place as usize) else { return Ok(()) };
            for (cap, seen) in cached.get(&curve.key).and_then(Value::as_object).into_iter().flatten() {
                let figure = |place: usize| seen.get(place).and_then(Value::as_f64);
                let busy = figure(2).or(curve.server.read_time.is_zero().then_some(0.0));
                if let (Ok(cap), Some(goodput), Some(failed), Some(busy)) =
                    (cap.parse(), figure(0), figure(1), busy)
                {
                    curve.known.lock().insert(cap, Yield { goodput, failed, busy });
                }
            }
            let before = curve.known.lock().len();
            curve.measure()?;
            if curve.known.lock().len() > before {
                let _one_at_a_time = saving.lock();
                self.merge(&[*curve])?;
            }
            let Truth { cap, goodput, up_to } = curve.truth();
            eprintln!("{}: {cap} to {up_to}, {goodput:.3} calls/s", curve.key);
            Ok(())
        })?;
        Ok(())
    }

    /// Writes the yields of these curves to the file, and removes all others from it.
    pub(crate) fn write(&self, curves: &[&Curve]) -> Fallible<()> {
        self.save(entries(curves))
    }

    /// Adds the yields of these curves to the file.
    pub(crate) fn merge(&self, curves: &[&Curve]) -> Fallible<()> {
        let mut all: Map<String, Value> = match std::fs::read_to_string(&self.0) {
            Ok(text) => serde_json::from_str(&text)?,
            Err(_) => Map::new(),
        };
        all.extend(entries(curves));
        self.save(all)
    }

    fn save(&self, all: Map<String, Value>) -> Fallible<()> {
        // One curve per line, for readable diffs.
        let lines: Vec<String> = all.iter().map(|(key, value)| format!("{}: {value}", json!(key))).collect();
        Ok(std::fs::write(&self.0, format!("{{\n{}\n}}\n", lines.join(",\n")))?)
    }
}

fn entries(curves: &[&Curve]) -> Map<String, Value> {
    let digits = |x: f64| (x * 1e5).round() / 1e5;
    let point = |(cap, seen): (usize, Yield)| {
        let mut figures = vec![digits(seen.goodput), digits(seen.failed)];
        figures.extend((seen.busy > 0.0).then(|| digits(seen.busy)));
        (cap.to_string(), json!(figures))
    };
    let points =
        |curve: &&Curve| (curve.key.clone(), Value::Object(curve.points().into_iter().map(point).collect()));
    curves.iter().map(points).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::sweep::scenarios;

    fn curves() -> Vec<Curve> {
        let of = |scenario: Scenario| {
            let variants = scenario.variants().into_iter();
            variants.map(|variant| Curve::of(&scenario, variant, State::After)).collect::<Vec<_>>()
        };
        scenarios::all().into_iter().flat_map(of).collect()
    }

    #[test]
    fn committed_file_has_every_curve() {
        let text = std::fs::read_to_string(OracleFile::new().0).unwrap();
        let cached: Map<String, Value> = serde_json::from_str(&text).unwrap();
        for curve in curves() {
            assert!(cached.contains_key(&curve.key), "{}", curve.key);
        }
    }

    #[test]
    fn different_servers_have_different_descriptions() {
        let curves = curves();
        for (a, b) in curves.iter().zip(curves.iter().skip(1)) {
            let same = a.server.config == b.server.config && a.server.round_trip == b.server.round_trip;
            assert_eq!(
                same && a.server.read_time == b.server.read_time,
                a.server.description() == b.server.description()
            );
        }
    }

    #[test]
    fn hard_limit_is_the_last_stable_cap() {
        let all = scenarios::all();
        let scenario = all.iter().find(|scenario| scenario.name == "limit 10").unwrap();
        let curve = Curve::of(scenario, scenario.variant(1), State::After);
        let seen = [5, 10, 12].map(|cap| curve.at(cap).unwrap());
        assert_eq!(seen.map(|seen| seen.is_stable()), [true, true, false]);
        assert!((seen[1].goodput / seen[0].goodput - 2.0).abs() < 0.02, "{seen:?}");
        assert_eq!(curve.truth().cap, 10);
    }
}
