//! The agent behind a door: tasks that come over HTTP.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value as Json, json};
use toolgate_agent::journal::Entry;
use toolgate_agent::model::Part;
use toolgate_agent::{Agent, Event, Reason, RunError};
use toolgate_server::runs::{Heard, NoRun, Runs, Task};
use toolgate_types::Caller;

/// An agent that takes tasks.
pub(crate) struct Tasks(pub(crate) Agent);

/// The same, for whoever holds a run.
pub(crate) struct Shared(pub(crate) Arc<Tasks>);

impl Runs for Shared {
    fn start(&self, caller: Caller, task: Task, heard: Heard) -> Result<BoxFuture<'static, ()>, NoRun> {
        if let Task::Resume(id) = &task {
            self.may_resume(id, &caller)?;
        }
        let tasks = Arc::clone(&self.0);
        Ok(Box::pin(async move {
            let agent = &tasks.0;
            let tell = |event: Event| heard(serde_json::to_value(event).unwrap_or_default());
            let run = match &task {
                Task::New(_) => agent.begin(caller),
                Task::Resume(id) => agent.resume(id, caller),
            };
            match (run, task) {
                (Ok(mut run), Task::New(text)) => drop(run.ask(vec![Part::Text { text }], &tell).await),
                (Ok(mut run), Task::Resume(_)) => drop(run.go_on(&tell).await),
                (Err(error), _) => {
                    heard(json!({ "event": "ended", "reason": Reason::NotKept, "error": error.to_string() }));
                }
            }
        }))
    }

    fn list(&self) -> io::Result<Vec<Json>> {
        let all = self.0.0.runs.list()?;
        Ok(all.iter().map(|run| serde_json::to_value(run).unwrap_or_default()).collect())
    }

    fn show(&self, id: &str) -> io::Result<Option<Json>> {
        let entries = match self.0.0.runs.read(id) {
            Ok(entries) => entries,
            Err(RunError::Io(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        let Some(Entry::Begun { caller, .. }) = entries.first() else { return Ok(None) };
        Ok(Some(json!({ "run": id, "caller": caller, "entries": entries })))
    }
}

impl Shared {
    /// Whether a run can go on, as far as it can be told before.
    fn may_resume(&self, id: &str, caller: &Caller) -> Result<(), NoRun> {
        let absent = || NoRun::Absent(format!("there is no run `{id}`"));
        let entries = self.0.0.runs.read(id).map_err(|_| absent())?;
        match (entries.first(), entries.last()) {
            (Some(Entry::Begun { caller: whose, .. }), _) if *whose != caller.id.as_str() => Err(absent()),
            (_, Some(Entry::Ended { reason: Reason::Done | Reason::Refused, .. })) => {
                Err(NoRun::Busy(format!("run `{id}` has ended")))
            }
            _ => Ok(()),
        }
    }
}
