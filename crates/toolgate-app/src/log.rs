//! The execution log of an app: its folder, opening it for writing, and the history in it.
//!
//! A log has a single writer, so each concurrent process has its own subfolder. Readers merge them.

use std::error::Error as StdError;
use std::io::{self, Write as _};
use std::path::PathBuf;

use jiff::Timestamp;
use toolgate_audit::log::OpenError;
use toolgate_audit::project::{MAX_WRITERS, ProjectLog};
use toolgate_audit::{ExecutionLog, HistoryWindow, LogEvent, LogOptions, LogReader, ToolHistory};
use toolgate_config::{AuditConfig, Config};
use toolgate_state::{FileAccess, StateDir};
use toolgate_types::Secret;

use crate::project::StateFolder;

/// Disk space reserved for the end record of the only call in flight, beside its bodies.
const SINGLE_CALL_RESERVE: u64 = 1 << 20;

/// Recording of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogMode {
    /// No log, for apps that only look.
    Off,
    /// A log for one call at a time. It reserves less disk space.
    OneCall,
    /// A log for many concurrent calls.
    ManyCalls,
}

/// The execution log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot write the execution log, so no call is made")]
    Unwritable(#[source] Box<dyn StdError + Send + Sync>),
    #[error("{MAX_WRITERS} processes already write to the execution log of this project")]
    TooManyWriters,
    /// The configuration cannot be serialised for the start record.
    #[error(transparent)]
    Config(#[from] serde_json::Error),
}

/// Opens the execution log of a project, for writing and reading.
pub(crate) struct LogSetup {
    project: PathBuf,
    audit: AuditConfig,
    secrets: Vec<Secret>,
    policy: String,
    /// Configuration for the start record, without secrets.
    config: Vec<u8>,
}

impl LogSetup {
    pub(crate) fn new(config: &Config) -> Result<Self, LogError> {
        Ok(Self {
            project: config.project.clone(),
            audit: config.audit.clone(),
            secrets: config.secrets.clone(),
            policy: config.policy.as_ref().map_or("permissions", |policy| &policy.version).to_owned(),
            config: serde_json::to_vec(config)?,
        })
    }

    /// Returns the log of all processes, for reading.
    pub(crate) fn project_log(&self) -> ProjectLog {
        ProjectLog::new(self.project.join(&self.audit.folder))
    }

    /// Opens the log for writing, unless the mode is off.
    pub(crate) fn open(&self, mode: LogMode) -> Result<Option<ExecutionLog>, LogError> {
        let Self { project, audit, secrets, policy, config } = self;
        let max_reserve = match mode {
            LogMode::Off => return Ok(None),
            LogMode::OneCall => audit.max_body.bytes() * 2 + SINGLE_CALL_RESERVE,
            LogMode::ManyCalls => u64::MAX,
        };
        let folder = project.join(&audit.folder);
        StateDir::create(&folder).map_err(unwritable)?;
        // Keeps the confidential data of the log out of version control.
        let state = StateFolder::of(project);
        let ignored = if folder.starts_with(state.path()) { state.path() } else { &folder };
        let ignored = StateDir::create(ignored).map_err(unwritable)?;
        match ignored.open_file(".gitignore", FileAccess::AppendNew) {
            Ok(mut file) => file.write_all(b"*\n").map_err(unwritable)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unwritable(error)),
        }
        for writer in 1..=MAX_WRITERS {
            let options = LogOptions {
                max_body: usize::try_from(audit.max_body.bytes()).unwrap_or(usize::MAX),
                keep: audit.keep.get(),
                secrets: secrets.clone(),
                patterns: audit.redact.clone(),
                reserve: audit.reserve.0.map_or(0, |size| size.bytes().min(max_reserve)),
                on_full: audit.on_full,
                ..LogOptions::default()
            };
            match ExecutionLog::open(self.project_log().writer_folder(writer), options) {
                Err(OpenError::InUse(_)) => {}
                opened => {
                    let log = opened.map_err(unwritable)?;
                    let start = LogEvent::Start { version: env!("CARGO_PKG_VERSION"), policy, config };
                    // Not awaited: the records of calls are written after it, in order.
                    drop(log.record_event(&start));
                    return Ok(Some(log));
                }
            }
        }
        Err(LogError::TooManyWriters)
    }

    /// Returns recent statistics of tools, and the tools that followed each other. Empty if the log cannot be read:
    /// agent hints are then based on less.
    pub(crate) fn history(&self) -> ToolHistory {
        let mut all = ToolHistory::default();
        for folder in self.project_log().folders() {
            match LogReader::new(folder).history(&HistoryWindow::ending_at(Timestamp::now())) {
                Ok(history) => all.add(history),
                Err(error) => tracing::warn!("cannot read the execution log: {error}"),
            }
        }
        all
    }
}

fn unwritable(error: impl StdError + Send + Sync + 'static) -> LogError {
    LogError::Unwritable(Box::new(error))
}
