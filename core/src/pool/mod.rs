//! Keeps what is known of a pool's replicas fresh: finds them, asks after their health, their load and their models. Decides nothing: what to ask, and what follows from the
//! answers, is [`crate::placement`]'s.

mod layer;

pub use layer::PoolLayer;
