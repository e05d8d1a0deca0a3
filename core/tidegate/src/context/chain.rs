//! The tool slots that one task holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The tool slots that a task holds, the most recent first. Clones are cheap.
///
/// Each link names one slot, and links to the slots that the task acquired before it.
#[derive(Clone, Debug)]
pub struct Chain(Arc<Link>);

#[derive(Debug)]
struct Link {
    id: u64,
    tool: Arc<str>,
    outer: Option<Chain>,
}

impl Chain {
    /// Adds a slot of `tool` to the slots that the task already holds.
    pub(crate) fn link(outer: Option<Chain>, tool: Arc<str>) -> Self {
        Self(Arc::new(Link { id: NEXT.fetch_add(1, Ordering::Relaxed), tool, outer }))
    }

    /// Returns the number of the most recent slot, which is unique in this process.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the name of the tool of the most recent slot.
    pub(crate) fn tool(&self) -> &Arc<str> {
        &self.0.tool
    }

    /// Returns the numbers of all slots, the most recent first.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.links().map(|link| link.0.id).collect()
    }

    /// Returns the names of the tools of all slots, the most recent first.
    pub(crate) fn names(&self) -> Vec<String> {
        self.links().map(|link| link.0.tool.to_string()).collect()
    }

    fn links(&self) -> impl Iterator<Item = &Chain> {
        std::iter::successors(Some(self), |link| link.0.outer.as_ref())
    }
}
