//! The members whose messages a member receives over a store that passes them on, and may lose
//! some.
//!
//! A local broker passes messages on in order, and knows who is connected. With a remote store,
//! each message has a number. A member with calls in flight sends one at least every 2 s, and one
//! more after its last message with events. So a receiver notices within 10 s that a message was
//! lost, or that the member has ended.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::LEASE_TIME;

/// The maximum number of peers. Messages of further ones are ignored.
const MAX_PEERS: usize = 4_096;

/// The peers that were heard, and were not removed as silent since.
#[derive(Debug, Default)]
pub struct Peers {
    peers: BTreeMap<u64, Peer>,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    heard_at: Instant,
    /// The number of its last message.
    number: u64,
}

/// What a message of a peer means for what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOrder {
    /// The message follows the last one of the peer, or is the first one that was received.
    InOrder,
    /// Messages of the peer were lost, so what is known of its calls may be wrong.
    AfterLoss,
    /// The message must be ignored: it has arrived already, or there are too many peers.
    Ignored,
}

impl Peers {
    /// Records that message `number` of a peer has arrived. A peer numbers its messages from 1.
    pub fn on_message(&mut self, now: Instant, peer: u64, number: u64) -> MessageOrder {
        let is_full = self.peers.len() >= MAX_PEERS;
        match self.peers.get_mut(&peer) {
            Some(known) if number <= known.number => MessageOrder::Ignored,
            Some(known) => {
                let is_next = number == known.number + 1;
                *known = Peer { heard_at: now, number };
                if is_next { MessageOrder::InOrder } else { MessageOrder::AfterLoss }
            }
            None if is_full => MessageOrder::Ignored,
            None => {
                self.peers.insert(peer, Peer { heard_at: now, number });
                MessageOrder::InOrder
            }
        }
    }

    /// Removes a peer that has left, if it is known.
    pub fn remove(&mut self, peer: u64) {
        self.peers.remove(&peer);
    }

    /// Removes the peers that were not heard for [`LEASE_TIME`], and returns them.
    pub fn remove_silent(&mut self, now: Instant) -> Vec<u64> {
        let is_silent = |peer: &Peer| now.saturating_duration_since(peer.heard_at) >= LEASE_TIME;
        let silent: Vec<_> =
            self.peers.iter().filter(|(_, peer)| is_silent(peer)).map(|(id, _)| *id).collect();
        self.peers.retain(|_, peer| !is_silent(peer));
        silent
    }

    /// Returns the number of peers.
    pub fn count(&self) -> usize {
        self.peers.len()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lost_and_repeated_messages_are_noticed() {
        let (now, mut peers) = (Instant::now(), Peers::default());
        let mut hear = |peer, number| peers.on_message(now, peer, number);
        assert_eq!(hear(1, 5), MessageOrder::InOrder, "earlier messages were before this member joined");
        assert_eq!(hear(1, 6), MessageOrder::InOrder);
        assert_eq!(hear(2, 1), MessageOrder::InOrder);
        assert_eq!(hear(1, 8), MessageOrder::AfterLoss);
        assert_eq!(hear(1, 8), MessageOrder::Ignored);
        assert_eq!(hear(1, 7), MessageOrder::Ignored);
        assert_eq!(hear(1, 9), MessageOrder::InOrder);
        assert_eq!(peers.count(), 2);
    }

    #[test]
    fn silent_peers_end_with_their_lease() {
        let (mut now, mut peers) = (Instant::now(), Peers::default());
        peers.on_message(now, 1, 1);
        now += LEASE_TIME - Duration::from_secs(2);
        peers.on_message(now, 2, 1);
        assert_eq!(peers.remove_silent(now), []);
        now += Duration::from_secs(2);
        assert_eq!(peers.remove_silent(now), [1]);
        peers.remove(2);
        assert_eq!(peers.count(), 0);
        assert_eq!(peers.on_message(now, 1, 1), MessageOrder::InOrder, "it has come back");
    }

    #[test]
    fn number_of_peers_is_bounded() {
        let (now, mut peers) = (Instant::now(), Peers::default());
        for peer in 0..MAX_PEERS as u64 {
            assert_eq!(peers.on_message(now, peer, 1), MessageOrder::InOrder);
        }
        assert_eq!(peers.on_message(now, 1 << 20, 1), MessageOrder::Ignored);
        assert_eq!(peers.on_message(now, 0, 2), MessageOrder::InOrder);
    }
}
