//! A run that is played again: the model says what it said, the tools give what they gave, and nothing is called.
//!
//! Invariant: no network, no process, no file beside the record.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;

use crate::journal::{Entry, RunError, recorded};
use crate::model::{Heard, Model, ModelError, ModelErrorKind, Part, Reply, Request, ToolOutput};

/// What was recorded of a run.
pub struct Tape {
    model: String,
    asked: Vec<Vec<Part>>,
    replies: Mutex<VecDeque<Reply>>,
    outputs: HashMap<String, (ToolOutput, f64)>,
}

impl Tape {
    /// Reads a record.
    ///
    /// # Errors
    /// When it is not there, or is no record.
    pub fn read(path: &Path) -> Result<Arc<Self>, RunError> {
        let mut tape = Self {
            model: String::new(),
            asked: Vec::new(),
            replies: Mutex::default(),
            outputs: HashMap::new(),
        };
        let mut replies = VecDeque::new();
        for entry in recorded(path)? {
            match entry {
                Entry::Begun { model, .. } => tape.model = model,
                Entry::Asked { parts } => tape.asked.push(parts),
                Entry::Said { text, calls, stop, usage, .. } => {
                    replies.push_back(Reply { text, calls, stop, usage })
                }
                Entry::Result { output, took_ms, .. } => {
                    tape.outputs.insert(output.id.clone(), (output, took_ms));
                }
                _ => {}
            }
        }
        tape.replies = Mutex::new(replies);
        Ok(Arc::new(tape))
    }

    /// What the person said, each time.
    pub fn asked(&self) -> &[Vec<Part>] {
        &self.asked
    }

    /// What a call gave; that there is nothing, where the record ends before it.
    pub(crate) fn output(&self, id: &str, name: &str) -> (ToolOutput, f64) {
        let missing = || {
            let text = "error: the record does not have the end of this call".to_owned();
            let (id, name) = (id.to_owned(), name.to_owned());
            (ToolOutput { id, name, parts: vec![Part::Text { text }], failed: true }, 0.0)
        };
        self.outputs.get(id).cloned().unwrap_or_else(missing)
    }
}

/// The model of a record.
pub struct Recorded(pub Arc<Tape>);

impl Model for Recorded {
    fn name(&self) -> &str {
        &self.0.model
    }

    fn reply<'a>(
        &'a self,
        _request: &'a Request,
        heard: &'a mut (dyn FnMut(Heard) + Send),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let next = self.0.replies.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        Box::pin(async move {
            let over = || ModelError::new(ModelErrorKind::Unreachable, "the record has no more to say");
            let reply = next.ok_or_else(over)?;
            heard(Heard::Text(reply.text.clone()));
            Ok(reply)
        })
    }
}
