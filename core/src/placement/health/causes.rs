//! What speaks against a replica: each cause stands until its own cure.

/// Why a replica is out of the choice, the least bad first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::placement) enum Cause {
    /// Calls fail there. Cured by calls that do not.
    Failing,
    /// Its probes say so. Cured by one that says that it is well.
    Unwell,
    /// It does not answer. Cured by any byte.
    Silent,
    /// Nothing listens there. Cured by any answer to what was sent since.
    Refused,
}

/// Some of them.
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

    /// The worst of them.
    pub(super) fn worst(self) -> Option<Cause> {
        let all = [Cause::Refused, Cause::Silent, Cause::Unwell, Cause::Failing];
        all.into_iter().find(|cause| self.contains(*cause))
    }
}
