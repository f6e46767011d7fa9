//! The journal of a run: what was asked, said, begun and got, a line of JSON each.
//!
//! A run can be taken up again from it, after whatever end. Invariant: before a call that may change something is made,
//! its intent is on the disk; what has an intent and no result may have happened, and is not done again. Lines are
//! redacted before they are written, so what a journal hides is hidden in a run that goes on, too. One process at a
//! time writes a journal.

use std::fs::{OpenOptions, TryLockError};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fs_err::File;
use serde::{Deserialize, Serialize};
use toolgate_audit::redact::Redactor;

pub use crate::journal::follow::Follow;

use crate::event::{Reason, Spent};
use crate::model::{Part, Stop, ToolCall, ToolOutput, Usage};

mod follow;

/// Folder of the project.
const FOLDER: &str = ".toolgate/runs";
/// Bytes of a journal that is read.
const LARGEST: u64 = 256 << 20;
/// How long a run is kept after its last line.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Entry {
    /// The run begins.
    Begun {
        /// Its id.
        run: String,
        /// When, in UTC.
        at: String,
        /// As whom it acts.
        caller: String,
        /// The model.
        model: String,
    },
    /// The person says something.
    Asked {
        /// What.
        parts: Vec<Part>,
    },
    /// The model says something.
    Said {
        /// In words.
        text: String,
        /// What it wants to be called.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// Why it stopped.
        stop: Stop,
        /// What it used.
        usage: Usage,
        /// What that costs, where prices are known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<f64>,
        /// How long it took.
        #[serde(default)]
        took_ms: f64,
    },
    /// A call is about to be made.
    Intent {
        /// The id of the call.
        id: String,
        /// Whether doing it twice is as good as doing it once.
        repeatable: bool,
        /// Whether it counts as one that changes something.
        writes: bool,
    },
    /// A call has ended.
    Result {
        /// What the model is told.
        output: ToolOutput,
        /// How long it took.
        took_ms: f64,
        /// Whether something untrusted was read in this run by now.
        #[serde(default)]
        tainted: bool,
        /// What links it with the execution log; none where no call was made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        correlation_id: Option<String>,
    },
    /// Tools that were found, which the model sees from now on.
    Found {
        /// Their names.
        tools: Vec<String>,
    },
    /// Work begins, or goes on.
    Shown {
        /// How many tools the model sees.
        tools: usize,
    },
    /// The run goes on in another process.
    Resumed {
        /// When, in UTC.
        at: String,
    },
    /// The run ends.
    Ended {
        /// When, in UTC.
        at: String,
        /// Why.
        reason: Reason,
        /// What it used since the person asked.
        spent: Spent,
        /// What went wrong, where something did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// The way out, where there is one to name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// How long it took.
        #[serde(default)]
        took_ms: f64,
    },
}

/// Why a run cannot be read or taken up.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It is not there.
    #[error("there is no run `{0}`")]
    Absent(String),
    /// The beginning of an id fits more than one.
    #[error("more than one run begins with `{0}`")]
    Ambiguous(String),
    /// Another process has it.
    #[error("run `{0}` goes on in another process")]
    Busy(String),
    /// It is somebody else's.
    #[error("run `{run}` is of caller `{caller}`")]
    NotYours {
        /// The run.
        run: String,
        /// Whose it is.
        caller: String,
    },
    /// It has ended well, and there is nothing to do.
    #[error("run `{0}` has ended")]
    Over(String),
    /// A line of it cannot be read.
    #[error("line {line} of run `{run}` cannot be read: {why}")]
    Unreadable {
        /// The run.
        run: String,
        /// The line.
        line: usize,
        /// Why.
        why: String,
    },
    /// The disk does not want to.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The runs of a project.
#[derive(Debug, Clone)]
pub struct Runs {
    folder: PathBuf,
    redactor: Arc<Redactor>,
}

/// A run in listings.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Its id.
    pub run: String,
    /// When it began, in UTC.
    pub began: String,
    /// As whom it acts.
    pub caller: String,
    /// The model.
    pub model: String,
    /// What was asked first.
    pub task: String,
    /// `done` and the like; `running`, or `interrupted` where no end was written.
    pub state: &'static str,
    /// What it used, as far as it is known.
    #[serde(flatten)]
    pub spent: Spent,
}

impl Runs {
    /// The runs of a project.
    pub fn of(project: &Path, redactor: Redactor) -> Self {
        Self { folder: project.join(FOLDER), redactor: Arc::new(redactor) }
    }

    pub(crate) fn shared_redactor(&self) -> Arc<Redactor> {
        Arc::clone(&self.redactor)
    }

    /// A journal for a new run.
    pub(crate) fn create(&self, id: &str, copy: Option<&Path>) -> io::Result<Journal> {
        fs_err::create_dir_all(&self.folder)?;
        self.forget();
        let path = self.folder.join(format!("{id}.jsonl"));
        let file = OpenOptions::new().create_new(true).append(true).mode(0o600).open(&path)?;
        let file = File::from_parts(file, path);
        file.file().lock()?;
        // The name of a new file is in its folder, which has to be on the disk, too.
        File::open(&self.folder)?.sync_all()?;
        let copy = copy.map(File::create).transpose()?;
        Ok(Journal { file: Some(file), copy, redactor: Arc::clone(&self.redactor) })
    }

