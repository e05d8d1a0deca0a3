//! The search together with its observers: the journal and the sums for the checks. A resumed sweep
//! is replayed through the same path.

use crate::checks::StepTally;
use crate::error::SweepError;
use crate::journal::{Journal, JournalEntry};
use crate::observation::{AttemptObservation, CallObservation, LoadSample};
use crate::search::{Search, SearchAction};
use crate::spend::SweepSpend;

pub(crate) struct SearchSession {
    pub(crate) search: Search,
    pub(crate) tally: StepTally,
    journal: Option<Journal>,
}

impl SearchSession {
    pub(crate) fn new(search: Search) -> Self {
        Self { search, tally: StepTally::default(), journal: None }
    }

    /// Writes everything to `journal` from now on.
    pub(crate) fn keep(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// Replays the entries of a journal. Returns the last decision, which has to be carried out
    /// again.
    ///
    /// # Errors
    ///
    /// Returns `Resume` if the search now decides differently.
    pub(crate) fn replay(
        &mut self,
        entries: &[JournalEntry],
    ) -> Result<Option<(f64, SearchAction)>, SweepError> {
        let mut last = None;
        for entry in entries {
            match entry {
                JournalEntry::Attempt(seen) => self.attempt(seen)?,
                JournalEntry::Call(seen) => self.call(seen)?,
                JournalEntry::Pulse(pulse) => self.pulse(pulse)?,
                JournalEntry::Next(now, then) => {
                    let next = self.next(*now)?;
                    if next != *then {
                        return Err(SweepError::Resume(
                            "the journal was written by another version of tidegate, which searches differently; start a new sweep".to_owned(),
                        ));
                    }
                    last = Some((*now, next));
                }
                JournalEntry::Preflight(_) | JournalEntry::Spend(_) | JournalEntry::Resumed => {}
            }
        }
        Ok(last)
    }

    pub(crate) fn note(&mut self, entry: impl FnOnce() -> JournalEntry) -> Result<(), SweepError> {
        match &mut self.journal {
            Some(journal) => journal.note(&entry()),
            None => Ok(()),
        }
    }

    pub(crate) fn next(&mut self, now: f64) -> Result<SearchAction, SweepError> {
        let next = self.search.next(now);
        self.tally.moved(&next, now);
        self.note(|| JournalEntry::Next(now, next.clone()))?;
        Ok(next)
    }

    /// Writes the entries of the step that has ended.
    pub(crate) fn sync(&mut self, spend: SweepSpend) -> Result<(), SweepError> {
        self.note(|| JournalEntry::Spend(spend))?;
        self.journal.as_mut().map_or(Ok(()), Journal::sync)
    }

    /// Discards the entries of the step that was cut off.
    pub(crate) fn break_off(&mut self, spend: SweepSpend) -> Result<(), SweepError> {
        self.journal.as_mut().map_or(Ok(()), |journal| journal.break_off(spend))
    }

    /// Waits until the journal is on disk.
    pub(crate) fn finish(&mut self) -> Result<(), SweepError> {
        self.journal.take().map_or(Ok(()), Journal::finish)
    }

    pub(crate) fn attempt(&mut self, seen: &AttemptObservation) -> Result<(), SweepError> {
        self.search.attempt(seen);
        self.tally.attempt(seen);
        self.note(|| JournalEntry::Attempt(seen.clone()))
    }

    pub(crate) fn call(&mut self, seen: &CallObservation) -> Result<(), SweepError> {
        self.search.call(seen);
        self.tally.call(seen);
        self.note(|| JournalEntry::Call(seen.clone()))
    }

    pub(crate) fn pulse(&mut self, pulse: &LoadSample) -> Result<(), SweepError> {
        self.search.pulse(pulse);
        self.tally.pulse(pulse);
        self.note(|| JournalEntry::Pulse(*pulse))
    }
}
