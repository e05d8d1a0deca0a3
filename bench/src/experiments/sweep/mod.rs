//! `tidegate sweep` against servers whose best cap is known from exhaustive measurement, beside two
//! other methods, in virtual time.

mod answers;
mod client;
mod figures;
mod hold;
mod judge;
mod kneedle;
mod look;
mod measure;
mod mix;
mod oracle;
mod peers;
mod play;
mod plot;
mod scenarios;
mod server;
mod stage;
mod table;

pub(crate) use self::answers::answers;
pub(crate) use self::look::{Look, look};
pub(crate) use self::measure::{SEEDS, measure};
