//! Measures all settings on the seeds of the published figures: the report with its figures and
//! bars (thresholds), and the tables and charts in `bench/pool`.

use super::chooser_list::{Entry, OWN_COUNTS, Role, entries};
use super::figures::Figures;
use super::plot;
use super::scaled_workload::{Scene, capacity};
use super::simulate::{Clients, Fault};
use super::table::{LEGEND, median, table};
use super::workload::Workload;
use crate::Fallible;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;

/// The seeds of the reported figures. Constants were chosen on seeds 1 to 100.
pub(crate) const SEEDS: Seeds = Seeds::new(101, 105);
const CLIENTS: [usize; 3] = [1, 8, 64];
/// The loads, as shares of the pool's capacity. All choosers (replica selection policies) run at
/// the second load, which the charts show.
const LOADS: [f64; 3] = [0.5, 0.7, 0.85];
const DRAWN: f64 = LOADS[1];
/// The loads of runs with a fault. Seven of the eight replicas can serve them.
const FAULTY: [f64; 2] = [LOADS[0], LOADS[1]];
/// Short names of the choosers that run at all loads. The others run at the second load only.
const ALWAYS: [&str; 4] = ["ours", "p2c", "hashing", "tree"];
/// Short names of the choosers that also run with sticky sessions: each session's calls all come
/// from one client.
const STICKY: [&str; 3] = ["ours", "p2c", "hashing"];

/// Measures all settings on `seeds`, and returns the report. With `draws`, the report has
/// tables and charts, too.
pub(crate) fn measure(seeds: Seeds, draws: bool) -> Fallible<Report> {
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
                let played = scene.play(clients, Fault::None, &|entry| match entry.role {
                    Role::Sharing => count > 1,
                    _ => load == DRAWN || ALWAYS.contains(&entry.short),
                })?;
                results.push_str(&played.record_figures(&mut report));
                played.against_the_oracle(&mut report);
                if load == DRAWN {
                    drawn.push((count, played.lines()));
                }
            }
            if load == DRAWN {
                for count in [8, 64] {
                    let clients = Clients { count, sticky: true };
                    let played = scene.play(clients, Fault::None, &|entry| STICKY.contains(&entry.short))?;
                    results.push_str(&played.record_figures(&mut report));
                }
            }
            if FAULTY.contains(&load) {
                for fault in [Fault::Slow, Fault::Killed, Fault::Stale, Fault::Frozen] {
                    for count in CLIENTS {
                        let clients = Clients { count, sticky: false };
                        let played =
                            scene.play(clients, fault, &|entry| ["ours", "p2c"].contains(&entry.short))?;
                        results.push_str(&played.record_figures(&mut report));
                        played.against_own_counts(&mut report);
                    }
                }
            }
        }
        if draws {
            report.page(format!("pool/{}.svg", workload.name()), plot::draw(workload, &drawn)?);
        }
    }
    if draws {
        report.page("pool/results.md".to_owned(), results);
    }
    Ok(report)
}

/// A workload at a load, its calls, and the oracles' figures. The oracles see all calls as one
/// client, so that their figures do not depend on the number of clients.
struct Setting {
    scene: Scene,
    calls: super::scaled_workload::Courses,
    oracles: Vec<Vec<Figures>>,
}

/// The figures of some choosers in one setting, one element per seed. Without a fault, the oracles
/// are included.
struct SettingFigures {
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

    fn play(
        &self,
        clients: Clients,
        fault: Fault,
        selects: &dyn Fn(&Entry) -> bool,
    ) -> Fallible<SettingFigures> {
        let mut entries = chosen(clients.count, &|entry| entry.role != Role::Oracle && selects(entry));
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
        Ok(SettingFigures { title, entries, runs })
    }
}

fn chosen(clients: usize, selects: &dyn Fn(&Entry) -> bool) -> Vec<Entry> {
    entries(clients).into_iter().filter(|entry| selects(entry)).collect()
}

