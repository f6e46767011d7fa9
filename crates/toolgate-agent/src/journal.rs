//! The journal of a run, one line of JSON per entry: messages, replies, intents and results.
//!
//! A run can be resumed from its journal after any kind of exit. Invariant: before a call that is not repeatable, its
//! intent is synced to disk; a call with an intent and no result may have taken effect, and is not repeated. Lines are
//! redacted before they are written, so a resumed run does not have the secrets either. Only one process at a time
//! writes a journal.

use std::fs::TryLockError;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fs_err::File;
use serde::{Deserialize, Serialize};
use toolgate_audit::redact::Redactor;
use toolgate_state::{FileAccess, StateDir, open_private};

pub use crate::journal::reader::JournalReader;

use crate::event::{EndReason, RunUsage};
use crate::model::{Part, StopReason, TokenUsage, ToolCall, ToolOutput};

mod reader;

/// Folder of the journals, within the project.
const FOLDER: &str = ".toolgate/runs";
/// Bytes of a journal that is read.
const MAX_BYTES: u64 = 256 << 20;
/// Retention of a journal after its last entry.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JournalEntry {
    /// The run started.
    #[serde(rename = "begun")]
    Started {
        run: String,
        /// Timestamp, UTC.
        at: String,
        /// Caller that the run acts as.
        caller: String,
        model: String,
    },
    /// Message of the user.
    #[serde(rename = "asked")]
    UserMessage { parts: Vec<Part> },
    /// Reply of the model.
    #[serde(rename = "said")]
    Reply {
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        stop: StopReason,
        usage: TokenUsage,
        /// Cost of the turn, if prices are configured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
        #[serde(default)]
        took_ms: f64,
    },
    /// A call is about to be made.
    Intent {
        id: String,
        /// True if the call may be made again.
        repeatable: bool,
        /// True if the call counts against the budget of writes.
        writes: bool,
    },
    /// A call ended.
    Result {
        /// Output passed to the model.
        output: ToolOutput,
        took_ms: f64,
        /// True if the run has read untrusted content.
        #[serde(default)]
        tainted: bool,
        /// Correlation id in the execution log; `None` if no call was made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        correlation_id: Option<String>,
    },
    /// A program made calls, each with a record in the execution log.
    ProgramCalls {
        calls: u32,
        /// Those that count against the budget of writes.
        writes: u32,
    },
    /// Tools found by `search_tools`, offered from now on.
    #[serde(rename = "found")]
    ToolsFound { tools: Vec<String> },
    /// The loop starts, with this number of tools offered to the model.
    #[serde(rename = "shown")]
    ToolsOffered { tools: usize },
    /// The user changed the model of the next turns.
    ModelChanged { model: String },
    /// The user removed the last message, and everything after it, from the conversation.
    Undone {},
    /// Another process resumed the run.
    Resumed {
        /// Timestamp, UTC.
        at: String,
    },
    /// The run ended.
    Ended {
        /// Timestamp, UTC.
        at: String,
        reason: EndReason,
        /// Usage since the last message of the user.
        spent: RunUsage,
        /// Error message, if something failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Suggested fix, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        #[serde(default)]
        took_ms: f64,
    },
}

/// Error of reading or resuming a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No run has this id.
    #[error("no such run: `{0}`")]
    NotFound(String),
    /// The prefix matches several runs.
    #[error("run id `{0}` is ambiguous: several runs start with it")]
    Ambiguous(String),
    /// Another process holds the lock of the journal.
    #[error("run `{0}` is active in another process")]
    Busy(String),
    /// The run belongs to another caller.
    #[error("run `{run}` belongs to caller `{caller}`")]
    OtherCaller { run: String, caller: String },
    /// The run has ended with an answer, so there is nothing to resume.
    #[error("run `{0}` has already ended")]
    AlreadyEnded(String),
    /// A line cannot be parsed, or the journal is too large.
    #[error("cannot read line {line} of run `{run}`: {why}")]
    Unreadable { run: String, line: usize, why: String },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Journals of all runs of a project.
#[derive(Debug, Clone)]
pub struct RunStore {
    folder: PathBuf,
    redactor: Arc<Redactor>,
}

/// A run in listings.
#[derive(Debug, Clone, Serialize)]
pub struct RunSummary {
    pub run: String,
    /// Start, UTC.
    pub began: String,
    /// Caller that the run acts as.
    pub caller: String,
    pub model: String,
    /// First message of the user.
    pub task: String,
    /// The reason of the end (`done`, …); `running`; or `interrupted` if the journal has no end.
    pub state: &'static str,
    /// Usage, as far as the journal has it.
    #[serde(flatten)]
    pub spent: RunUsage,
}

