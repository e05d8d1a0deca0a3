//! The tool slots that one task holds, for deadlock detection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The tool slots that one task holds, as a linked list with the most recently acquired slot first.
/// Clones are cheap.
///
/// Get the chain from [`ToolPermit::chain`](crate::ToolPermit::chain), and pass it on in
/// [`Context::holds`](crate::Context::holds). The gate uses it to detect deadlocks between tools.
#[derive(Clone, Debug)]
pub struct Chain(Arc<Link>);

/// One tool slot in the list, with the slots that the task acquired before it.
#[derive(Debug)]
struct Link {
    id: u64,
    tool: Arc<str>,
    outer: Option<Chain>,
}

impl Chain {
    /// Returns a chain with a new slot of `tool` in front of the slots in `outer`. `outer` is
    /// `None` if the task held no slot before.
    pub(crate) fn link(outer: Option<Chain>, tool: Arc<str>) -> Self {
        Self(Arc::new(Link { id: NEXT.fetch_add(1, Ordering::Relaxed), tool, outer }))
    }

    /// Returns a chain with the slots of this chain in front of the slots in `outer`. A slot that
    /// is in both is listed once. `outer` is `None` if the task holds no other slot.
    #[must_use]
    pub fn joined(&self, outer: Option<&Chain>) -> Self {
        let Some(outer) = outer else { return self.clone() };
        if outer.links().any(|link| link.id() == self.id()) {
            return outer.clone();
        }
        let outer = self.0.outer.as_ref().map_or_else(|| outer.clone(), |inner| inner.joined(Some(outer)));
        Self(Arc::new(Link { id: self.id(), tool: self.tool().clone(), outer: Some(outer) }))
    }

    /// Returns the number of the most recently acquired slot. The number is unique in this process.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the name of the tool of the most recently acquired slot.
    pub(crate) fn tool(&self) -> &Arc<str> {
        &self.0.tool
    }

    /// Returns the numbers of all slots, the most recently acquired first.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.links().map(|link| link.0.id).collect()
    }

    /// Returns the name of the tool of each slot, the most recently acquired slot first.
    pub(crate) fn names(&self) -> Vec<String> {
        self.links().map(|link| link.0.tool.to_string()).collect()
    }

    fn links(&self) -> impl Iterator<Item = &Chain> {
        std::iter::successors(Some(self), |link| link.0.outer.as_ref())
    }
}
