//! Keeps what is known of a pool's replicas fresh: finds them, asks after their health, their load and their models. Decides nothing: what to ask, and what follows from the
//! answers, is [`crate::placement`]'s.
//!
//! One task a pool (`keeper.rs`), which the first call starts and which ends some seconds after the last. It asks by the gate's own transport, whatever a call brings
//! along, and beside every queue. It holds nothing that would keep a gate alive, and ends with it.

mod address;
mod ask;
mod dns;
mod file;
mod keeper;
mod layer;
mod off;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use address::Addresses;
pub(crate) use keeper::Keeper;
pub use layer::PoolLayer;
pub(crate) use off::point;
