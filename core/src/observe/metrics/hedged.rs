//! What became of the second tries of calls whose first token was late.

/// The label of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hedged {
    /// A second attempt was sent.
    Sent,
    /// It came first. Counted as sent as well.
    Won,
    /// No other replica had a slot free.
    NoSlot,
    /// The recent calls had not earned it.
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
