//! The limit that finds itself, beside an oracle that knows, fixed numbers and other controllers: scenarios of minutes in virtual time.

mod contender;
mod figures;
mod look;
mod oracle;
mod play;
mod roster;
mod scenarios;
mod stage;
mod standing;
mod upstream;
mod workload;

pub(crate) use self::look::{Look, look};

use crate::Fallible;
use crate::virtual_time;

/// What `of` makes of each, in their order, on as many threads as there are cores.
fn spread_out<T: Sync, R: Send>(all: &[T], of: impl Fn(&T) -> R + Sync) -> Fallible<Vec<R>> {
    virtual_time::each(0..all.len() as u64, |place| Ok(of(&all[place as usize])))
}
