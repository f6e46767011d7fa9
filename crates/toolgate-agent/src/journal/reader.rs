//! Reads a journal while it is written, as the events that an observer of the run saw.
//!
//! A line yields at most one event, so the line number is a stable id of the event. Invariant: events appear in the
//! order in which they were written, redacted; streamed pieces of text are not in the journal and are not reported.

use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use fs_err::File;
use toolgate_state::{FileAccess, open_private};

use super::{JournalEntry, MAX_BYTES, RunError, is_locked, parts_text};
use crate::event::{RunEvent, RunOutcome};
use crate::model::ToolCall;

/// Bytes of the first line.
const MAX_FIRST_LINE: u64 = 64 << 10;

/// A position in a journal, from its start on.
#[derive(Debug)]
pub struct JournalReader {
    path: PathBuf,
    /// Bytes read, up to the end of a line.
    read: u64,
    line: u64,
    builder: EventBuilder,
}

impl JournalReader {
    pub(super) fn open(path: PathBuf, id: &str) -> Result<Self, RunError> {
        // The first line names the caller.
        let mut first = String::new();
        BufReader::new(open(&path)?).take(MAX_FIRST_LINE).read_line(&mut first)?;
        let Ok(JournalEntry::Started { caller, .. }) = serde_json::from_str(&first) else {
            return Err(RunError::NotFound(id.to_owned()));
        };
        let builder = EventBuilder { caller, ..EventBuilder::default() };
        Ok(Self { path, read: 0, line: 0, builder })
    }

    /// Caller that the run acts as.
    pub fn caller(&self) -> &str {
        &self.builder.caller
    }

    /// Returns true if a process works on the run.
    pub fn is_active(&self) -> bool {
        is_locked(&self.path)
    }

    /// Returns the events since the last call, each with its line number.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn new_events(&mut self) -> Result<Vec<(u64, RunEvent)>, RunError> {
        let mut file = open(&self.path)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut text)?;
        // A line without its newline is still being written.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut events = Vec::new();
        for line in text[..whole].split_inclusive(|byte| *byte == b'\n') {
            self.line += 1;
            let entry = serde_json::from_slice(line).map_err(|error| RunError::Unreadable {
                run: self.builder.run.clone(),
                line: usize::try_from(self.line).unwrap_or(usize::MAX),
                why: error.to_string(),
            })?;
            events.extend(self.builder.event(entry).map(|event| (self.line, event)));
        }
        self.read += whole as u64;
        Ok(events)
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    open_private(path, FileAccess::Read)
}

/// Rebuilds events from journal entries.
#[derive(Debug, Default)]
struct EventBuilder {
    run: String,
    model: String,
    caller: String,
    resumed: bool,
    /// Calls of the last turn.
    calls: Vec<ToolCall>,
    /// Started calls, with their numbers.
    started: Vec<(String, usize)>,
    call_count: usize,
    /// Text of the last reply; empty after a tool result.
    answer: String,
}

impl EventBuilder {
    /// Returns the event that was sent when the entry was written.
    fn event(&mut self, entry: JournalEntry) -> Option<RunEvent> {
        Some(match entry {
            JournalEntry::Started { run, caller, model, .. } => {
                (self.run, self.caller, self.model) = (run, caller, model);
                return None;
            }
            JournalEntry::ToolsOffered { tools } => {
                let (run, model, caller) = (self.run.clone(), self.model.clone(), self.caller.clone());
                RunEvent::Started { run, model, caller, tools, resumed: self.resumed }
            }
            JournalEntry::Reply { text, calls, usage, cost, took_ms, .. } => {
                self.calls = calls;
                self.answer.clone_from(&text);
                RunEvent::Replied { text, usage, cost, took_ms }
            }
            JournalEntry::Intent { id, .. } => {
                self.call_count += 1;
                let number = self.call_count;
                self.started.push((id.clone(), number));
                let call = self.calls.iter().find(|call| call.id == id)?;
                let (tool, arguments) = (call.name.clone(), call.arguments.to_object().into());
                RunEvent::Call { number, id, tool, arguments }
            }
            JournalEntry::Result { output, took_ms, correlation_id, .. } => {
                self.answer.clear();
                let at = self.started.iter().position(|(id, _)| *id == output.id)?;
                let (id, number) = self.started.swap_remove(at);
                let (tool, text) = (output.name, parts_text(&output.parts));
                RunEvent::Result { number, id, tool, failed: output.failed, text, took_ms, correlation_id }
            }
            JournalEntry::Ended { reason, spent, error, hint, took_ms, .. } => {
                let (run, answer) = (self.run.clone(), self.answer.clone());
                RunEvent::Ended(RunOutcome { run, reason, answer, error, hint, spent, took_ms })
            }
            JournalEntry::Resumed { .. } => {
                self.resumed = true;
                return None;
            }
            JournalEntry::ModelChanged { model } => {
                self.model = model;
                return None;
            }
            JournalEntry::UserMessage { .. }
            | JournalEntry::ToolsFound { .. }
            | JournalEntry::ProgramCalls { .. }
            | JournalEntry::Undone {} => return None,
        })
    }
}
