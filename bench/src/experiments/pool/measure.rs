//! Measures all settings on the reporting seeds: figures, bars, and the committed files.

use std::path::Path;

use super::figures::Figures;
use super::play::{Clients, Fault};
use super::plot;
use super::roster::{Entry, OWN_COUNTS, Role, entries};
use super::stage::{Scene, capacity};
use super::table::{LEGEND, median, table};
use super::workload::Workload;
use crate::Fallible;
use crate::files::write;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;

/// Not seeds 1 to 100, which are for choosing constants.
pub(crate) const SEEDS: Seeds = Seeds::new(101, 105);
const CLIENTS: [usize; 3] = [1, 8, 64];
/// Shares of the pool's capacity. All choosers play the second load, which is drawn.
const LOADS: [f64; 3] = [0.5, 0.7, 0.85];
const DRAWN: f64 = LOADS[1];
/// The loads of the runs with faults, which seven of eight replicas can still take.
const FAULTY: [f64; 2] = [LOADS[0], LOADS[1]];
/// The choosers that play every load.
const ALWAYS: [&str; 4] = ["ours", "p2c", "hashing", "tree"];
/// The choosers that also play with sessions that keep their clients.
const STICKY: [&str; 3] = ["ours", "p2c", "hashing"];

/// Measures every setting on `seeds`. If `folder` is given, writes the tables and the pictures
/// there.
pub(crate) fn measure(seeds: Seeds, folder: Option<&Path>) -> Fallible<Report> {
    let mut report = Report::new("pool", seeds);
    let mut results = format!("# pool: every setting, seeds {} to {}\n\n{LEGEND}\n", seeds.first, seeds.last);
    for workload in Workload::ALL {
        let full = capacity(workload)?;
        report.figure(format!("{}: the pool is full at so many times its speed", workload.name()), full);
        let mut drawn = Vec::new();
        for load in LOADS {
            let scene = Setting::new(Scene::new(workload, load, full), seeds)?;
            for count in CLIENTS {
                let clients = Clients { count, sticky: false };
                let played = scene
                    .play(clients, Fault::None, &|entry| load == DRAWN || ALWAYS.contains(&entry.short))?;
                results.push_str(&played.tell(&mut report));
                played.against_the_oracle(&mut report);
                if load == DRAWN {
                    drawn.push((count, played.lines()));
                }
            }
            if load == DRAWN {
                for count in [8, 64] {
                    let clients = Clients { count, sticky: true };
                    let played = scene.play(clients, Fault::None, &|entry| STICKY.contains(&entry.short))?;
                    results.push_str(&played.tell(&mut report));
                }
            }
            if FAULTY.contains(&load) {
                for fault in [Fault::Slow, Fault::Killed, Fault::Stale, Fault::Frozen] {
                    for count in CLIENTS {
                        let clients = Clients { count, sticky: false };
                        let played =
                            scene.play(clients, fault, &|entry| ["ours", "p2c"].contains(&entry.short))?;
                        results.push_str(&played.tell(&mut report));
                        played.against_own_counts(&mut report);
                    }
                }
            }
        }
        if let Some(folder) = folder {
            write(folder, &format!("{}.svg", workload.name()), &plot::draw(workload, &drawn)?)?;
        }
    }
    if let Some(folder) = folder {
        write(folder, "results.md", &results)?;
    }
    Ok(report)
}

/// A scene, its calls, and the oracles' figures, which do not depend on the number of clients.
struct Setting {
    scene: Scene,
    calls: super::stage::Courses,
    oracles: Vec<Vec<Figures>>,
}

/// The figures of some choosers and of the oracles in a setting.
struct Played {
    title: String,
    entries: Vec<Entry>,
    runs: Vec<Vec<Figures>>,
}

impl Setting {
    fn new(scene: Scene, seeds: Seeds) -> Fallible<Self> {
        let calls = scene.calls(&seeds.into_iter().collect::<Vec<_>>())?;
        let one = Clients { count: 1, sticky: false };
        let oracles =
            scene.play(&calls, one, Fault::None, &chosen(1, &|entry| entry.role == Role::Oracle))?;
        Ok(Self { scene, calls, oracles })
    }

