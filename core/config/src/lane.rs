//! Lanes: the priority classes of calls.

/// The priority class of a call. Calls of a lower lane go before those of a higher one only after
/// they have waited (`aging`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// A user waits for the response.
    Interactive,
    /// The default.
    #[default]
    Standard,
    /// No user waits for the response.
    Batch,
}

impl Lane {
    /// All lanes, highest first.
    pub const ALL: [Lane; 3] = [Lane::Interactive, Lane::Standard, Lane::Batch];

    /// Returns the name in the configuration, metrics and errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Lane::Interactive => "interactive",
            Lane::Standard => "standard",
            Lane::Batch => "batch",
        }
    }

    /// Returns the lane of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.as_str() == name)
    }
}
