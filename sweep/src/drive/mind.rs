//! The search, and who else is told what it is told: the journal, and the tallies for the checks. A resumed sweep is told through here as well.

use crate::checks::Tally;
use crate::error::SweepError;
use crate::journal::{Entry, Journal};
use crate::search::{Move, Search};
use crate::seen::{AttemptSeen, CallSeen, Pulse};
use crate::spend::Spend;

pub(crate) struct Mind {
    pub(crate) search: Search,
    pub(crate) tally: Tally,
    journal: Option<Journal>,
}

impl Mind {
    pub(crate) fn new(search: Search) -> Self {
        Self { search, tally: Tally::default(), journal: None }
    }

    /// From now on what is told is written down.
    pub(crate) fn keep(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// Told again what was told before. Returns the last decision, which is to be carried out anew.
    ///
    /// # Errors
    /// `Resume`, where the search does not decide as it did then.
    pub(crate) fn replay(&mut self, entries: &[Entry]) -> Result<Option<(f64, Move)>, SweepError> {
        let mut last = None;
        for entry in entries {
            match entry {
                Entry::Attempt(seen) => self.attempt(seen)?,
                Entry::Call(seen) => self.call(seen)?,
                Entry::Pulse(pulse) => self.pulse(pulse)?,
                Entry::Next(now, then) => {
                    let next = self.next(*now)?;
                    if next != *then {
                        return Err(SweepError::Resume(
                            "the journal is of another version of tidegate, which searches otherwise: begin anew".to_owned(),
                        ));
                    }
                    last = Some((*now, next));
                }
                Entry::Preflight(_) | Entry::Spend(_) | Entry::Resumed => {}
            }
        }
        Ok(last)
    }

    pub(crate) fn note(&mut self, entry: impl FnOnce() -> Entry) -> Result<(), SweepError> {
        match &mut self.journal {
            Some(journal) => journal.note(&entry()),
            None => Ok(()),
        }
    }

    pub(crate) fn next(&mut self, now: f64) -> Result<Move, SweepError> {
        let next = self.search.next(now);
        self.tally.moved(&next, now);
        self.note(|| Entry::Next(now, next.clone()))?;
        Ok(next)
    }

    /// A step is over, and the next is decided.
    pub(crate) fn sync(&mut self, spend: Spend) -> Result<(), SweepError> {
        self.note(|| Entry::Spend(spend))?;
        self.journal.as_mut().map_or(Ok(()), Journal::sync)
    }

    /// A step broke off.
    pub(crate) fn break_off(&mut self, spend: Spend) -> Result<(), SweepError> {
        self.journal.as_mut().map_or(Ok(()), |journal| journal.break_off(spend))
    }

    /// All is over: waits until the journal is on disk.
    pub(crate) fn finish(&mut self) -> Result<(), SweepError> {
        self.journal.take().map_or(Ok(()), Journal::finish)
    }

    pub(crate) fn attempt(&mut self, seen: &AttemptSeen) -> Result<(), SweepError> {
        self.search.attempt(seen);
        self.tally.attempt(seen);
        self.note(|| Entry::Attempt(seen.clone()))
    }

    pub(crate) fn call(&mut self, seen: &CallSeen) -> Result<(), SweepError> {
        self.search.call(seen);
        self.tally.call(seen);
        self.note(|| Entry::Call(seen.clone()))
    }

    pub(crate) fn pulse(&mut self, pulse: &Pulse) -> Result<(), SweepError> {
        self.search.pulse(pulse);
        self.tally.pulse(pulse);
        self.note(|| Entry::Pulse(*pulse))
    }
}
