//! The adaptive limit beside an oracle, fixed limits and other controllers, in scenarios of minutes
//! in virtual time.

mod budget;
pub(crate) mod contender;
pub(crate) mod course;
pub(crate) mod figures;
mod known;
mod look;
mod measure;
pub(crate) mod oracle;
pub(crate) mod peers;
mod play;
mod plot;
mod roster;
pub(crate) mod scenarios;
pub(crate) mod stage;
mod standing;
mod table;
pub(crate) mod upstream;
pub(crate) mod workload;

pub(crate) use self::look::{Look, look};
pub(crate) use self::measure::{SEEDS, measure};

use crate::Fallible;
use crate::virtual_time;

/// Applies `of` to each element on as many threads as there are cores. Returns the results in
/// order.
fn spread_out<T: Sync, R: Send>(all: &[T], of: impl Fn(&T) -> R + Sync) -> Fallible<Vec<R>> {
    virtual_time::each(0..all.len() as u64, |place| Ok(of(&all[place as usize])))
}
