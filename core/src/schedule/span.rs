//! Since when something has been so.

use std::time::Instant;

/// A state that comes and goes. Where it ends and begins again at the same moment it has not ended: a slot that is given on at once was never free.
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

    /// Since when it has held; `None`: it does not.
    pub(super) fn since(&self) -> Option<Instant> {
        self.began.filter(|_| self.ended.is_none())
    }
}