    fn play(&self, clients: Clients, fault: Fault, wanted: &dyn Fn(&Entry) -> bool) -> Fallible<Played> {
        let mut entries = chosen(clients.count, &|entry| entry.role != Role::Oracle && wanted(entry));
        let mut runs = self.scene.play(&self.calls, clients, fault, &entries)?;
        if fault == Fault::None {
            entries.extend(chosen(clients.count, &|entry| entry.role == Role::Oracle));
            runs.extend(self.oracles.iter().cloned());
        }
        let sticky = if clients.sticky { " that keep their sessions" } else { "" };
        let plural = if clients.count == 1 { "" } else { "s" };
        let title =
            format!("{}, {} client{plural}{sticky}{}", self.scene.name(), clients.count, fault.name());
        eprint!("{}", table(&title, &entries, &runs));
        Ok(Played { title, entries, runs })
    }
}

fn chosen(clients: usize, wanted: &dyn Fn(&Entry) -> bool) -> Vec<Entry> {
    entries(clients).into_iter().filter(|entry| wanted(entry)).collect()
}

/// A figure's name and its value.
type Named = (&'static str, fn(&Figures) -> f64);

/// The reported figures.
const TOLD: [Named; 7] = [
    ("p50 TTFT, s", |run| run.p50_s),
    ("p99 TTFT, s", |run| run.p99_s),
    ("mean TTFT, s", |run| run.mean_s),
    ("prefix hits, share of prompt tokens", |run| run.hit_rate),
    ("calls at the fullest replica / mean", |run| run.spread),
    ("goodput, share of calls in time", |run| run.goodput),
    ("streams cut", |run| run.truncated),
];

impl Played {
    /// Adds the figures to the report, and returns them as a table.
    fn tell(&self, report: &mut Report) -> String {
        for (entry, runs) in self.entries.iter().zip(&self.runs) {
            for (what, of) in TOLD {
                let (key, value) = (format!("{}: {what}", self.title), Spread::of(runs.iter().map(of)));
                match entry.role {
                    Role::Ours => report.figure(key, value),
                    _ => report.peer(entry.name, key, value),
                }
            }
        }
        table(&self.title, &self.entries, &self.runs)
    }

    fn of(&self, wanted: impl Fn(&Entry) -> bool) -> impl Iterator<Item = &Vec<Figures>> {
        self.entries.iter().zip(&self.runs).filter(move |(entry, _)| wanted(entry)).map(|(_, runs)| runs)
    }

    /// Compares ours with the best oracle by p99, and with the best oracle by hits.
    fn against_the_oracle(&self, report: &mut Report) {
        let Some(ours) = self.of(|entry| entry.role == Role::Ours).next() else { return };
        let oracles = |of: fn(&Figures) -> f64| {
            self.of(|entry| entry.role == Role::Oracle).map(move |runs| median(runs, of))
        };
        let p99 = oracles(|run| run.p99_s).fold(f64::NAN, f64::min);
        let hits = oracles(|run| run.hit_rate).fold(f64::NAN, f64::max);
        let key = |what: &str| format!("{}: {what} / the best oracle's", self.title);
        report.bar(key("p99 TTFT"), median(ours, |run| run.p99_s) / p99, Op::AtMost, 1.5);
        report.bar(key("prefix hits"), median(ours, |run| run.hit_rate) / hits, Op::AtLeast, 0.9);
    }

    /// Compares ours with own counts, on the worst of all seeds.
    fn against_own_counts(&self, report: &mut Report) {
        let ours = self.of(|entry| entry.role == Role::Ours).next();
        let peer = self.of(|entry| entry.name == OWN_COUNTS).next();
        let Some((ours, peer)) = ours.zip(peer) else { return };
        for (what, of) in [TOLD[1], TOLD[2]] {
            let ratios = ours.iter().zip(peer).map(|(ours, peer)| of(ours) / of(peer));
            let key = format!("{}: {what} / {OWN_COUNTS} (worst seed)", self.title);
            report.bar(key, Spread::of(ratios).most, Op::AtMost, 1.0);
        }
    }

    /// Returns the points to draw.
    fn lines(&self) -> Vec<plot::Point> {
        let all = self.entries.iter().zip(&self.runs);
        all.map(|(entry, runs)| plot::Point {
            short: entry.short,
            p99_s: median(runs, |run| run.p99_s),
            hit_rate: median(runs, |run| run.hit_rate),
        })
        .collect()
    }
}
