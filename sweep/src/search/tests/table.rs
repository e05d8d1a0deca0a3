//! The scenarios of the search tests, and a test, ignored by default, that prints figures of the
//! search over many seeds.

use super::server_models::{Bucket, Bursts, Hysteresis, ServerModel};
use super::simulated_sweep::Play;
use crate::search::SearchSettings;
use crate::search_result::Binding;

/// Returns the main scenarios. Each is a name, a model of a server, and the binding limit that the
/// search should find.
pub(crate) fn scenarios() -> Vec<(&'static str, ServerModel, Binding)> {
    use Binding::*;
    let limit = |limit: usize| ServerModel { limit: Some(limit), ..ServerModel::usl(0.005, 0.0) };
    let bucket = |headers: bool, retry_after: bool, by_tokens: bool| ServerModel {
        bucket: Some(Bucket { cap: 12.2, seconds: 60.0, headers, retry_after, by_tokens }),
        ..ServerModel::usl(0.005, 0.0)
    };
    let drift = |from: ServerModel, after: usize, to: ServerModel| ServerModel {
        drift: Some((after, Box::new(to))),
        ..from
    };
    let after = |above: usize, limit: usize, slower: f64| ServerModel {
        hysteresis: Some(Hysteresis { above, seconds: 30.0, limit, slower }),
        ..ServerModel::usl(0.005, 0.0)
    };
    let slow = |model: ServerModel, above: usize, seconds: f64, slower: f64| ServerModel {
        hysteresis: Some(Hysteresis { above, seconds, limit: usize::MAX, slower }),
        ..model
    };
    vec![
        ("usl peak 35", ServerModel::peak(35.0), Saturation),
        ("usl peak 97", ServerModel::peak(97.0), Saturation),
        (
            "usl 35, lengths untold",
            ServerModel { noise: 0.5, lengths: 0.1, ..ServerModel::peak(35.0) },
            Saturation,
        ),
        ("plateau at 40", ServerModel { running: Some(40), ..ServerModel::usl(0.005, 0.0) }, Saturation),
        ("hard 10", limit(10), ConcurrencyLimit),
        ("hard 24", limit(24), ConcurrencyLimit),
        ("hard 10, Retry-After", ServerModel { retry_after: Some(1.0), ..limit(10) }, ConcurrencyLimit),
        ("hard 24, Retry-After", ServerModel { retry_after: Some(1.0), ..limit(24) }, ConcurrencyLimit),
        ("hard 24, 1 % fails", ServerModel { background: 0.01, ..limit(24) }, ConcurrencyLimit),
        ("kv 40", ServerModel { kv: Some(40), ..ServerModel::usl(0.005, 0.0) }, KvCliff),
        ("tokens 12, headers", bucket(true, true, true), TokenRate),
        ("tokens 12, Retry-After", bucket(false, true, true), TokenRate),
        ("tokens 12, bare", bucket(false, false, true), TokenRate),
        ("requests 12, bare", bucket(false, false, false), RequestRate),
        ("slow start to 24", ServerModel { grows: Some(60.0), ..limit(24) }, ConcurrencyLimit),
        ("quick rises, 24", ServerModel { rise: Some(1.5), ..limit(24) }, ConcurrencyLimit),
        (
            "usl 35, as load grows",
            ServerModel { growth: Some((6.0, 1.0)), ..ServerModel::peak(35.0) },
            Saturation,
        ),
        ("24, as load grows", ServerModel { growth: Some((6.0, 1.0)), ..limit(24) }, ConcurrencyLimit),
        ("limited after 24", after(25, 8, 1.0), ConcurrencyLimit),
        ("slow after 24", after(25, 24, 3.0), ConcurrencyLimit),
        ("usl 35, slow after 50", slow(ServerModel::peak(35.0), 50, 45.0, 2.5), Saturation),
        ("drift 24 to 12", drift(limit(24), 400, limit(12)), ConcurrencyLimit),
        ("drift 12 to 24", drift(limit(12), 300, limit(24)), ConcurrencyLimit),
        ("drift peak 60 to 30", drift(ServerModel::peak(60.0), 400, ServerModel::peak(30.0)), Saturation),
        ("drift peak 30 to 60", drift(ServerModel::peak(30.0), 400, ServerModel::peak(60.0)), Saturation),
        ("client 20", ServerModel { client: Some(20), ..ServerModel::usl(0.005, 0.0) }, Client),
    ]
}

