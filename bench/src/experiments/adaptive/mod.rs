//! Compares the adaptive limit with an oracle, fixed limits and other controllers, in scenarios of
//! some minutes of virtual time.

mod client;
mod client_budget;
pub(crate) mod contender;
mod contender_list;
mod contender_results;
pub(crate) mod figures;
mod measure_all;
pub(crate) mod oracle;
mod oracle_cache;
pub(crate) mod peers;
mod plot;
pub(crate) mod prepared_scenario;
mod print_runs;
pub(crate) mod run_records;
pub(crate) mod scenarios;
mod table;
pub(crate) mod upstream;
pub(crate) mod workload;

pub(crate) use self::measure_all::{SEEDS, measure};
pub(crate) use self::print_runs::{Inspect, inspect};

use crate::Fallible;
use crate::virtual_time;

/// Calls `of` for each element, on as many threads as there are cores. Returns the results in the
/// order of the elements.
fn spread_out<T: Sync, R: Send>(all: &[T], of: impl Fn(&T) -> R + Sync) -> Fallible<Vec<R>> {
    virtual_time::each(0..all.len() as u64, |place| Ok(of(&all[place as usize])))
}
