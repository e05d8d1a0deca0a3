//! One experiment a file.

pub(crate) mod noisy_neighbour;
pub(crate) mod outage;
