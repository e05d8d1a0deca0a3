//! The journal of a sweep: its decisions and observations in order, from which it can be resumed.
//!
//! The search is pure, so the same observations lead to the same decisions. Resuming replays the
//! observations and requires that the search repeats its decisions. The entries of a step are
//! written and synced to disk when the step ends. A step that is interrupted before its end is
//! repeated, and only what it has spent remains in the journal. What a step has spent is also
//! written while it runs, so that a process that is killed does not lose it. An open journal is
//! locked, so that only one process writes to it. The operating system releases the lock when the
//! process ends.

use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::Path;

use fs4::fs_std::FileExt;
use serde::{Deserialize, Serialize};
use tidegate::config::TargetConfig;

use crate::background_writer::Writer;
use crate::endpoint::{Endpoint, OutputLimitKey};
use crate::error::SweepError;
use crate::mix::Mix;
use crate::observation::{AttemptObservation, CallObservation, LoadSample};
use crate::options::SweepOptions;
use crate::search::SearchAction;
use crate::spend::SweepSpend;

/// Version of the journal format. A journal of another version cannot be resumed.
const FORMAT: u32 = 1;
/// File name of the journal in the directory of a sweep.
pub(crate) const JOURNAL_FILE: &str = "journal.jsonl";

/// First line of the journal: the options of the sweep. Contains neither the API key nor the query
/// of the URL, in which some servers expect a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JournalHeader {
    pub(crate) format: u32,
    pub(crate) version: String,
    /// Options of the sweep, with a URL without its query. In journals of older versions, the URL
    /// has its query.
    pub(crate) options: SweepOptions,
    /// Hash of the query of the URL. `None` if the URL has no query, and in journals of older
    /// versions.
    #[serde(default)]
    pub(crate) query: Option<u64>,
    /// Hash of the content of the file that the mix is read from, or a constant if the mix uses no
    /// file.
    pub(crate) digest: u64,
    /// Maximum number of attempts per call, including the first.
    pub(crate) attempts: u32,
    /// Hash of the target's settings that apply to the calls, including the name of its key
    /// variable. `None` in journals of older versions, which are resumed with any target.
    #[serde(default)]
    pub(crate) target: Option<u64>,
    pub(crate) began: Option<String>,
}

