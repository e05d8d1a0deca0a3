//! Passes each event of a sweep to the search, to the sums for the checks, and to the journal.
//! Resuming replays a journal through the same functions.

use std::sync::Arc;

use super::event_hub::EventHub;
use crate::error::SweepError;
use crate::journal::{Journal, JournalEntry};
use crate::observation::{AttemptObservation, CallObservation, LoadSample};
use crate::search::{Search, SearchAction};
use crate::spend::SweepSpend;
use crate::validity_checks::StepTally;

/// Minimum time in seconds between two entries about spending within a step.
const SPEND_INTERVAL_S: f64 = 1.0;

/// The search with its sums and its journal. Dropping it writes what the sweep has spent to the
/// journal, unless [`SearchSession::finish`] was called, and blocks until that is written.
pub(crate) struct SearchSession {
    pub(crate) search: Search,
    pub(crate) tally: StepTally,
    journal: Option<OpenJournal>,
}

/// The journal of a session, with the source of what the sweep has spent.
struct OpenJournal {
    journal: Journal,
    hub: Arc<EventHub>,
    /// Time of the last entry about spending, in seconds since the sweep began.
    spend_written_at: f64,
}

impl SearchSession {
    pub(crate) fn new(search: Search) -> Self {
        Self { search, tally: StepTally::default(), journal: None }
    }

    /// Sets the journal to which all later events are written. What the sweep has spent is read
    /// from `hub`.
    pub(crate) fn set_journal(&mut self, journal: Journal, hub: Arc<EventHub>) {
        let spend_written_at = hub.clock.now();
        self.journal = Some(OpenJournal { journal, hub, spend_written_at });
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
        if let Some(open) = &mut self.journal {
            open.journal.append(&entry());
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
    pub(crate) fn sync(&mut self) {
        if let Some(open) = &mut self.journal {
            let spend = open.next_spend();
            open.journal.append(&JournalEntry::Spend(spend));
            open.journal.sync();
        }
    }

    /// Writes what the sweep has spent to the journal, in the middle of a step. The entries of the
    /// step stay pending.
    pub(crate) fn write_spend(&mut self) {
        if let Some(open) = &mut self.journal {
            let spend = open.next_spend();
            open.journal.write_spend(spend);
        }
    }

    /// Calls [`SearchSession::write_spend`] if the last entry about spending is at least
    /// [`SPEND_INTERVAL_S`] old.
    pub(crate) fn write_due_spend(&mut self) {
        let due = |open: &OpenJournal| open.hub.clock.now() - open.spend_written_at >= SPEND_INTERVAL_S;
        if self.journal.as_ref().is_some_and(due) {
            self.write_spend();
        }
    }

    /// Drops the journal entries of a step that did not end, and writes only what the sweep has
    /// spent. Called when the sweep has ended.
    pub(crate) fn discard_step(&mut self) {
        if let Some(open) = &mut self.journal {
            let spend = open.next_spend();
            open.journal.discard_step(spend);
        }
    }

    /// Blocks until the journal is synced to disk. Returns the first error of a write.
    pub(crate) fn finish(&mut self) -> Result<(), SweepError> {
        self.journal.take().map_or(Ok(()), |open| open.journal.finish())
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

impl Drop for SearchSession {
    fn drop(&mut self) {
        // Without a call of `finish`, the sweep was dropped or has failed.
        self.write_spend();
    }
}

impl OpenJournal {
    /// Returns the next entry about spending: the most that the sweep can have spent up to now.
    fn next_spend(&mut self) -> SweepSpend {
        self.spend_written_at = self.hub.clock.now();
        SweepSpend { seconds: self.spend_written_at, ..self.hub.tracker.max_spent() }
    }
}
