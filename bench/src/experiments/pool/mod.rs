//! A pool of eight engines with prefix caches: our replica selection beside other policies, and an
//! oracle that sees every cache and queue, in virtual time.

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