impl JournalHeader {
    /// Returns the header of a new journal. `digest` is the hash of the mix, and `target` the
    /// target with the settings that apply to the calls.
    pub(crate) fn new(
        options: SweepOptions,
        digest: u64,
        target: &TargetConfig,
        began: Option<String>,
    ) -> Self {
        let (options, query) = split_query(options);
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            options,
            query,
            digest,
            attempts: target.retry.attempts,
            target: Some(target_digest(target)),
            began,
        }
    }

    /// Checks that the sweep began with `options`, except for the ceilings. `directory` is that of
    /// the journal.
    ///
    /// # Errors
    ///
    /// Returns `SweepError::Resume`, which names the option, if another option has changed, or if
    /// the query of the URL is missing.
    pub(crate) fn check_options(&self, directory: &Path, options: &SweepOptions) -> Result<(), SweepError> {
        let (before, saved_query) = split_query(self.options.clone());
        let query_before = self.query.or(saved_query);
        let (after, query) = split_query(options.clone());
        let after = SweepOptions { ceilings: before.ceilings, ..after };
        let problem = if let Some(key) = first_changed_setting(&before, &after) {
            format!("{key} has changed; a sweep can only be resumed with the same settings, except ceilings")
        } else if query == query_before {
            return Ok(());
        } else if query.is_none() {
            "the URL of this sweep has a query, which is not stored, because it can contain a key; pass the same --url again".to_owned()
        } else {
            "the query of --url is not the one that the sweep began with; pass the same --url again"
                .to_owned()
        };
        Err(SweepError::Resume(format!("{}: {problem}", directory.display())))
    }

    /// Checks that the sweep began with `target`, the target with the settings that apply to the
    /// calls.
    ///
    /// # Errors
    ///
    /// Returns `SweepError::Resume` if it began with other settings.
    pub(crate) fn check_target(&self, target: &TargetConfig) -> Result<(), SweepError> {
        // Other versions have other settings, so the hashes differ.
        let is_same_version = self.version == env!("CARGO_PKG_VERSION");
        match self.target {
            Some(digest) if is_same_version && digest != target_digest(target) => Err(SweepError::Resume(
                "the sweep began with other retries, rates, timeouts or key variable; pass the same --config and --target as then, with the same settings, or neither if it began without them".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

/// Returns a hash of the settings of a target. They contain the name of its key variable, but no
/// key.
fn target_digest(target: &TargetConfig) -> u64 {
    text_digest(&format!("{target:?}"))
}

fn text_digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Removes the query from the URL of `options`. Returns the changed options and a hash of the
/// query, or `None` instead of the hash if the URL has no query.
fn split_query(mut options: SweepOptions) -> (SweepOptions, Option<u64>) {
    let query = options.url.find('?').map(|at| options.url.split_off(at));
    (options, query.map(|query| text_digest(&query)))
}

/// Returns the JSON key of the first option whose value differs between `before` and `after`, or
/// `None` if all are equal.
fn first_changed_setting(before: &SweepOptions, after: &SweepOptions) -> Option<String> {
    let (Ok(before), Ok(after)) = (serde_json::to_value(before), serde_json::to_value(after)) else {
        return None;
    };
    let (before, after) = (before.as_object()?, after.as_object()?);
    after.iter().find(|(key, value)| before.get(*key) != Some(*value)).map(|(key, _)| key.clone())
}

/// A line of the journal after the header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JournalEntry {
    /// Result of the preflight call.
    Preflight(PreflightResult),
    /// Decision of the search, with its time in seconds since the sweep began.
    Next(f64, SearchAction),
    Attempt(AttemptObservation),
    Call(CallObservation),
    #[serde(rename = "pulse")]
    LoadSample(LoadSample),
    /// Calls, tokens, cost and time that the sweep has used up to this point, with the most that
    /// open exchanges can use. Replaces earlier entries of this kind.
    Spend(SweepSpend),
    /// Marks that the sweep was resumed at this point.
    Resumed,
}

/// What the preflight call showed about the server. If the server was too busy to answer, all
/// fields but `completion_tokens` are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreflightResult {
    /// Prompt tokens that the server counted for the preflight call, or `None` without a count.
    pub(crate) counted: Option<u64>,
    /// Whether the server accepts only `max_completion_tokens` as the output limit.
    pub(crate) completion_tokens: bool,
    /// Duration of the call in seconds, or `None` if it was not answered.
    pub(crate) seconds: Option<f64>,
    /// Value of the `server` response header, or `None` without the header.
    pub(crate) server: Option<String>,
}

impl PreflightResult {
    /// Sets the output limit key and the prompt length scale of `mix`, as the preflight call did.
    pub(crate) fn apply(&self, mix: &mut Mix, endpoint: &Endpoint) {
        if self.completion_tokens {
            mix.set_output_limit_key(OutputLimitKey::CompletionTokens);
        }
        if let Some(counted) = self.counted.filter(|_| !mix.has_user_prompts()) {
            let work = mix.preflight_work(endpoint);
            mix.calibrate(&work, counted);
        }
    }
}

/// Returns the error for a directory that already contains a journal.
pub(crate) fn already_in_use(directory: &Path) -> SweepError {
    let name = directory.display();
    SweepError::Resume(format!(
        "{name} already holds a sweep; pass --resume {name} to continue it, or another directory with --out"
    ))
}

/// Locks an open journal until the file is closed. Returns `SweepError::Resume` if another process
/// has locked it.
fn lock(path: &Path, file: &File) -> Result<(), SweepError> {
    if file.try_lock_exclusive().map_err(|error| SweepError::file(path, error))? {
        return Ok(());
    }
    Err(SweepError::Resume(format!(
        "{}: another sweep is writing to this journal; wait until it has ended, or stop it, and resume then",
        path.display()
    )))
}

/// A journal that is open for writing, and locked.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Writer,
    /// Entries that [`Journal::sync`] has not written yet, as JSON lines.
    pending: Vec<u8>,
}

impl Journal {
    /// Creates the journal in `directory`, and the directory if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns `SweepError::Resume` if the directory already contains a journal, which stays
    /// unchanged. Returns `SweepError::File` if a file or directory cannot be created.
    pub(crate) fn create(directory: &Path, header: &JournalHeader) -> Result<Self, SweepError> {
        std::fs::create_dir_all(directory).map_err(|error| SweepError::file(directory, error))?;
        let path = directory.join(JOURNAL_FILE);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = match file {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(already_in_use(directory));
            }
            file => file.map_err(|error| SweepError::file(&path, error))?,
        };
        lock(&path, &file)?;
        let mut journal = Self { file: Writer::new(&path, file)?, pending: Vec::new() };
        journal.file.add_line(&mut journal.pending, header);
        journal.sync();
        Ok(journal)
    }

    /// Adds an entry to the current step. Nothing is written before [`Journal::sync`].
    pub(crate) fn append(&mut self, entry: &JournalEntry) {
        self.file.add_line(&mut self.pending, entry);
    }

    /// Hands the pending entries to the writer thread, which writes and syncs them. Does not block.
    pub(crate) fn sync(&mut self) {
        self.file.write(std::mem::take(&mut self.pending));
        self.file.sync();
    }

    /// Hands an entry with what the sweep has spent to the writer thread, before the pending
    /// entries. Neither blocks nor syncs the entry to disk: the file keeps it if the process is
    /// killed, but not if the machine loses power.
    pub(crate) fn write_spend(&self, spend: SweepSpend) {
        let mut line = Vec::new();
        self.file.add_line(&mut line, &JournalEntry::Spend(spend));
        self.file.write(line);
    }

    /// Blocks until all entries are synced to disk. Returns the first error of a write.
    pub(crate) fn finish(self) -> Result<(), SweepError> {
        self.file.finish()
    }

    /// Drops the pending entries, and writes only what the sweep has spent.
    pub(crate) fn discard_step(&mut self, spend: SweepSpend) {
        self.pending.clear();
        self.append(&JournalEntry::Spend(spend));
        self.sync();
    }
}

