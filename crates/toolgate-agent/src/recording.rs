//! Replays a recorded run: replies of the model and results of the tools come from the recording, and nothing is
//! called.
//!
//! Invariant: no network, no process, no file except the recording.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::journal::{JournalEntry, RunError, read_recording};
use crate::model::{
    Model, ModelError, ModelErrorKind, ModelReply, ModelRequest, Part, StreamEvent, ToolOutput,
};

/// A recorded run.
pub struct Recording {
    model: String,
    asked: Vec<Vec<Part>>,
    replies: Mutex<VecDeque<ModelReply>>,
    outputs: HashMap<String, (ToolOutput, f64)>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// If the file does not exist or is not a recording.
    pub fn read(path: &Path) -> Result<Arc<Self>, RunError> {
        let mut recording = Self {
            model: String::new(),
            asked: Vec::new(),
            replies: Mutex::default(),
            outputs: HashMap::new(),
        };
        let mut replies = VecDeque::new();
        for entry in read_recording(path)? {
            match entry {
                JournalEntry::Started { model, .. } => recording.model = model,
                JournalEntry::UserMessage { parts } => recording.asked.push(parts),
                JournalEntry::Reply { text, calls, stop, usage, .. } => {
                    replies.push_back(ModelReply { text, calls, stop, usage })
                }
                JournalEntry::Result { output, took_ms, .. } => {
                    recording.outputs.insert(output.id.clone(), (output, took_ms));
                }
                _ => {}
            }
        }
        recording.replies = Mutex::new(replies);
        Ok(Arc::new(recording))
    }

    /// Messages of the user, in order.
    pub fn user_messages(&self) -> &[Vec<Part>] {
        &self.asked
    }

    /// Returns the recorded output of a call, and its duration; an error output if the recording ends before it.
    pub(crate) fn output(&self, id: &str, name: &str) -> (ToolOutput, f64) {
        let missing = || {
            let text = "error: the recording ends before the result of this call".to_owned();
            let (id, name) = (id.to_owned(), name.to_owned());
            (ToolOutput { id, name, parts: vec![Part::Text { text }], failed: true }, 0.0)
        };
        self.outputs.get(id).cloned().unwrap_or_else(missing)
    }
}

/// A model that returns the replies of a recording.
pub struct RecordedModel(pub Arc<Recording>);

impl Model for RecordedModel {
    fn name(&self) -> &str {
        &self.0.model
    }

    fn reply<'a>(
        &'a self,
        _request: &'a ModelRequest,
        on_event: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        let next = self.0.replies.lock().pop_front();
        Box::pin(async move {
            let over =
                || ModelError::new(ModelErrorKind::Unreachable, "the recording has no further replies");
            let reply = next.ok_or_else(over)?;
            on_event(StreamEvent::Text(reply.text.clone()));
            Ok(reply)
        })
    }
}
