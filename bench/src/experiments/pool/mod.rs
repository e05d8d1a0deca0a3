//! Compares Tidegate's replica selection with other policies, and with an oracle that sees all
//! caches and queues, on eight engines with prefix caches in virtual time.

mod chooser_list;
mod choosers;
mod figures;
mod inspect;
mod load;
mod measure;
mod play;
mod plot;
mod replicas;
mod table;
mod workload;

pub(crate) use self::inspect::{Inspect, inspect};
pub(crate) use self::measure::{SEEDS, measure};
