//! Prints selected settings on a few seeds as tables. Constants were chosen with this command.

use clap::Args;

use super::chooser_list::entries;
use super::scaled_workload::{Scene, capacity};
use super::simulate::{Clients, Fault};
use super::table::table;
use super::workload::Workload;
use crate::Fallible;
use crate::seeds::Seeds;

/// Options that print some settings instead of measuring all of them.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// Print the workloads whose names contain this text (mooncake, sessions), instead of
    /// measuring. An empty text selects both.
    #[arg(long)]
    workload: Option<String>,
    /// Numbers of clients, separated by commas.
    #[arg(long, default_value = "64", value_delimiter = ',')]
    clients: Vec<usize>,
    /// Loads in per cent of the capacity, separated by commas.
    #[arg(long, default_value = "70", value_delimiter = ',')]
    load: Vec<u32>,
    /// First and last seed, for example `1-5`. Seeds up to 100 are for choosing constants.
    #[arg(long, default_value = "1-3")]
    seeds: Seeds,
    /// Prefixes of the choosers' short names (ours, p2c, oracle-1, ...), separated by commas. An
    /// empty text selects all.
    #[arg(long, default_value = "", value_delimiter = ',')]
    who: Vec<String>,
    /// The fault: none, slow, killed, stale or frozen.
    #[arg(long, default_value = "none")]
    fault: String,
    /// Send all calls of a session to the same client.
    #[arg(long)]
    sticky: bool,
}

impl Inspect {
    /// Returns `true` if `--workload` was given, so that settings are printed instead of measured.
    pub(crate) fn is_requested(&self) -> bool {
        self.workload.is_some()
    }
}

/// Prints the selected settings. Returns an empty text, because everything was printed already.
pub(crate) fn inspect(inspect: &Inspect) -> Fallible<String> {
    let fault = match inspect.fault.as_str() {
        "none" => Fault::None,
        "slow" => Fault::Slow,
        "killed" => Fault::Killed,
        "stale" => Fault::Stale,
        "frozen" => Fault::Frozen,
        other => return Err(format!("{other}: a fault is none, slow, killed, stale or frozen").into()),
    };
    let name_part = inspect.workload.clone().unwrap_or_default();
    for workload in Workload::ALL.into_iter().filter(|workload| workload.name().contains(&name_part)) {
        let full = capacity(workload)?;
        eprintln!("{}: full at {full:.2} times its speed", workload.name());
        for load in &inspect.load {
            let scene = Scene::new(workload, f64::from(*load) / 100.0, full);
            let seeds: Vec<u64> = inspect.seeds.into_iter().collect();
            let calls = scene.calls(&seeds)?;
            for count in &inspect.clients {
                let mut entries = entries(*count);
                entries.retain(|entry| inspect.who.iter().any(|who| entry.short.starts_with(who.as_str())));
                let clients = Clients { count: *count, sticky: inspect.sticky };
                let runs = scene.play(&calls, clients, fault, &entries)?;
                print!("{}", table(&format!("{}, {count} clients", scene.name()), &entries, &runs));
            }
        }
    }
    Ok(String::new())
}