/// The name of a figure, and the function that reads it.
type Named = (&'static str, fn(&Figures) -> f64);

/// The figures that the report contains.
const REPORTED: [Named; 7] = [
    ("p50 TTFT, s", |run| run.p50_s),
    ("p99 TTFT, s", |run| run.p99_s),
    ("mean TTFT, s", |run| run.mean_s),
    ("prefix hits, share of prompt tokens", |run| run.hit_rate),
    ("calls at the fullest replica / mean", |run| run.spread),
    ("goodput, share of calls in time", |run| run.goodput),
    ("streams cut", |run| run.truncated),
];

impl SettingFigures {
    /// Records the figures in `report`. Returns them as a Markdown table.
    fn record_figures(&self, report: &mut Report) -> String {
        for (entry, runs) in self.entries.iter().zip(&self.runs) {
            for (what, of) in REPORTED {
                let (key, value) = (format!("{}: {what}", self.title), Spread::of(runs.iter().map(of)));
                match entry.role {
                    Role::Ours => report.figure(key, value),
                    Role::Sharing => report.figure(format!("{key} (sharing)"), value),
                    _ => report.peer(entry.name, key, value),
                }
            }
        }
        table(&self.title, &self.entries, &self.runs)
    }

    fn of(&self, selects: impl Fn(&Entry) -> bool) -> impl Iterator<Item = &Vec<Figures>> {
        self.entries.iter().zip(&self.runs).filter(move |(entry, _)| selects(entry)).map(|(_, runs)| runs)
    }

    /// Records the pass criteria for p99 TTFT and prefix hits, for clients that know nothing of
    /// each other and for those that share the pool. Each figure is compared with the best value
    /// that an oracle reaches in it.
    fn against_the_oracle(&self, report: &mut Report) {
        for (role, sharing, most_p99) in [(Role::Ours, "", 1.5), (Role::Sharing, ", sharing", 1.3)] {
            if let Some(runs) = self.of(|entry| entry.role == role).next() {
                self.record_bars(report, runs, sharing, most_p99);
            }
        }
    }

    fn record_bars(&self, report: &mut Report, ours: &[Figures], sharing: &str, most_p99: f64) {
        let oracles = |of: fn(&Figures) -> f64| {
            self.of(|entry| entry.role == Role::Oracle).map(move |runs| median(runs, of))
        };
        let p99 = oracles(|run| run.p99_s).fold(f64::NAN, f64::min);
        let hits = oracles(|run| run.hit_rate).fold(f64::NAN, f64::max);
        let key = |what: &str| {
            format!("{}: {what}{sharing} / the best oracle's (medians of the seeds)", self.title)
        };
        report.bar(key("p99 TTFT"), median(ours, |run| run.p99_s) / p99, Op::AtMost, most_p99);
        report.bar(key("prefix hits"), median(ours, |run| run.hit_rate) / hits, Op::AtLeast, 0.9);
    }

    /// Records the ratios of Tidegate's p99 and mean TTFT to those of power of two choices on the
    /// client's own calls, with their pass criteria. The ratio of the worst seed counts.
    fn against_own_counts(&self, report: &mut Report) {
        let ours = self.of(|entry| entry.role == Role::Ours).next();
        let peer = self.of(|entry| entry.name == OWN_COUNTS).next();
        let Some((ours, peer)) = ours.zip(peer) else { return };
        for (what, of) in [REPORTED[1], REPORTED[2]] {
            let ratios = ours.iter().zip(peer).map(|(ours, peer)| of(ours) / of(peer));
            let key = format!("{}: {what} / {OWN_COUNTS} (worst seed)", self.title);
            report.bar(key, Spread::of(ratios).most, Op::AtMost, 1.0);
        }
    }

    /// Returns the points of the charts: for each chooser, the medians of p99 TTFT and of prefix
    /// hits.
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
