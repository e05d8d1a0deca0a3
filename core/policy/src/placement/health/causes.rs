//! The causes for which a replica is ejected. Each has its own cure.

/// Why a replica is ejected, the least bad cause first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::placement) enum Cause {
    /// Calls fail. Cured by calls that succeed.
    Failing,
    /// Probes fail. Cured by a successful probe.
    Unwell,
    /// The replica does not answer. Cured by any byte.
    Silent,
    /// Connections are refused. Cured by any answer to something sent since.
    Refused,
}

/// A set of causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::placement) struct Causes(u8);

impl Causes {
    pub(super) fn of<const N: usize>(causes: [Cause; N]) -> Self {
        Self(causes.into_iter().fold(0, |all, cause| all | 1 << cause as u8))
    }

    pub(super) fn and(self, cause: Cause) -> Self {
        Self(self.0 | Self::of([cause]).0)
    }

    pub(super) fn less(self, cured: Self) -> Self {
        Self(self.0 & !cured.0)
    }

    pub(super) fn contains(self, cause: Cause) -> bool {
        self.0 & Self::of([cause]).0 != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the worst cause.
    pub(super) fn worst(self) -> Option<Cause> {
        let all = [Cause::Refused, Cause::Silent, Cause::Unwell, Cause::Failing];
        all.into_iter().find(|cause| self.contains(*cause))
    }
}