impl RunStore {
    /// Opens the journals of a project. Nothing is read yet.
    pub fn new(project: &Path, redactor: Redactor) -> Self {
        Self { folder: project.join(FOLDER), redactor: Arc::new(redactor) }
    }

    pub(crate) fn shared_redactor(&self) -> Arc<Redactor> {
        Arc::clone(&self.redactor)
    }

    /// Creates the journal of a new run, and removes expired ones.
    pub(crate) fn create(&self, id: &str, copy: Option<&Path>) -> io::Result<Journal> {
        let folder = StateDir::create(&self.folder)?;
        self.remove_expired();
        let file = folder.open_file(&format!("{id}.jsonl"), FileAccess::AppendNew)?;
        file.file().lock()?;
        // The new directory entry must be on disk, too.
        folder.sync()?;
        let copy = copy.map(File::create).transpose()?;
        Ok(Journal { file: Some(file), copy, redactor: Arc::clone(&self.redactor) })
    }

    /// Opens a journal to append to it, and reads it. An incomplete last line is removed.
    pub(crate) fn open(&self, id: &str) -> Result<(Journal, Vec<JournalEntry>), RunError> {
        let path = self.path(id)?;
        let mut file = open_private(&path, FileAccess::Write)?;
        match file.file().try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RunError::Busy(id.to_owned())),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let (entries, whole) = read(&path)?;
        file.set_len(whole)?;
        file.seek(SeekFrom::End(0))?;
        let journal = Journal { file: Some(file), copy: None, redactor: Arc::clone(&self.redactor) };
        Ok((journal, entries))
    }

    /// Reads the entries of a journal.
    ///
    /// # Errors
    /// If the run does not exist or the journal cannot be read.
    pub fn read(&self, id: &str) -> Result<Vec<JournalEntry>, RunError> {
        Ok(read(&self.path(id)?)?.0)
    }

    /// Returns the summary and the entries of a run.
    ///
    /// # Errors
    /// If the run does not exist or the journal cannot be read.
    pub fn show(&self, id: &str) -> Result<(RunSummary, Vec<JournalEntry>), RunError> {
        let path = self.path(id)?;
        let busy = is_locked(&path);
        let (entries, _) = read(&path)?;
        let summary = summary(&entries, busy).ok_or_else(|| RunError::NotFound(id.to_owned()))?;
        Ok((summary, entries))
    }

    /// Follows the events of a run, past and future.
    ///
    /// # Errors
    /// If the run does not exist.
    pub fn follow(&self, id: &str) -> Result<JournalReader, RunError> {
        JournalReader::open(self.path(id)?, id)
    }

    /// Lists all runs, newest first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> io::Result<Vec<RunSummary>> {
        let mut all: Vec<RunSummary> = self
            .ids()?
            .into_iter()
            .filter_map(|id| {
                let path = self.folder.join(format!("{id}.jsonl"));
                let (entries, _) = read(&path).ok()?;
                summary(&entries, is_locked(&path))
            })
            .collect();
        all.sort_by(|one, other| other.run.cmp(&one.run));
        Ok(all)
    }

    /// Completes a prefix of a run id.
    ///
    /// # Errors
    /// If no run matches, or more than one.
    pub fn resolve(&self, beginning: &str) -> Result<String, RunError> {
        let mut fitting = self.ids()?.into_iter().filter(|id| id.starts_with(beginning));
        match (fitting.next(), fitting.next()) {
            (Some(id), None) => Ok(id),
            (None, _) => Err(RunError::NotFound(beginning.to_owned())),
            (Some(_), Some(_)) => Err(RunError::Ambiguous(beginning.to_owned())),
        }
    }

    fn ids(&self) -> io::Result<Vec<String>> {
        let entries = match fs_err::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let name = |entry: fs_err::DirEntry| entry.file_name().to_str().map(str::to_owned);
        Ok(entries
            .flatten()
            .filter_map(name)
            .filter_map(|name| Some(name.strip_suffix(".jsonl")?.to_owned()))
            .collect())
    }

    fn path(&self, id: &str) -> Result<PathBuf, RunError> {
        let good = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let path = self.folder.join(format!("{id}.jsonl"));
        if good && StateDir::open(&self.folder).is_ok() && is_regular(&path) {
            Ok(path)
        } else {
            Err(RunError::NotFound(id.to_owned()))
        }
    }

    /// Removes expired journals. A journal that cannot be removed does no harm.
    fn remove_expired(&self) {
        let now = SystemTime::now();
        for id in self.ids().unwrap_or_default() {
            let path = self.folder.join(format!("{id}.jsonl"));
            let age = fs_err::symlink_metadata(&path).and_then(|meta| meta.modified());
            if age.is_ok_and(|at| now.duration_since(at).unwrap_or_default() > RETENTION) {
                let _ = fs_err::remove_file(&path);
            }
        }
    }
}

