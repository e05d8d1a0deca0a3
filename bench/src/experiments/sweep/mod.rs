//! Compares `tidegate sweep` and two other methods with the best cap, which is known from
//! exhaustive measurements of the servers, in virtual time.

mod comparison;
mod drawn_calls;
mod figures;
mod kneedle;
mod long_run_yield;
mod measure_all;
mod oracle;
mod peers;
mod plot;
mod prepared_scenario;
mod print_answers;
mod print_steps;
mod run_sweep;
mod scenarios;
mod server;
mod slow_client;
mod table;

pub(crate) use self::measure_all::{SEEDS, measure};
pub(crate) use self::print_answers::answers;
pub(crate) use self::print_steps::{Inspect, inspect};
