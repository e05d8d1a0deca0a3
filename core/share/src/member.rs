//! What all limits know of a member.

/// The number of a connection to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// The smallest and the largest weight that a member may have. Others are clamped.
pub const WEIGHTS: (f64, f64) = (1e-3, 1e6);
