//! A few seeds of some of it, as tables: for whoever chooses constants.

use clap::Args;

use super::play::{Clients, Fault};
use super::roster::entries;
use super::stage::{Scene, capacity};
use super::table::table;
use super::workload::Workload;
use crate::Fallible;

/// What to look at, instead of measuring.
#[derive(Args, Debug)]
pub(crate) struct Look {
    /// Workloads whose names contain this (mooncake, sessions); all: "".
    #[arg(long)]
    workload: Option<String>,
    /// Numbers of clients, by commas.
    #[arg(long, default_value = "64", value_delimiter = ',')]
    clients: Vec<usize>,
    /// Shares of capacity, in per cent, by commas.
    #[arg(long, default_value = "70", value_delimiter = ',')]
    load: Vec<u32>,
    /// Seeds, from and to: those up to 100 are to choose on.
    #[arg(long, default_value = "1-3")]
    seeds: String,
    /// Choosers by their short names, by commas (ours, p2c, oracle-1, ...; a name is meant with all that begin with it); all: "".
    #[arg(long, default_value = "", value_delimiter = ',')]
    who: Vec<String>,
    /// none, slow, killed, stale or frozen.
    #[arg(long, default_value = "none")]
    fault: String,
    /// Sessions stick to their clients.
    #[arg(long)]
    sticky: bool,
}

impl Look {
    pub(crate) fn wanted(&self) -> bool {
        self.workload.is_some()
    }

    fn seeds(&self) -> Fallible<Vec<u64>> {
        let (from, to) = self.seeds.split_once('-').unwrap_or((&self.seeds, &self.seeds));
        Ok((from.parse()?..=to.parse()?).collect())
    }
}

/// Prints it.
pub(crate) fn look(look: &Look) -> Fallible<String> {
    let fault = match look.fault.as_str() {
        "none" => Fault::None,
        "slow" => Fault::Slow,
        "killed" => Fault::Killed,
        "stale" => Fault::Stale,
        "frozen" => Fault::Frozen,
        other => return Err(format!("{other}: a fault is none, slow, killed, stale or frozen").into()),
    };
    let wanted = look.workload.clone().unwrap_or_default();
    for workload in Workload::ALL.into_iter().filter(|workload| workload.name().contains(&wanted)) {
        let full = capacity(workload)?;
        eprintln!("{}: full at {full:.2} times its speed", workload.name());
        for load in &look.load {
            let scene = Scene::new(workload, f64::from(*load) / 100.0, full);
            let calls = scene.calls(&look.seeds()?)?;
            for count in &look.clients {
                let mut entries = entries(*count);
                entries.retain(|entry| look.who.iter().any(|who| entry.short.starts_with(who.as_str())));
                let clients = Clients { count: *count, sticky: look.sticky };
                let runs = scene.play(&calls, clients, fault, &entries)?;
                print!("{}", table(&format!("{}, {count} clients", scene.name()), &entries, &runs));
            }
        }
    }
    Ok(String::new())
}
