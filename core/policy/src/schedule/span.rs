//! The time since when a condition has held.

use std::time::Instant;

/// A condition that comes and goes. A condition that ends and starts again at the same moment has
/// not ended: a slot that is handed on at once was never free.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    began: Option<Instant>,
    ended: Option<Instant>,
}

impl Span {
    pub(super) fn set(&mut self, now: Instant, holds: bool) {
        if !holds {
            if self.ended.is_none() {
                self.ended = Some(now);
            }
            return;
        }
        if self.ended.take().is_some_and(|ended| ended < now) || self.began.is_none() {
            self.began = Some(now);
        }
    }

    /// Returns since when the condition has held, or `None` if it does not hold.
    pub(super) fn since(&self) -> Option<Instant> {
        self.began.filter(|_| self.ended.is_none())
    }
}
