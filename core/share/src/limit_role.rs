//! The roles of the members of an adaptive limit: which of them runs its law.
//!
//! An adaptive limit needs to see all calls of an upstream. So one member, the *leader*, runs its
//! law for all: the others send it the events of their calls, and the broker divides the slots that
//! the leader has found. A *deputy* gets the same events, so that it knows as much when the leader
//! ends. Leader and deputy are the members that joined first, or that had these roles at an earlier
//! broker.

use serde::{Deserialize, Serialize};

/// What a member does for an adaptive limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitRole {
    /// The member sends the events of its calls, and follows the leader.
    #[default]
    Follower,
    /// The member also gets the events of all calls, and follows the leader until it replaces it.
    Deputy,
    /// The member gets the events of all calls, and its limit is the one that is divided.
    Leader,
}

impl LimitRole {
    /// Returns the role of the member at this position among the observers, or `None` if it is not
    /// among them.
    pub fn from_position(position: Option<usize>) -> Self {
        match position {
            Some(0) => Self::Leader,
            Some(_) => Self::Deputy,
            None => Self::Follower,
        }
    }

    /// Returns `true` if the member sees the events of its own calls only.
    pub fn is_follower(&self) -> bool {
        *self == Self::Follower
    }
}

/// The appointment of a member by the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appointment {
    /// What the member does.
    pub role: LimitRole,
    /// Identifies the leader and the deputy. When it changes, each member tells of all of its calls
    /// again.
    pub term: u64,
}
