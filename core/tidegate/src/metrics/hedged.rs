//! The outcomes of hedges, as the labels of a counter.

/// An outcome of a hedge. Several can apply to one hedge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hedged {
    /// A second attempt was sent.
    Sent,
    /// The hedge produced the first token. Also counted as [`Hedged::Sent`].
    Won,
    /// No hedge was sent, because no other replica had a free slot.
    NoSlot,
    /// No hedge was sent, because the retry budget was used up.
    NoBudget,
}

impl Hedged {
    pub(super) const ALL: [Hedged; 4] = [Hedged::Sent, Hedged::Won, Hedged::NoSlot, Hedged::NoBudget];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Hedged::Sent => "sent",
            Hedged::Won => "won",
            Hedged::NoSlot => "no_slot",
            Hedged::NoBudget => "no_budget",
        }
    }
}
