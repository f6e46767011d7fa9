//! A journal that is read while it is written: what happened in a run, as the events that whoever watched it was told.
//!
//! Each line of a journal is one event or none, so the number of its line is the number of an event, today and in a
//! month. Invariant: what is told here is what was written, in its order, and without secrets; words as they come, which
//! are not written, are not told.

use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use fs_err::File;

use super::{Entry, LARGEST, RunError, is_busy, words};
use crate::event::{Ended, Event};
use crate::model::ToolCall;

/// Bytes of the first line.
const LONGEST_BEGINNING: u64 = 64 << 10;

/// A journal, from its beginning on.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    /// Bytes that were read, up to the end of a line.
    read: u64,
    /// Lines that were read.
    line: u64,
    told: Told,
}

impl Follow {
    pub(super) fn open(path: PathBuf, id: &str) -> Result<Self, RunError> {
        // Whose it is stands in its first line.
        let mut first = String::new();
        BufReader::new(File::open(&path)?).take(LONGEST_BEGINNING).read_line(&mut first)?;
        let Ok(Entry::Begun { caller, .. }) = serde_json::from_str(&first) else {
            return Err(RunError::Absent(id.to_owned()));
        };
        let told = Told { caller, ..Told::default() };
        Ok(Self { path, read: 0, line: 0, told })
    }

    /// As whom the run acts.
    pub fn caller(&self) -> &str {
        &self.told.caller
    }

    /// Whether somebody works on it.
    pub fn goes_on(&self) -> bool {
        is_busy(&self.path)
    }

    /// What happened since this was last asked for, each with its number.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn news(&mut self) -> Result<Vec<(u64, Event)>, RunError> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = Vec::new();
        file.take(LARGEST).read_to_end(&mut text)?;
        // Half a line is one that is being written.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut events = Vec::new();
        for line in text[..whole].split_inclusive(|byte| *byte == b'\n') {
            self.line += 1;
            let entry = serde_json::from_slice(line).map_err(|error| RunError::Unreadable {
                run: self.told.run.clone(),
                line: usize::try_from(self.line).unwrap_or(usize::MAX),
                why: error.to_string(),
            })?;
            events.extend(self.told.event(entry).map(|event| (self.line, event)));
        }
        self.read += whole as u64;
        Ok(events)
    }
}

/// What is known of a run so far.
#[derive(Debug, Default)]
struct Told {
    run: String,
    model: String,
    caller: String,
    resumed: bool,
    /// Calls of the last turn.
    calls: Vec<ToolCall>,
    /// Those that were begun, each with its number.
    begun: Vec<(String, usize)>,
    numbered: usize,
    /// The last words of the model, where nothing came after them.
    answer: String,
}

impl Told {
    /// What whoever watched was told when this was written.
    fn event(&mut self, entry: Entry) -> Option<Event> {
        Some(match entry {
            Entry::Begun { run, caller, model, .. } => {
                (self.run, self.caller, self.model) = (run, caller, model);
                return None;
            }
            Entry::Shown { tools } => {
                let (run, model, caller) = (self.run.clone(), self.model.clone(), self.caller.clone());
                Event::Begun { run, model, caller, tools, resumed: self.resumed }
            }
            Entry::Said { text, calls, usage, cost, took_ms, .. } => {
                self.calls = calls;
                self.answer.clone_from(&text);
                Event::Said { text, usage, cost, took_ms }
            }
            Entry::Intent { id, .. } => {
                self.numbered += 1;
                let number = self.numbered;
                self.begun.push((id.clone(), number));
                let call = self.calls.iter().find(|call| call.id == id)?;
                let (tool, arguments) = (call.name.clone(), call.arguments.object().into());
                Event::Call { number, id, tool, arguments }
            }
            Entry::Result { output, took_ms, correlation_id, .. } => {
                self.answer.clear();
                let at = self.begun.iter().position(|(id, _)| *id == output.id)?;
                let (id, number) = self.begun.swap_remove(at);
                let (tool, text) = (output.name, words(&output.parts));
                Event::Result { number, id, tool, failed: output.failed, text, took_ms, correlation_id }
            }
            Entry::Ended { reason, spent, error, hint, took_ms, .. } => {
                let (run, answer) = (self.run.clone(), self.answer.clone());
                Event::Ended(Ended { run, reason, answer, error, hint, spent, took_ms })
            }
            Entry::Resumed { .. } => {
                self.resumed = true;
                return None;
            }
            Entry::Asked { .. } | Entry::Found { .. } => return None,
        })
    }
}
