//! The outcomes of hedges. A hedge is a second attempt, at another replica, of a call whose first
//! token is late.

/// An outcome of a hedge, which is a label of a counter. Several outcomes can apply to one hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HedgeOutcome {
    /// The second attempt was sent.
    Sent,
    /// The second attempt produced the first token before the first attempt did. Also counted as
    /// [`HedgeOutcome::Sent`].
    Won,
    /// No second attempt was sent, because no other replica had a free slot.
    NoSlot,
    /// No second attempt was sent, because the retry budget was used up.
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
