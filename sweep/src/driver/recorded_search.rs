//! Passes each event of a sweep to the search, to the sums for the checks, and to the journal.
//! Resuming replays a journal through the same functions.

use crate::error::SweepError;
use crate::journal::{Journal, JournalEntry};
use crate::observation::{AttemptObservation, CallObservation, LoadSample};
use crate::search::{Search, SearchAction};
use crate::spend::SweepSpend;
use crate::validity_checks::StepTally;

pub(crate) struct SearchSession {
    pub(crate) search: Search,
    pub(crate) tally: StepTally,
    journal: Option<Journal>,
}

impl SearchSession {
    pub(crate) fn new(search: Search) -> Self {
        Self { search, tally: StepTally::default(), journal: None }
    }

    /// Sets the journal to which all later events are written.
    pub(crate) fn set_journal(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// Passes the entries of a journal to the search. Returns the last decision in the journal and
    /// its time in seconds since the sweep began, or `None` if the journal contains no decision.
    /// The caller must carry out that decision again, because its step was interrupted.
    ///
    /// # Errors
    ///
    /// Returns `SweepError::Resume` if the search decides differently than the journal.
    pub(crate) fn replay(
        &mut self,
        entries: &[JournalEntry],
    ) -> Result<Option<(f64, SearchAction)>, SweepError> {
        let mut last = None;
        for entry in entries {
            match entry {
                JournalEntry::Attempt(seen) => self.on_attempt(seen),
                JournalEntry::Call(seen) => self.on_call(seen),
                JournalEntry::LoadSample(sample) => self.on_load_sample(sample),
                JournalEntry::Next(now, then) => {
                    let next = self.next(*now);
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

    fn append(&mut self, entry: impl FnOnce() -> JournalEntry) {
        if let Some(journal) = &mut self.journal {
            journal.append(&entry());
        }
    }

    pub(crate) fn next(&mut self, now: f64) -> SearchAction {
        let next = self.search.next(now);
        self.tally.on_action(&next, now);
        self.append(|| JournalEntry::Next(now, next.clone()));
        next
    }

    /// Appends what the sweep has spent, writes all pending entries to the journal, and starts to
    /// sync it to disk. Called when a step has ended.
    pub(crate) fn sync(&mut self, spend: SweepSpend) {
        self.append(|| JournalEntry::Spend(spend));
        self.journal.iter_mut().for_each(Journal::sync);
    }

    /// Drops the journal entries of the interrupted step, and writes only what the sweep has spent.
    pub(crate) fn discard_step(&mut self, spend: SweepSpend) {
        self.journal.iter_mut().for_each(|journal| journal.discard_step(spend));
    }

    /// Blocks until the journal is synced to disk. Returns the first error of a write.
    pub(crate) fn finish(&mut self) -> Result<(), SweepError> {
        self.journal.take().map_or(Ok(()), Journal::finish)
    }

    pub(crate) fn on_attempt(&mut self, seen: &AttemptObservation) {
        self.search.on_attempt(seen);
        self.tally.on_attempt(seen);
        self.append(|| JournalEntry::Attempt(seen.clone()));
    }

    pub(crate) fn on_call(&mut self, seen: &CallObservation) {
        self.search.on_call(seen);
        self.tally.on_call(seen);
        self.append(|| JournalEntry::Call(seen.clone()));
    }

    pub(crate) fn on_load_sample(&mut self, sample: &LoadSample) {
        self.search.on_load_sample(sample);
        self.tally.on_load_sample(sample);
        self.append(|| JournalEntry::LoadSample(*sample));
    }
}
