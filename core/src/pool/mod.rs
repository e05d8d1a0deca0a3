//! Pool upkeep: discovers the replicas of a pool and polls their health, load and models.
//!
//! This module makes no decisions. [`crate::placement`] determines what is polled and what follows
//! from the answers.
//!
//! Each pool has one background task (`keeper.rs`). The first call starts it, and it ends 10 s
//! after the last call. It uses the gate's own transport, even if calls bring their own, and
//! bypasses all queues. The task holds only a weak reference to the gate's state, and ends with it.

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
