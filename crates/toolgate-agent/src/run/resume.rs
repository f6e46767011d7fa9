//! Resumes a run from its journal in another process.
//!
//! Invariant: a call that may have taken effect is not repeated unless it is repeatable. A call with neither intent nor
//! result was not made, and is made now.

use toolgate_types::Caller;
use toolgate_types::secret::MASK;

use super::instructions::{REDACTED, UNKNOWN};
use super::{Agent, Executor, Run, RunHandle, timestamp};
use crate::event::{EndReason, RunUsage};
use crate::journal::{JournalEntry, RunError};
use crate::model::{CallArguments, Message, Part, ToolCall, ToolOutput};

impl Agent {
    /// Resumes a run as its caller.
    ///
    /// # Errors
    /// If the run does not exist, belongs to another caller, is active in another process, or has ended with an answer.
    pub fn resume(&self, id: &str, caller: Caller) -> Result<Run<'_>, RunError> {
        self.start(self.open_run(id, caller)?)
    }

    /// Opens the journal of a run to resume, without starting its work.
    ///
    /// # Errors
    /// As [`Agent::resume`].
    pub fn open_run(&self, id: &str, caller: Caller) -> Result<RunHandle, RunError> {
        let handle = self.open_journal(id, caller)?;
        if has_answer(&handle.entries) { Err(RunError::AlreadyEnded(id.to_owned())) } else { Ok(handle) }
    }

    /// Resumes a conversation that waits for the next message of the user, even if it ended with an answer.
    ///
    /// # Errors
    /// If the run does not exist, belongs to another caller, or is active in another process.
    pub fn resume_chat(&self, id: &str, caller: Caller) -> Result<Run<'_>, RunError> {
        let mut run = self.start(self.open_journal(id, caller)?)?;
        run.cancel_open_calls();
        Ok(run)
    }

    fn open_journal(&self, id: &str, caller: Caller) -> Result<RunHandle, RunError> {
        let (journal, before) = self.runs.open(id)?;
        let Some(JournalEntry::Started { caller: owner, .. }) = before.first() else {
            return Err(RunError::NotFound(id.to_owned()));
        };
        if *owner != caller.id.as_str() {
            return Err(RunError::OtherCaller { run: id.to_owned(), caller: owner.clone() });
        }
        Ok(RunHandle { caller, id: id.to_owned(), journal, entries: before })
    }

    /// Starts the work on a run, new or resumed.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn start(&self, handle: RunHandle) -> Result<Run<'_>, RunError> {
        let RunHandle { caller, id, journal, entries: before } = handle;
        let mut run = Run::new(self, caller, id, journal);
        if before.is_empty() {
            return Ok(run);
        }
        run.resumed = true;
        let ended = has_answer(&before);
        run.replay(before);
        run.journal.append(&[JournalEntry::Resumed { at: timestamp() }])?;
        if !ended {
            run.prepare_open_calls();
        }
        Ok(run)
    }
}

/// Returns true if a run has ended with an answer.
fn has_answer(entries: &[JournalEntry]) -> bool {
    let is_final = |reason| matches!(reason, EndReason::Done | EndReason::NotDone | EndReason::Refused);
    matches!(entries.last(), Some(JournalEntry::Ended { reason, .. }) if is_final(*reason))
}

impl Run<'_> {
    /// Rebuilds the conversation from the journal. Calls of the last turn without a result stay open.
    fn replay(&mut self, entries: Vec<JournalEntry>) {
        for entry in entries {
            match entry {
                JournalEntry::UserMessage { parts } => {
                    self.spent = RunUsage::default();
                    self.messages.push(Message::User { parts });
                }
                JournalEntry::Reply { text, calls, usage, .. } => {
                    self.add_usage(usage);
                    self.messages.push(Message::Assistant { text, calls });
                }
                JournalEntry::Intent { id, repeatable, writes } => {
                    self.call_count += 1;
                    for spent in [&mut self.spent, &mut self.total] {
                        spent.calls += 1;
                        spent.writes += u32::from(writes);
                    }
                    self.pending.push((id, repeatable));
                }
                JournalEntry::Result { output, tainted, .. } => {
                    if tainted && let Executor::Runtime(runtime) = &self.agent.executor {
                        runtime.taint(&self.caller.id, &self.session());
                    }
                    self.add_output(output);
                }
                JournalEntry::ToolsFound { tools } => self.found_tools.extend(tools),
                JournalEntry::ProgramCalls { calls, writes } => self.count_program(calls, writes),
                JournalEntry::Undone {} => drop(self.remove_last_message()),
                JournalEntry::Started { .. }
                | JournalEntry::ModelChanged { .. }
                | JournalEntry::ToolsOffered { .. }
                | JournalEntry::Resumed { .. }
                | JournalEntry::Ended { .. } => {}
            }
        }
    }

    /// Adds the output of a call; completes the turn when all of its calls have one.
    fn add_output(&mut self, output: ToolOutput) {
        self.pending.retain(|(id, _)| *id != output.id);
        self.known_outputs.push(output);
        let Some(Message::Assistant { calls, .. }) = self.messages.last() else { return };
        if calls.iter().all(|call| self.known_outputs.iter().any(|output| output.id == call.id)) {
            let results = super::calls::sort_outputs(calls, std::mem::take(&mut self.known_outputs));
            self.messages.push(Message::Tools { results });
        }
    }

    /// Prepares the open calls of the last turn: a call that may have taken effect gets an error output, a call that
    /// was not made is left for the next turn.
    fn prepare_open_calls(&mut self) {
        let Some(Message::Assistant { calls, .. }) = self.messages.last() else { return };
        if calls.is_empty() {
            // The last reply was truncated or empty.
            return self.messages.push(Message::user("Go on where you stopped."));
        }
        let calls = calls.clone();
        for call in &calls {
            if self.known_outputs.iter().any(|output| output.id == call.id) {
                continue;
            }
            let repeatable =
                self.pending.iter().find(|(id, _)| *id == call.id).map(|(_, repeatable)| *repeatable);
            let text = match repeatable {
                Some(false) => UNKNOWN,
                _ if is_redacted(call) => REDACTED,
                _ => continue,
            };
            let parts = vec![Part::Text { text: text.to_owned() }];
            let output = ToolOutput { id: call.id.clone(), name: call.name.clone(), parts, failed: true };
            let (took_ms, tainted) = (0.0, self.is_tainted());
            let entry =
                JournalEntry::Result { output: output.clone(), took_ms, tainted, correlation_id: None };
            // If this write fails, the next one fails too, and that ends the run.
            let _ = self.journal.append(&[entry]);
            self.known_outputs.push(output);
        }
        self.pending.clear();
    }
}

/// Returns true if the journal redacted part of the arguments.
fn is_redacted(call: &ToolCall) -> bool {
    match &call.arguments {
        CallArguments::Object(object) => serde_json::to_string(object).is_ok_and(|text| text.contains(MASK)),
        CallArguments::Unusable(_) => false,
    }
}
