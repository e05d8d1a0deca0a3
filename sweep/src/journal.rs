//! What a sweep was told, in the order in which it was told: enough to go on from.
//!
//! A search is pure: told the same again, it thinks the same again. So the journal holds what went into it, and each decision that came out, which a replay must
//! find again. Events are written, and synced to disk, when their step has ended; a step that broke off is made anew, and only what it cost is remembered.

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

/// The shape of a journal.
const FORMAT: u32 = 1;
/// Its name in the directory of a sweep.
pub(crate) const NAME: &str = "journal.jsonl";

/// The first line: what is swept. Holds no key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JournalHeader {
    pub(crate) format: u32,
    pub(crate) version: String,
    pub(crate) options: SweepOptions,
    /// Of the files that prompts came from.
    pub(crate) digest: u64,
    /// Attempts that a call may have.
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

/// One line after the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JournalEntry {
    /// What the first call showed.
    Preflight(PreflightResult),
    /// The search was asked, and decided.
    Next(f64, SearchAction),
    Attempt(AttemptObservation),
    Call(CallObservation),
    Pulse(LoadSample),
    /// What was taken until then.
    Spend(SweepSpend),
    /// It was resumed here.
    Resumed,
}

/// What the first call showed of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreflightResult {
    /// Tokens that it counted for the prompt of the first place.
    pub(crate) counted: Option<u64>,
    /// Whether it wants `max_completion_tokens`.
    pub(crate) completion_tokens: bool,
    /// ExchangeEnd long the call took, in seconds.
    pub(crate) seconds: Option<f64>,
    /// Its `server` header.
    pub(crate) server: Option<String>,
}

impl PreflightResult {
    /// Makes a mix what it was made when this was shown.
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

/// Why a directory cannot take a new sweep.
pub(crate) fn taken(directory: &Path) -> SweepError {
    let name = directory.display();
    SweepError::Resume(format!(
        "{name} holds a sweep already: --resume {name} goes on with it; or give --out another directory"
    ))
}

/// A journal that is written.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Writer,
    /// Lines of the step under way.
    step: Vec<u8>,
}

impl Journal {
    /// Begins one in a directory, which is made.
    ///
    /// # Errors
    /// `Resume`, where there is one already: nothing is written over.
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

    /// Notes something of the step under way.
    pub(crate) fn note(&mut self, entry: &JournalEntry) -> Result<(), SweepError> {
        self.line(entry)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), SweepError> {
        let failed = |error: serde_json::Error| SweepError::file(Path::new(NAME), error.into());
        serde_json::to_writer(&mut self.step, value).map_err(failed)?;
        self.step.push(b'\n');
        Ok(())
    }

    /// The step is over: what was noted of it goes to disk.
    pub(crate) fn sync(&mut self) -> Result<(), SweepError> {
        self.file.write(std::mem::take(&mut self.step))?;
        self.file.sync()
    }

    /// Waits until all of it is on disk.
    pub(crate) fn finish(self) -> Result<(), SweepError> {
        self.file.finish()
    }

    /// The step broke off: what was noted of it is forgotten, but not what was spent.
    pub(crate) fn break_off(&mut self, spend: SweepSpend) -> Result<(), SweepError> {
        self.step.clear();
        self.line(&JournalEntry::Spend(spend))?;
        self.sync()
    }
}

/// A journal that is read.
#[derive(Debug)]
pub(crate) struct SavedJournal {
    pub(crate) head: JournalHeader,
    /// Up to the last decision: what came after it belongs to a step that broke off.
    pub(crate) entries: Vec<JournalEntry>,
    pub(crate) spend: SweepSpend,
    /// ExchangeEnd often it was resumed before.
    pub(crate) resumed: u32,
}

/// Reads one, and opens it to be gone on with: what a crash left of a step is cut off. Nothing is added yet.
pub(crate) fn resume(directory: &Path) -> Result<(SavedJournal, Journal), SweepError> {
    let path = directory.join(NAME);
    let cannot = |error| SweepError::file(&path, error);
    let wrong = |problem: &str| SweepError::Resume(format!("{}: {problem}", path.display()));
    let mut file = OpenOptions::new().read(true).append(true).open(&path).map_err(cannot)?;
    let (mut head, mut entries) = (None, Vec::new());
    let (mut spend, mut resumed) = (SweepSpend::default(), 0);
    // Up to here the file is whole steps: bytes, and entries.
    let (mut at, mut whole) = (0, (0, 0));
    let mut line = String::new();
    let mut reader = BufReader::new(&mut file);
    loop {
        line.clear();
        // Half a line, or half a character of one, is what a crash leaves.
        if reader.read_line(&mut line).unwrap_or(0) == 0 || !line.ends_with('\n') {
            break;
        }
        at += line.len() as u64;
        if head.is_none() {
            let found: JournalHeader =
                serde_json::from_str(&line).map_err(|_| wrong("is no journal of a sweep of this version"))?;
            if found.format != FORMAT {
                return Err(wrong("is a journal of another version of tidegate"));
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
    let head = head.ok_or_else(|| wrong("is empty: begin anew"))?;
    entries.truncate(whole.1);
    file.set_len(whole.0).map_err(cannot)?;
    let journal = Journal { file: Writer::new(&path, file)?, step: Vec::new() };
    Ok((SavedJournal { head, entries, spend, resumed }, journal))
}