/// Returns further scenarios, in the same form as [`scenarios`].
pub(crate) fn others() -> Vec<(&'static str, ServerModel, Binding)> {
    use Binding::*;
    let limit = |limit: usize| ServerModel { limit: Some(limit), ..ServerModel::usl(0.005, 0.0) };
    let bucket = |cap: f64, seconds: f64, headers: bool, retry_after: bool| ServerModel {
        bucket: Some(Bucket { cap, seconds, headers, retry_after, by_tokens: true }),
        ..ServerModel::usl(0.005, 0.0)
    };
    let drift = |from: ServerModel, after: usize, to: ServerModel| ServerModel {
        drift: Some((after, Box::new(to))),
        ..from
    };
    let after = |above: usize, seconds: f64, limit: usize, slower: f64| ServerModel {
        hysteresis: Some(Hysteresis { above, seconds, limit, slower }),
        ..ServerModel::usl(0.005, 0.0)
    };
    let objective = |ttft: f64| SearchSettings { ttft: Some(ttft), ..SearchSettings::default() };
    vec![
        (
            "usl 35, equal lengths",
            ServerModel { lengths: 0.0, noise: 0.02, ..ServerModel::peak(35.0) },
            Saturation,
        ),
        ("usl 35, no noise", ServerModel { lengths: 0.5, noise: 0.0, ..ServerModel::peak(35.0) }, Saturation),
        ("usl 35, long tails", ServerModel { lengths: 1.0, ..ServerModel::peak(35.0) }, Saturation),
        ("usl 10", ServerModel::peak(10.0), Saturation),
        ("usl 200", ServerModel::peak(200.0), Saturation),
        ("usl 35, contended", ServerModel::usl(0.08, 0.92 / (35.0 * 35.0)), Saturation),
        ("usl 35, 1 % fails", ServerModel { background: 0.01, ..ServerModel::peak(35.0) }, Saturation),
        (
            "plateau, no noise",
            ServerModel { running: Some(40), noise: 0.02, ..ServerModel::usl(0.005, 0.0) },
            Saturation,
        ),
        ("amdahl", ServerModel::usl(0.05, 0.0), Saturation),
        ("no limit", ServerModel::usl(0.0005, 0.0), NotReached),
        ("hard 1", limit(1), ConcurrencyLimit),
        ("hard 2", limit(2), ConcurrencyLimit),
        ("hard 5", limit(5), ConcurrencyLimit),
        ("hard 100", limit(100), ConcurrencyLimit),
        ("hard 24, Retry-After 5", ServerModel { retry_after: Some(5.0), ..limit(24) }, ConcurrencyLimit),
        ("hard 24, slow round trips", ServerModel { round_trip: 0.3, ..limit(24) }, ConcurrencyLimit),
        ("hard 10, equal lengths", ServerModel { lengths: 0.0, noise: 0.02, ..limit(10) }, ConcurrencyLimit),
        ("hard 60 over usl 35", ServerModel { limit: Some(60), ..ServerModel::peak(35.0) }, Saturation),
        (
            "hard 20 under usl 35",
            ServerModel { limit: Some(20), ..ServerModel::peak(35.0) },
            ConcurrencyLimit,
        ),
        ("kv 25", ServerModel { kv: Some(25), ..ServerModel::usl(0.01, 0.0) }, KvCliff),
        ("kv 60", ServerModel { kv: Some(60), ..ServerModel::usl(0.005, 0.0) }, KvCliff),
        ("kv 90", ServerModel { kv: Some(90), ..ServerModel::usl(0.002, 0.0) }, KvCliff),
        ("kv 120", ServerModel { kv: Some(120), ..ServerModel::usl(0.002, 0.0) }, KvCliff),
        ("tokens 3, bare", bucket(3.2, 60.0, false, false), TokenRate),
        ("tokens 30, bare", bucket(30.4, 60.0, false, false), TokenRate),
        ("tokens 12, small bucket", bucket(12.2, 5.0, false, false), TokenRate),
        ("tokens 12 exact, headers", bucket(12.0, 60.0, true, true), TokenRate),
        ("tokens 12 exact, bare", bucket(12.0, 60.0, false, false), TokenRate),
        ("tokens 30, headers", bucket(30.4, 60.0, true, true), TokenRate),
        ("tokens 12, usl", ServerModel { s: 0.02, k: 0.0008, ..bucket(12.2, 60.0, true, true) }, TokenRate),
        ("slow start 20 s", ServerModel { grows: Some(20.0), ..limit(24) }, ConcurrencyLimit),
        ("slow start 180 s", ServerModel { grows: Some(180.0), ..limit(24) }, ConcurrencyLimit),
        ("quick rises x2", ServerModel { rise: Some(2.0), ..limit(24) }, ConcurrencyLimit),
        ("limited after 30", after(31, 10.0, 4, 1.0), ConcurrencyLimit),
        ("closed after 24", after(25, 10.0, 0, 1.0), ConcurrencyLimit),
        ("slow after 24, 60 s", after(25, 60.0, 24, 1.5), ConcurrencyLimit),
        ("drift 24 to 12 early", drift(limit(24), 150, limit(12)), ConcurrencyLimit),
        ("drift 24 to 18", drift(limit(24), 400, limit(18)), ConcurrencyLimit),
        ("drift 40 to 8", drift(limit(40), 350, limit(8)), ConcurrencyLimit),
        (
            "drift 24, faster",
            drift(limit(24), 300, ServerModel { limit: Some(24), ..ServerModel::usl(0.0, 0.0) }),
            ConcurrencyLimit,
        ),
        ("client 5", ServerModel { client: Some(5), ..ServerModel::usl(0.005, 0.0) }, Client),
        ("client 70", ServerModel { client: Some(70), ..ServerModel::usl(0.002, 0.0) }, Client),
        ("everything fails", ServerModel { background: 1.0, ..limit(24) }, ConcurrencyLimit),
        ("objective", ServerModel { settings: objective(0.75), ..ServerModel::usl(0.02, 0.0) }, Saturation),
    ]
}

