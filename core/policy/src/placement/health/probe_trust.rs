//! How far the results of health probes are trusted.

use std::time::Instant;

/// How far the health probes of one replica are trusted.
///
/// Probes may fail although calls succeed, for example because the configured path does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Probes {
    /// No probe has ended since the replica joined.
    #[default]
    Untested,
    /// No probe has ever succeeded. Contains the time of the first failure.
    Failing(Instant),
    /// A probe has succeeded.
    Trusted,
    /// Calls were accepted while no probe had ever succeeded: failures are ignored until a probe
    /// succeeds.
    Ignored,
}

impl Probes {
    /// Records a failed probe. Returns `true` if the failure is evidence against the replica.
    pub(super) fn on_failed(&mut self, now: Instant) -> bool {
        if *self == Self::Untested {
            *self = Self::Failing(now);
        }
        *self != Self::Ignored
    }

    /// Records the success of a call that was sent at `sent`. Returns `true` if failed probes are
    /// ignored from now on because of this call.
    pub(super) fn overrule(&mut self, sent: Instant) -> bool {
        let overruled = matches!(self, Self::Failing(since) if sent > *since);
        if overruled {
            *self = Self::Ignored;
        }
        overruled
    }
}
