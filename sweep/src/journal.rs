//! The journal: the observations of a sweep in order, from which a sweep can be resumed.
//!
//! A search is pure, so the same observations give the same decisions. The journal holds the
//! observations and each decision, and a replay must reproduce the decisions. Entries are written
//! and synced to disk when their step ends. A step that was cut off is repeated, and only its cost
//! is kept.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::background_writer::Writer;
use crate::endpoint::{Endpoint, OutputLimitKey};
use crate::error::SweepError;
use crate::mix::Mix;
use crate::observation::{AttemptObservation, CallObservation, LoadSample};
use crate::options::SweepOptions;
use crate::search::SearchAction;
use crate::spend::SweepSpend;

/// Version of the journal format.
const FORMAT: u32 = 1;
/// File name in the directory of a sweep.
pub(crate) const NAME: &str = "journal.jsonl";

/// The first line: what is swept. Contains no API key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JournalHeader {
    pub(crate) format: u32,
    pub(crate) version: String,
    pub(crate) options: SweepOptions,
    /// Digest of the files that the prompts came from.
    pub(crate) digest: u64,
    /// Maximum number of attempts per call.
    pub(crate) attempts: u32,
    pub(crate) began: Option<String>,
}

impl JournalHeader {
    pub(crate) fn new(options: SweepOptions, digest: u64, attempts: u32, began: Option<String>) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            options,
            digest,
            attempts,
            began,
        }
    }
}

/// One entry of the journal, on a line of its own after the header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JournalEntry {
    /// Result of the preflight call.
    Preflight(PreflightResult),
    /// Time and decision of the search.
    Next(f64, SearchAction),
    Attempt(AttemptObservation),
    Call(CallObservation),
    Pulse(LoadSample),
    /// Resources used so far.
    Spend(SweepSpend),
    /// The sweep was resumed here.
    Resumed,
}

/// What the preflight call showed about the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreflightResult {
    /// Number of tokens that the server counted for the first prompt.
    pub(crate) counted: Option<u64>,
    /// Whether the server needs `max_completion_tokens`.
    pub(crate) completion_tokens: bool,
    /// Duration of the call, in seconds.
    pub(crate) seconds: Option<f64>,
    /// Value of the `server` response header.
    pub(crate) server: Option<String>,
}

impl PreflightResult {
    /// Applies the result to a mix, as it was applied when the preflight call was made.
    pub(crate) fn apply(&self, mix: &mut Mix, endpoint: &Endpoint) {
        if self.completion_tokens {
            mix.use_maximum(OutputLimitKey::CompletionTokens);
        }
        if let Some(counted) = self.counted.filter(|_| !mix.is_given()) {
            let work = mix.work(endpoint, 0, 0);
            mix.calibrate(&work, counted);
        }
    }
}

/// Returns the error for a directory that already holds a sweep.
pub(crate) fn taken(directory: &Path) -> SweepError {
    let name = directory.display();
    SweepError::Resume(format!(
        "{name} already holds a sweep; pass --resume {name} to continue it, or another directory with --out"
    ))
}

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Writer,
    /// Lines of the current step.
    step: Vec<u8>,
}

impl Journal {
    /// Creates a journal in a directory, creating the directory if necessary.
    ///
    /// # Errors
    ///
    /// Returns `Resume` if the directory already holds a journal. Nothing is overwritten.
    pub(crate) fn begin(directory: &Path, head: &JournalHeader) -> Result<Self, SweepError> {
        std::fs::create_dir_all(directory).map_err(|error| SweepError::file(directory, error))?;
        let path = directory.join(NAME);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = match file {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(taken(directory));
            }
            file => file.map_err(|error| SweepError::file(&path, error))?,
        };
        let mut journal = Self { file: Writer::new(&path, file)?, step: Vec::new() };
        journal.line(head)?;
        journal.sync()?;
        Ok(journal)
    }

    /// Adds an entry to the current step.
    pub(crate) fn note(&mut self, entry: &JournalEntry) -> Result<(), SweepError> {
        self.line(entry)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), SweepError> {
        let failed = |error: serde_json::Error| SweepError::file(Path::new(NAME), error.into());
        serde_json::to_writer(&mut self.step, value).map_err(failed)?;
        self.step.push(b'\n');
        Ok(())
    }

    /// Ends the step, and writes and syncs its entries.
    pub(crate) fn sync(&mut self) -> Result<(), SweepError> {
        self.file.write(std::mem::take(&mut self.step))?;
        self.file.sync()
    }

    /// Waits until everything is on disk.
    pub(crate) fn finish(self) -> Result<(), SweepError> {
        self.file.finish()
    }

    /// Discards the entries of the current step, and writes only what was spent.
    pub(crate) fn break_off(&mut self, spend: SweepSpend) -> Result<(), SweepError> {
        self.step.clear();
        self.line(&JournalEntry::Spend(spend))?;
        self.sync()
    }
}

/// A journal that was read.
#[derive(Debug)]
pub(crate) struct SavedJournal {
    pub(crate) head: JournalHeader,
    /// Entries up to the last decision. Later entries belong to a step that was cut off.
    pub(crate) entries: Vec<JournalEntry>,
    pub(crate) spend: SweepSpend,
    /// How often the sweep was resumed before.
    pub(crate) resumed: u32,
}

/// Reads a journal and opens it for appending. An incomplete step at the end is removed from the
/// file.
pub(crate) fn resume(directory: &Path) -> Result<(SavedJournal, Journal), SweepError> {
    let path = directory.join(NAME);
    let cannot = |error| SweepError::file(&path, error);
    let wrong = |problem: &str| SweepError::Resume(format!("{}: {problem}", path.display()));
    let mut file = OpenOptions::new().read(true).append(true).open(&path).map_err(cannot)?;
    let (mut head, mut entries) = (None, Vec::new());
    let (mut spend, mut resumed) = (SweepSpend::default(), 0);
    // Length of the file in complete steps: bytes and entries.
    let (mut at, mut whole) = (0, (0, 0));
    let mut line = String::new();
    let mut reader = BufReader::new(&mut file);
    loop {
        line.clear();
        // A crash can leave an incomplete line or character.
        if reader.read_line(&mut line).unwrap_or(0) == 0 || !line.ends_with('\n') {
            break;
        }
        at += line.len() as u64;
        if head.is_none() {
            let found: JournalHeader = serde_json::from_str(&line)
                .map_err(|_| wrong("is not a sweep journal of this version of tidegate"))?;
            if found.format != FORMAT {
                return Err(wrong("was written by another version of tidegate"));
            }
            head = Some(found);
            whole.0 = at;
            continue;
        }
        let Ok(entry) = serde_json::from_str(&line) else { break };
        let ends =
            !matches!(entry, JournalEntry::Attempt(_) | JournalEntry::Call(_) | JournalEntry::Pulse(_));
        match entry {
            JournalEntry::Spend(told) => spend = told,
            JournalEntry::Resumed => resumed += 1,
            entry => entries.push(entry),
        }
        if ends {
            whole = (at, entries.len());
        }
    }
    let head = head.ok_or_else(|| wrong("is empty; start a new sweep"))?;
    entries.truncate(whole.1);
    file.set_len(whole.0).map_err(cannot)?;
    let journal = Journal { file: Writer::new(&path, file)?, step: Vec::new() };
    Ok((SavedJournal { head, entries, spend, resumed }, journal))
}