/// Returns true if a process holds the lock of a journal.
fn is_locked(path: &Path) -> bool {
    let file = open_private(path, FileAccess::Read);
    file.is_ok_and(|file| matches!(file.file().try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Returns true for a file, and not for a link.
fn is_regular(path: &Path) -> bool {
    fs_err::symlink_metadata(path).is_ok_and(|file| file.is_file())
}

/// Reads the complete lines of a journal; also returns their length in bytes.
fn read(path: &Path) -> Result<(Vec<JournalEntry>, u64), RunError> {
    let run = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut file = open_private(path, FileAccess::Read)?;
    if file.metadata()?.len() > MAX_BYTES {
        let why = format!("the journal exceeds {MAX_BYTES} bytes");
        return Err(RunError::Unreadable { run: run(), line: 0, why });
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let entries = lines.enumerate().map(|(at, line)| {
        serde_json::from_slice(line).map_err(|error| RunError::Unreadable {
            run: run(),
            line: at + 1,
            why: error.to_string(),
        })
    });
    Ok((entries.collect::<Result<_, _>>()?, whole as u64))
}

fn summary(entries: &[JournalEntry], busy: bool) -> Option<RunSummary> {
    let Some(JournalEntry::Started { run, at, caller, model }) = entries.first() else { return None };
    let task = entries.iter().find_map(|entry| match entry {
        JournalEntry::UserMessage { parts } => Some(parts_text(parts)),
        _ => None,
    });
    let mut spent = RunUsage::default();
    let mut state = "interrupted";
    for entry in entries {
        match entry {
            JournalEntry::Reply { usage, .. } => {
                spent.turns += 1;
                spent.usage = spent.usage.plus(*usage);
            }
            JournalEntry::Intent { writes, .. } => {
                spent.calls += 1;
                spent.writes += u32::from(*writes);
            }
            JournalEntry::ProgramCalls { calls, writes } => {
                spent.calls += calls;
                spent.writes += writes;
            }
            JournalEntry::Ended { reason, spent: since_message, .. } => {
                state = reason.label();
                if let Some(cost) = since_message.cost {
                    spent.cost = Some(spent.cost.unwrap_or(0.0) + cost);
                }
            }
            JournalEntry::UserMessage { .. } | JournalEntry::Resumed { .. } => state = "interrupted",
            _ => {}
        }
    }
    if busy {
        state = "running";
    }
    let (run, began, caller, model) = (run.clone(), at.clone(), caller.clone(), model.clone());
    Some(RunSummary { run, began, caller, model, task: task.unwrap_or_default(), state, spent })
}

/// Returns the text of content; images and audio as their media type.
pub fn parts_text(parts: &[Part]) -> String {
    let text = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::Image { mime, .. } | Part::Audio { mime, .. } | Part::Document { mime, .. } => {
            format!("[{mime}]")
        }
    };
    parts.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// Writer of a run's journal.
#[derive(Debug)]
pub(crate) struct Journal {
    /// `None` for a replayed run, which writes nothing.
    file: Option<File>,
    /// Second file with the same lines, for a later replay.
    copy: Option<File>,
    redactor: Arc<Redactor>,
}

impl Journal {
    /// Creates a journal that writes nothing.
    pub(crate) fn disabled(redactor: Arc<Redactor>) -> Self {
        Self { file: None, copy: None, redactor }
    }

    /// Appends entries in a single write.
    pub(crate) fn append(&self, entries: &[JournalEntry]) -> io::Result<()> {
        let mut text = String::new();
        for entry in entries {
            text.push_str(&self.redactor.json(&serde_json::to_string(entry)?));
            text.push('\n');
        }
        for mut file in [&self.file, &self.copy].into_iter().flatten() {
            file.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// Syncs the journal to disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }
}

/// Reads a recording at any path.
///
/// # Errors
/// If the file does not exist or is not a recording.
pub fn read_recording(path: &Path) -> Result<Vec<JournalEntry>, RunError> {
    Ok(read(path)?.0)
}
