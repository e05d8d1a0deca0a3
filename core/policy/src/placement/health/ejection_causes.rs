//! The causes for which a replica is ejected, with the evidence of each.

use std::time::Instant;

/// Why a replica is ejected, the least bad cause first. A cause is *cured* by an observation that
/// contradicts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Calls fail. No observation cures this cause: it ends when a trial begins, in which only
    /// accepted calls count as successes.
    CallsFail,
    /// Health probes are answered with an error. Cured by a successful probe.
    ProbesFail,
    /// Health probes are not answered in time. Cured by any received byte.
    Silent,
    /// Connections are refused. Cured by an answer to a call or probe that was sent after the
    /// last refusal.
    Refused,
}

/// The observations of one cause since it was last cured.
#[derive(Clone, Copy, Debug)]
pub(super) struct CauseEvidence {
    /// When the first observation began: for a probe that timed out, the time at which it was sent.
    pub(super) since: Instant,
    /// When the last observation was made.
    pub(super) last: Instant,
    /// Number of observations of the cause.
    pub(super) count: u32,
}

/// The causes for which a replica is ejected, each with its evidence. An entry is `None` if its
/// cause does not apply.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Causes([Option<CauseEvidence>; 4]);

impl Causes {
    /// Adds an observation of a cause, which began at `since` and was made now. Returns all
    /// evidence of the cause.
    pub(super) fn add(&mut self, cause: Cause, since: Instant, now: Instant) -> CauseEvidence {
        let evidence = self.0[cause as usize].get_or_insert(CauseEvidence { since, last: now, count: 0 });
        evidence.last = now;
        evidence.count += 1;
        *evidence
    }

    /// Returns the evidence of a cause, or `None` if there is none.
    pub(super) fn get(&self, cause: Cause) -> Option<CauseEvidence> {
        self.0[cause as usize]
    }

    /// Removes a cause with its evidence. Returns `true` if there was evidence of the cause.
    pub(super) fn remove(&mut self, cause: Cause) -> bool {
        self.0[cause as usize].take().is_some()
    }

    /// Returns the worst cause in words, or `None` if there is no evidence of any cause.
    pub(super) fn worst_text(&self) -> Option<&'static str> {
        let texts = [
            "calls fail",
            "health probes are answered with an error",
            "health probes are not answered",
            "connections are refused",
        ];
        texts.get(self.worst()?).copied()
    }

    /// Returns the severity of the worst cause, where a larger number is worse, or `None` if there
    /// is no evidence of any cause.
    pub(super) fn worst(&self) -> Option<usize> {
        self.0.iter().rposition(Option::is_some)
    }
}
