//! Priority classes.

/// The priority class of a call. Lower lanes go first only as they age (`aging`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Somebody is looking at a screen.
    Interactive,
    /// The default.
    #[default]
    Standard,
    /// Nobody waits for it.
    Batch,
}

impl Lane {
    /// Every lane, highest first.
    pub const ALL: [Lane; 3] = [Lane::Interactive, Lane::Standard, Lane::Batch];

    /// The name in configuration, metrics and errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Lane::Interactive => "interactive",
            Lane::Standard => "standard",
            Lane::Batch => "batch",
        }
    }

    /// The lane of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.as_str() == name)
    }
}
