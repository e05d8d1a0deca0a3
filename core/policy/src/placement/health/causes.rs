//! The causes for which a replica is ejected, with the evidence of each.

use std::time::Instant;

/// Why a replica is ejected, the least bad cause first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Calls fail. Cured by calls that succeed.
    CallsFail,
    /// Health probes are answered with an error. Cured by a successful probe.
    ProbesFail,
    /// Health probes are not answered in time. Cured by any received byte.
    Silent,
    /// Connections are refused. Cured by an answer to a call or probe that was sent after the
    /// last refusal.
    Refused,
}

/// Consecutive evidence of one cause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// When the first piece of evidence was sought: for a probe that timed out, when it was sent.
    pub(super) since: Instant,
    /// When the last piece of evidence was found.
    pub(super) last: Instant,
    /// Number of pieces of evidence.
    pub(super) count: u32,
}

/// The causes that are in force, each with its evidence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Causes([Option<Evidence>; 4]);

impl Causes {
    /// Adds one piece of evidence of a cause, which was sought at `since` and found now. Returns
    /// all evidence of the cause.
    pub(super) fn add(&mut self, cause: Cause, since: Instant, now: Instant) -> Evidence {
        let evidence = self.0[cause as usize].get_or_insert(Evidence { since, last: now, count: 0 });
        evidence.last = now;
        evidence.count += 1;
        *evidence
    }

    /// Returns the evidence of a cause, or `None` if the cause is not in force.
    pub(super) fn get(&self, cause: Cause) -> Option<Evidence> {
        self.0[cause as usize]
    }

    /// Removes a cause. Returns `true` if the cause was in force.
    pub(super) fn remove(&mut self, cause: Cause) -> bool {
        self.0[cause as usize].take().is_some()
    }

    /// Returns the severity of the worst cause, or `None` if no cause is in force.
    pub(super) fn worst(&self) -> Option<usize> {
        self.0.iter().rposition(Option::is_some)
    }
}