    /// A journal that goes on, and what is in it. Half a line at its end is taken away.
    pub(crate) fn open(&self, id: &str) -> Result<(Journal, Vec<Entry>), RunError> {
        let path = self.path(id)?;
        let mut file = File::from_parts(OpenOptions::new().read(true).write(true).open(&path)?, path.clone());
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

    /// What is in a journal.
    ///
    /// # Errors
    /// When it is not there, or cannot be read.
    pub fn read(&self, id: &str) -> Result<Vec<Entry>, RunError> {
        Ok(read(&self.path(id)?)?.0)
    }

    /// A run in short, and what is in its journal.
    ///
    /// # Errors
    /// When it is not there, or cannot be read.
    pub fn show(&self, id: &str) -> Result<(Summary, Vec<Entry>), RunError> {
        let path = self.path(id)?;
        let busy = is_busy(&path);
        let (entries, _) = read(&path)?;
        let summary = summary(&entries, busy).ok_or_else(|| RunError::Absent(id.to_owned()))?;
        Ok((summary, entries))
    }

    /// What happened in a run, and what happens while it goes on.
    ///
    /// # Errors
    /// When it is not there.
    pub fn follow(&self, id: &str) -> Result<Follow, RunError> {
        Follow::open(self.path(id)?, id)
    }

    /// All runs, the newest first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> io::Result<Vec<Summary>> {
        let mut all: Vec<Summary> = self
            .ids()?
            .into_iter()
            .filter_map(|id| {
                let path = self.folder.join(format!("{id}.jsonl"));
                let (entries, _) = read(&path).ok()?;
                summary(&entries, is_busy(&path))
            })
            .collect();
        all.sort_by(|one, other| other.run.cmp(&one.run));
        Ok(all)
    }

    /// The whole id of a run, from its beginning.
    ///
    /// # Errors
    /// When none fits, or more than one.
    pub fn resolve(&self, beginning: &str) -> Result<String, RunError> {
        let mut fitting = self.ids()?.into_iter().filter(|id| id.starts_with(beginning));
        match (fitting.next(), fitting.next()) {
            (Some(id), None) => Ok(id),
            (None, _) => Err(RunError::Absent(beginning.to_owned())),
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
        if good && path.is_file() { Ok(path) } else { Err(RunError::Absent(id.to_owned())) }
    }

    /// Removes what is old. What cannot be removed is in nobody's way.
    fn forget(&self) {
        let now = SystemTime::now();
        for id in self.ids().unwrap_or_default() {
            let path = self.folder.join(format!("{id}.jsonl"));
            let age = fs_err::metadata(&path).and_then(|meta| meta.modified());
            if age.is_ok_and(|at| now.duration_since(at).unwrap_or_default() > KEPT) {
                let _ = fs_err::remove_file(&path);
            }
        }
    }
}

/// Whether somebody writes a journal.
fn is_busy(path: &Path) -> bool {
    let file = OpenOptions::new().read(true).open(path);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The whole lines of a journal, and how many bytes they have.
fn read(path: &Path) -> Result<(Vec<Entry>, u64), RunError> {
    let run = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let size = fs_err::metadata(path)?.len();
    if size > LARGEST {
        let why = format!("it has more than {LARGEST} bytes");
        return Err(RunError::Unreadable { run: run(), line: 0, why });
    }
    let text = fs_err::read(path)?;
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

fn summary(entries: &[Entry], busy: bool) -> Option<Summary> {
    let Some(Entry::Begun { run, at, caller, model }) = entries.first() else { return None };
    let task = entries.iter().find_map(|entry| match entry {
        Entry::Asked { parts } => Some(words(parts)),
        _ => None,
    });
    let mut spent = Spent::default();
    let mut state = "interrupted";
    for entry in entries {
        match entry {
            Entry::Said { usage, .. } => {
                spent.turns += 1;
                spent.usage = spent.usage.plus(*usage);
            }
            Entry::Intent { writes, .. } => {
                spent.calls += 1;
                spent.writes += u32::from(*writes);
            }
            Entry::Ended { reason, spent: told, .. } => {
                state = reason.label();
                if let Some(cost) = told.cost {
                    spent.cost = Some(spent.cost.unwrap_or(0.0) + cost);
                }
            }
            Entry::Asked { .. } | Entry::Resumed { .. } => state = "interrupted",
            _ => {}
        }
    }
    if busy {
        state = "running";
    }
    let (run, began, caller, model) = (run.clone(), at.clone(), caller.clone(), model.clone());
    Some(Summary { run, began, caller, model, task: task.unwrap_or_default(), state, spent })
}

/// What was said in words.
pub fn words(parts: &[Part]) -> String {
    let text = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::Image { mime, .. } | Part::Audio { mime, .. } => format!("[{mime}]"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// Where a run is written down.
#[derive(Debug)]
pub(crate) struct Journal {
    /// None where nothing is kept: a run that is played again.
    file: Option<File>,
    /// Where the same goes, for whoever wants to play it again.
    copy: Option<File>,
    redactor: Arc<Redactor>,
}

impl Journal {
    /// One that keeps nothing.
    pub(crate) fn none(redactor: Arc<Redactor>) -> Self {
        Self { file: None, copy: None, redactor }
    }

    /// Adds lines, in one write.
    pub(crate) fn add(&self, entries: &[Entry]) -> io::Result<()> {
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

    /// Waits until all of it is on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }
}

/// Reads what was recorded, wherever it is.
///
/// # Errors
/// When it is not there, or is no record.
pub fn recorded(path: &Path) -> Result<Vec<Entry>, RunError> {
    Ok(read(path)?.0)
}
