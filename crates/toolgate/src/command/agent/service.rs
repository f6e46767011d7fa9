//! The agent of the gateway: tasks sent over HTTP.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value as Json, json};
use toolgate_agent::journal::JournalReader;
use toolgate_agent::model::Part;
use toolgate_agent::{Agent, RunError, RunEvent};
use toolgate_server::runs::{EventSink, RunFollower, RunRequest, RunService, RunStartError, StartedRun};
use toolgate_types::Caller;

use crate::command::run::run_until_stopped;

/// Executes tasks with an agent.
pub(crate) struct AgentService(pub(crate) Arc<Agent>);

impl RunService for AgentService {
    fn start(
        &self,
        caller: Caller,
        task: RunRequest,
        sink: EventSink,
        stop: BoxFuture<'static, ()>,
    ) -> Result<StartedRun, RunStartError> {
        let (handle, parts) = match task {
            RunRequest::New(text) => (self.0.create_run(caller), Some(vec![Part::Text { text }])),
            RunRequest::Resume(id) => (self.0.open_run(&id, caller), None),
        };
        let handle = handle.map_err(to_start_error)?;
        let (run, agent) = (handle.id().to_owned(), Arc::clone(&self.0));
        let work = Box::pin(async move {
            let on_event = |event: RunEvent| sink(serde_json::to_value(event).unwrap_or_default());
            match agent.start(handle) {
                Ok(mut run) => drop(run_until_stopped(&mut run, parts, &on_event, stop).await),
                Err(error) => tracing::error!("cannot start a run: {error}"),
            }
        });
        Ok(StartedRun { run, work })
    }

    fn list(&self) -> io::Result<Vec<Json>> {
        let all = self.0.runs.list()?;
        Ok(all.iter().map(|run| serde_json::to_value(run).unwrap_or_default()).collect())
    }

    fn show(&self, id: &str) -> io::Result<Option<Json>> {
        let (summary, entries) = match self.0.runs.show(id) {
            Ok(shown) => shown,
            Err(RunError::Io(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        let mut run = serde_json::to_value(summary)?;
        run["entries"] = json!(entries);
        Ok(Some(run))
    }

    fn follow(&self, id: &str) -> io::Result<Option<Box<dyn RunFollower>>> {
        match self.0.runs.follow(id) {
            Ok(follow) => Ok(Some(Box::new(JournalFollower(follow)))),
            Err(RunError::Io(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// Follows the journal of a run.
struct JournalFollower(JournalReader);

impl RunFollower for JournalFollower {
    fn new_events(&mut self) -> io::Result<Vec<(u64, Json)>> {
        let news = self.0.new_events().map_err(io::Error::other)?;
        news.into_iter().map(|(number, event)| Ok((number, serde_json::to_value(event)?))).collect()
    }

    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    fn caller(&self) -> &str {
        self.0.caller()
    }
}

/// Converts an error. A run of another caller is reported as not found, so that its existence is not revealed.
fn to_start_error(error: RunError) -> RunStartError {
    match error {
        RunError::NotFound(id) | RunError::Ambiguous(id) | RunError::OtherCaller { run: id, .. } => {
            RunStartError::NotFound(format!("no such run: `{id}`"))
        }
        RunError::Busy(_) | RunError::AlreadyEnded(_) => RunStartError::Busy(error.to_string()),
        RunError::Unreadable { .. } | RunError::Io(_) => {
            tracing::error!("{error}");
            RunStartError::Failed("cannot write the journal of the run".to_owned())
        }
    }
}
