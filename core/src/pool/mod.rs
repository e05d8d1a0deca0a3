//! Keeps what is known of a pool's replicas fresh: finds them, asks after their health, their load and their models. Decides nothing: what to ask, and what follows from the
//! answers, is [`crate::placement`]'s.

mod address;
mod layer;
mod off;

pub(crate) use address::Addresses;
pub use layer::PoolLayer;
pub(crate) use off::point;