/// The content of a journal that was read.
#[derive(Debug)]
pub(crate) struct SavedJournal {
    pub(crate) header: JournalHeader,
    /// Entries of complete steps, except those about spending and resumption. The entries of an
    /// interrupted step are not included.
    pub(crate) entries: Vec<JournalEntry>,
    pub(crate) spend: SweepSpend,
    /// Number of times that the sweep was resumed before.
    pub(crate) resumed: u32,
}

/// Locks and reads the journal in `directory`, and opens it for appending. Returns its content and
/// the opened journal. Removes the entries of an interrupted step from the file.
pub(crate) fn resume(directory: &Path) -> Result<(SavedJournal, Journal), SweepError> {
    let path = directory.join(JOURNAL_FILE);
    let io_error = |error| SweepError::file(&path, error);
    let invalid = |problem: &str| SweepError::Resume(format!("{}: {problem}", path.display()));
    let mut file = OpenOptions::new().read(true).append(true).open(&path).map_err(io_error)?;
    lock(&path, &file)?;
    let (mut header, mut entries) = (None, Vec::new());
    let (mut spend, mut resumed) = (SweepSpend::default(), 0);
    // Length of the file in complete steps: bytes and entries.
    let (mut offset, mut complete) = (0, (0, 0));
    let mut line = String::new();
    let mut reader = BufReader::new(&mut file);
    loop {
        line.clear();
        // A crash can leave an incomplete line or character.
        if reader.read_line(&mut line).unwrap_or(0) == 0 || !line.ends_with('\n') {
            break;
        }
        offset += line.len() as u64;
        if header.is_none() {
            let found: JournalHeader = serde_json::from_str(&line)
                .map_err(|_| invalid("is not a sweep journal of this version of tidegate"))?;
            if found.format != FORMAT {
                return Err(invalid("was written by another version of tidegate"));
            }
            header = Some(found);
            complete.0 = offset;
            continue;
        }
        let Ok(entry) = serde_json::from_str(&line) else { break };
        let ends_step =
            !matches!(entry, JournalEntry::Attempt(_) | JournalEntry::Call(_) | JournalEntry::LoadSample(_));
        match entry {
            JournalEntry::Spend(saved) => spend = saved,
            JournalEntry::Resumed => resumed += 1,
            entry => entries.push(entry),
        }
        if ends_step {
            complete = (offset, entries.len());
        }
    }
    let header = header.ok_or_else(|| invalid("is empty; start a new sweep"))?;
    entries.truncate(complete.1);
    file.set_len(complete.0).map_err(io_error)?;
    let journal = Journal { file: Writer::new(&path, file)?, pending: Vec::new() };
    Ok((SavedJournal { header, entries, spend, resumed }, journal))
}
