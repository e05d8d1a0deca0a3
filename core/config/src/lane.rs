//! Lanes: the priority classes of calls.

/// The priority class of a call.
///
/// Queued calls of a higher lane are admitted before those of a lower lane. A queued call moves up
/// one lane each time it has waited as long as the `aging` of its target states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// The highest lane, for calls whose response a user waits for.
    Interactive,
    /// The middle lane. The default.
    #[default]
    Standard,
    /// The lowest lane, for calls whose response no user waits for.
    Batch,
}

impl Lane {
    /// All lanes, highest first.
    pub const ALL: [Lane; 3] = [Lane::Interactive, Lane::Standard, Lane::Batch];

    /// Returns the name of the lane in the configuration, metrics and errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Lane::Interactive => "interactive",
            Lane::Standard => "standard",
            Lane::Batch => "batch",
        }
    }

    /// Returns the lane called `name`, or `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.as_str() == name)
    }
}
