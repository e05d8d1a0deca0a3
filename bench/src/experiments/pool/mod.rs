//! A pool of eight engines with prefix caches: ours beside other ways to choose a replica, and an oracle that sees every cache and queue. Virtual time.

mod choosers;
mod figures;
mod look;
mod measure;
mod play;
mod plot;
mod replicas;
mod roster;
mod stage;
mod table;
mod workload;

pub(crate) use self::look::{Look, look};
pub(crate) use self::measure::{SEEDS, measure};