/// Returns scenarios beside another program that runs in bursts, in the same form as
/// [`scenarios`].
pub(crate) fn noisy() -> Vec<(&'static str, ServerModel, Binding)> {
    use Binding::*;
    let mild = Bursts { longest: 2.0, slowest: 4.0, pauses: (0.5, 6.0) };
    let strong = Bursts { longest: 4.0, slowest: 10.0, pauses: (0.5, 6.0) };
    let engine = |running: usize, bursts: Bursts| ServerModel {
        running: Some(running),
        metrics: true,
        bursts: Some(bursts),
        ..ServerModel::usl(0.005, 0.0)
    };
    let objective = |model: ServerModel, ttft: f64| ServerModel {
        settings: SearchSettings { ttft: Some(ttft), ..SearchSettings::default() },
        ..model
    };
    let kv = |kv: usize, bursts: Bursts| ServerModel {
        kv: Some(kv),
        metrics: true,
        bursts: Some(bursts),
        ..ServerModel::usl(0.005, 0.0)
    };
    let quiet = |model: ServerModel| ServerModel { bursts: None, ..model };
    vec![
        ("engine 8, quiet", quiet(engine(8, mild)), Saturation),
        ("engine 16, quiet", quiet(engine(16, mild)), Saturation),
        ("engine 24, quiet", quiet(engine(24, mild)), Saturation),
        ("engine kv 20, quiet", quiet(kv(20, mild)), KvCliff),
        ("engine 16, objective, quiet", quiet(objective(engine(16, mild), 0.6)), Saturation),
        ("engine 24 by kv, quiet", ServerModel { is_kv_bound: true, ..quiet(engine(24, mild)) }, KvCliff),
        ("engine 24 by kv, mild", ServerModel { is_kv_bound: true, ..engine(24, mild) }, KvCliff),
        ("engine 24 by kv, strong", ServerModel { is_kv_bound: true, ..engine(24, strong) }, KvCliff),
        ("engine 8, mild", engine(8, mild), Saturation),
        ("engine 16, mild", engine(16, mild), Saturation),
        ("engine 24, mild", engine(24, mild), Saturation),
        ("engine kv 20, mild", kv(20, mild), KvCliff),
        ("engine 16, objective, mild", objective(engine(16, mild), 0.6), Saturation),
        ("engine 8, strong", engine(8, strong), Saturation),
        ("engine 16, strong", engine(16, strong), Saturation),
        ("engine 24, strong", engine(24, strong), Saturation),
        ("engine kv 20, strong", kv(20, strong), KvCliff),
        ("engine 16, objective, strong", objective(engine(16, strong), 1.0), Saturation),
        ("plateau 16, mild", ServerModel { metrics: false, ..engine(16, mild) }, Saturation),
        ("plateau 16, strong", ServerModel { metrics: false, ..engine(16, strong) }, Saturation),
        ("usl 35, mild", ServerModel { bursts: Some(mild), ..ServerModel::peak(35.0) }, Saturation),
        (
            "hard 24, mild",
            ServerModel { limit: Some(24), bursts: Some(mild), ..ServerModel::usl(0.005, 0.0) },
            ConcurrencyLimit,
        ),
    ]
}

