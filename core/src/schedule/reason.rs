//! Reasons for which a call is not admitted.

pub use tidegate_policy::Reason;
