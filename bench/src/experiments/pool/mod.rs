//! Compares Tidegate's replica selection with other policies, and with an oracle that sees all
//! caches and queues, on eight engines with prefix caches in virtual time.

mod chooser_list;
mod choosers;
mod figures;
mod measure_all;
mod plot;
mod print_runs;
mod replicas;
mod scaled_workload;
mod simulate;
mod table;
mod workload;

pub(crate) use self::measure_all::{SEEDS, measure};
pub(crate) use self::print_runs::{Inspect, inspect};