fn of(name: &str, model: &ServerModel, class: Binding, seeds: std::ops::Range<u64>) {
    let (truth, throughput, highest) = model.truth();
    let best = (1..=highest).map(&throughput).fold(0.0, f64::max);
    let mut caps = Vec::new();
    let mut ratios = Vec::new();
    let mut calls = Vec::new();
    let mut times = Vec::new();
    let (mut infeasible, mut right, mut covered, mut confirmed, mut width) = (0, 0, 0, 0, 0);
    let n = seeds.end - seeds.start;
    let mut wrong = std::collections::BTreeMap::new();
    let mut uncovered = Vec::new();
    for seed in seeds {
        let played = Play::new(model.clone(), seed).play(6_000);
        let answer = played.search.answer();
        let cap = answer.cap.unwrap_or(0);
        caps.push(cap);
        infeasible += usize::from(cap > highest);
        ratios.push(if cap > highest || cap == 0 { 0.0 } else { throughput(cap) / best });
        calls.push(played.calls);
        times.push(played.seconds);
        right += usize::from(answer.binding == Some(class));
        if answer.binding != Some(class) {
            wrong.entry(format!("{:?}", answer.binding)).or_insert_with(Vec::new).push(seed);
        }
        let (low, high) = answer.interval.unwrap_or((0, 0));
        let covers = (low..=high).contains(&truth);
        covered += usize::from(covers);
        if !covers && uncovered.len() < 4 {
            uncovered.push((seed, low, high));
        }
        width += high - low;
        confirmed += usize::from(answer.confirmed);
    }
    caps.sort_unstable();
    calls.sort_unstable();
    ratios.sort_by(f64::total_cmp);
    times.sort_by(f64::total_cmp);
    let middle = n as usize / 2;
    println!(
        "{name:24} {truth:3}/{highest:3} cap {:3} [{:3} {:3}] X {:.3} p10 {:.3} inf {:3} class {:3} cover {:3} width {:5.1} conf {:3} calls {:5} max {:5} t {:6.0} {wrong:?} {uncovered:?}",
        caps[middle],
        caps[0],
        caps[caps.len() - 1],
        ratios[middle],
        ratios[n as usize / 10],
        infeasible,
        right,
        covered,
        width as f64 / n as f64,
        confirmed,
        calls[middle],
        calls[calls.len() - 1],
        times[middle],
    );
}

#[test]
#[ignore = "a table, for those who change the search"]
fn table() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (from, n) = (number("SEED", 1_001), number("SEEDS", 100));
    let only = std::env::var("ONLY").unwrap_or_default();
    let all = match std::env::var("TABLE").as_deref() {
        Ok("others") => others(),
        Ok("noisy") => noisy(),
        _ => scenarios(),
    };
    for (name, model, class) in all {
        if !name.contains(&only) {
            continue;
        }
        if std::env::var("TRACE").is_ok() {
            let mut play = Play::new(model.clone(), from);
            play.trace = true;
            let played = play.play(6_000);
            println!("{name}: {} attempts, {:#?}", played.attempts, played.search.answer());
        } else {
            of(name, &model, class, from..from + n);
        }
    }
}
