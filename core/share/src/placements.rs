//! Pools: what the members tell each other of the calls that they send to replicas.
//!
//! The broker forwards the events of each member to all others, and keeps none of them. Who joins
//! later learns of the calls that begin from then on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The maximum number of events in one message.
pub const MAX_PLACEMENTS: usize = 8;
/// The maximum number of prefixes of a call in an event.
pub const MAX_PREFIXES: usize = 256;

/// Where the calls of a member were sent, and how far they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placements {
    /// Whether earlier calls of the member must be forgotten.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarts: bool,
    /// What happened, in order. At most [`MAX_PLACEMENTS`].
    pub events: Vec<PlacementEvent>,
}

/// What happened to a call of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementEvent {
    /// The number of the call, which no other call of the member has.
    pub call: u64,
    /// What happened.
    pub what: PlacementStep,
}

/// A step in the life of a call to a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementStep {
    /// The call was sent.
    Sent {
        /// Hash of the replica's URL.
        replica: u64,
        /// Number of prompt tokens.
        input: u64,
        /// Expected number of output tokens.
        output: u64,
        /// Hash of the session, or `None` if the call names none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
        /// Hashes of the prefixes of the prompt, the shortest first. At most [`MAX_PREFIXES`].
        prefixes: Arc<[u64]>,
    },
    /// The first token of the answer has arrived.
    FirstToken {
        /// The time since the call was sent, in microseconds.
        after_us: u64,
    },
    /// The call has ended.
    Ended {
        /// Whether the replica has accepted the call, so that its prompt is cached there.
        accepted: bool,
    },
}

impl Placements {
    /// Returns a message that forgets earlier calls.
    pub fn restart() -> Self {
        Self { restarts: true, events: Vec::new() }
    }

    /// Returns `true` if the message is not larger than permitted.
    pub fn is_valid(&self) -> bool {
        let is_short = |event: &PlacementEvent| match &event.what {
            PlacementStep::Sent { prefixes, .. } => prefixes.len() <= MAX_PREFIXES,
            PlacementStep::FirstToken { .. } | PlacementStep::Ended { .. } => true,
        };
        self.events.len() <= MAX_PLACEMENTS && self.events.iter().all(is_short)
    }
}
