//! Compares `tidegate sweep` and two other methods with the best cap, which is known from
//! exhaustive measurements of the servers, in virtual time.

mod answers;
mod calls;
mod figures;
mod inspect;
mod kneedle;
mod long_run;
mod measure;
mod oracle;
mod peers;
mod play;
mod plot;
mod prepared_scenario;
mod scenarios;
mod server;
mod slow_client;
mod table;
mod verdict;

pub(crate) use self::answers::answers;
pub(crate) use self::inspect::{Inspect, inspect};
pub(crate) use self::measure::{SEEDS, measure};
