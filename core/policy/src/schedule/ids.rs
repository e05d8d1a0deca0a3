//! Identifiers of tenants and waiting calls.

/// A tenant's index in the table. Valid while the tenant holds or awaits a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TenantId(pub(super) usize);

/// Identifies a waiting call. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId {
    /// In order of arrival: breaks ties between calls of the same age.
    pub(super) number: u64,
    pub(super) place: usize,
}
