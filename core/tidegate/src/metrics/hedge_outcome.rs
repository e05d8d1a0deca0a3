//! The outcomes of hedges, as the labels of a counter.

/// An outcome of a hedge. Several can apply to one hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HedgeOutcome {
    /// A second attempt was sent.
    Sent,
    /// The hedge produced the first token. Also counted as [`HedgeOutcome::Sent`].
    Won,
    /// No hedge was sent, because no other replica had a free slot.
    NoSlot,
    /// No hedge was sent, because the retry budget was used up.
    NoBudget,
}

impl HedgeOutcome {
    pub(super) const ALL: [HedgeOutcome; 4] =
        [HedgeOutcome::Sent, HedgeOutcome::Won, HedgeOutcome::NoSlot, HedgeOutcome::NoBudget];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            HedgeOutcome::Sent => "sent",
            HedgeOutcome::Won => "won",
            HedgeOutcome::NoSlot => "no_slot",
            HedgeOutcome::NoBudget => "no_budget",
        }
    }
}
