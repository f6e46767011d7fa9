//! A run that goes on in another process, from its journal.
//!
//! Invariant: a call that may have happened is not made again, unless making it twice is as good as once; what has
//! neither intent nor result did not happen, and is made.

use toolgate_types::Caller;
use toolgate_types::secret::MASK;

use super::told::{HIDDEN, UNKNOWN};
use super::{Agent, Hands, Run, Seat, now};
use crate::event::{Reason, Spent};
use crate::journal::{Entry, RunError};
use crate::model::{Given, Message, Part, ToolCall, ToolOutput};

impl Agent {
    /// A run that goes on where it was, as the caller whose it is.
    ///
    /// # Errors
    /// When there is none, it is somebody else's, it goes on elsewhere, or it has ended with an answer.
    pub fn resume(&self, id: &str, caller: Caller) -> Result<Run<'_>, RunError> {
        self.take(self.seat_again(id, caller)?)
    }

    /// The journal of a run that is to go on.
    ///
    /// # Errors
    /// As of [`Agent::resume`].
    pub fn seat_again(&self, id: &str, caller: Caller) -> Result<Seat, RunError> {
        let seat = self.reopen(id, caller)?;
        if is_over(&seat.before) { Err(RunError::Over(id.to_owned())) } else { Ok(seat) }
    }

    /// The same for a conversation that waits for the person, who says more, whether it had an answer or not.
    ///
    /// # Errors
    /// When there is none, it is somebody else's, or it goes on elsewhere.
    pub fn resume_chat(&self, id: &str, caller: Caller) -> Result<Run<'_>, RunError> {
        let mut run = self.take(self.reopen(id, caller)?)?;
        run.settle();
        Ok(run)
    }

    fn reopen(&self, id: &str, caller: Caller) -> Result<Seat, RunError> {
        let (journal, before) = self.runs.open(id)?;
        let Some(Entry::Begun { caller: whose, .. }) = before.first() else {
            return Err(RunError::Absent(id.to_owned()));
        };
        if *whose != caller.id.as_str() {
            return Err(RunError::NotYours { run: id.to_owned(), caller: whose.clone() });
        }
        Ok(Seat { caller, id: id.to_owned(), journal, before })
    }

    /// Begins to work on a run, or goes on with it.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn take(&self, seat: Seat) -> Result<Run<'_>, RunError> {
        let Seat { caller, id, journal, before } = seat;
        let mut run = Run::new(self, caller, id, journal);
        if before.is_empty() {
            return Ok(run);
        }
        run.resumed = true;
        let over = is_over(&before);
        run.replay(before);
        run.journal.add(&[Entry::Resumed { at: now() }])?;
        if !over {
            run.take_up();
        }
        Ok(run)
    }
}

/// Whether a run has ended with an answer.
fn is_over(entries: &[Entry]) -> bool {
    matches!(entries.last(), Some(Entry::Ended { reason: Reason::Done | Reason::Refused, .. }))
}

impl Run<'_> {
    /// The conversation as far as it got; the calls of the last turn that are not answered stay open.
    fn replay(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            match entry {
                Entry::Asked { parts } => {
                    self.spent = Spent::default();
                    self.messages.push(Message::User { parts });
                }
                Entry::Said { text, calls, usage, .. } => {
                    self.count(usage);
                    self.messages.push(Message::Assistant { text, calls });
                }
                Entry::Intent { id, repeatable, writes } => {
                    self.numbered += 1;
                    for spent in [&mut self.spent, &mut self.total] {
                        spent.calls += 1;
                        spent.writes += u32::from(writes);
                    }
                    self.pending.push((id, repeatable));
                }
                Entry::Result { output, tainted, .. } => {
                    if tainted && let Hands::Road(runtime) = &self.agent.hands {
                        runtime.taint(&self.caller.id, &self.id);
                    }
                    self.answered(output);
                }
                Entry::Found { tools } => self.found.extend(tools),
                Entry::Begun { .. } | Entry::Shown { .. } | Entry::Resumed { .. } | Entry::Ended { .. } => {}
            }
        }
    }

    /// A call of the last turn has its answer; when all have, the turn is over.
    fn answered(&mut self, output: ToolOutput) {
        self.pending.retain(|(id, _)| *id != output.id);
        self.partial.push(output);
        let Some(Message::Assistant { calls, .. }) = self.messages.last() else { return };
        if calls.iter().all(|call| self.partial.iter().any(|output| output.id == call.id)) {
            let results = super::calls::in_order(calls, std::mem::take(&mut self.partial));
            self.messages.push(Message::Tools { results });
        }
    }

    /// Settles the calls of the last turn: those that may have happened are told so, those that did not are left to be
    /// made. What is settled is written down by the turn that follows.
    fn take_up(&mut self) {
        let Some(Message::Assistant { calls, .. }) = self.messages.last() else { return };
        if calls.is_empty() {
            // It was cut off, or said nothing.
            return self.messages.push(Message::user("Go on where you stopped."));
        }
        let calls = calls.clone();
        for call in &calls {
            if self.partial.iter().any(|output| output.id == call.id) {
                continue;
            }
            let begun = self.pending.iter().find(|(id, _)| *id == call.id).map(|(_, repeatable)| *repeatable);
            let text = match begun {
                Some(false) => UNKNOWN,
                _ if is_hidden(call) => HIDDEN,
                _ => continue,
            };
            let parts = vec![Part::Text { text: text.to_owned() }];
            let output = ToolOutput { id: call.id.clone(), name: call.name.clone(), parts, failed: true };
            let (took_ms, tainted) = (0.0, self.is_tainted());
            let entry = Entry::Result { output: output.clone(), took_ms, tainted, correlation_id: None };
            // Where this cannot be written, the next line cannot be either, and that ends the run.
            let _ = self.journal.add(&[entry]);
            self.partial.push(output);
        }
        self.pending.clear();
    }
}

/// Whether the journal hides something of the arguments.
fn is_hidden(call: &ToolCall) -> bool {
    match &call.arguments {
        Given::Object(object) => serde_json::to_string(object).is_ok_and(|text| text.contains(MASK)),
        Given::Unusable(_) => false,
    }
}
