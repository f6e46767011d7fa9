//! The agent behind a door: tasks that come over HTTP.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value as Json, json};
use toolgate_agent::journal::Follow;
use toolgate_agent::model::Part;
use toolgate_agent::{Agent, Event, RunError};
use toolgate_server::runs::{Followed, Heard, NoRun, Runs, Started, Task};
use toolgate_types::Caller;

use crate::command::run::until_stopped;

/// An agent that takes tasks.
pub(crate) struct Tasks(pub(crate) Arc<Agent>);

impl Runs for Tasks {
    fn start(
        &self,
        caller: Caller,
        task: Task,
        heard: Heard,
        stop: BoxFuture<'static, ()>,
    ) -> Result<Started, NoRun> {
        let (seat, parts) = match task {
            Task::New(text) => (self.0.seat(caller), Some(vec![Part::Text { text }])),
            Task::Resume(id) => (self.0.seat_again(&id, caller), None),
        };
        let seat = seat.map_err(refused)?;
        let (run, agent) = (seat.id().to_owned(), Arc::clone(&self.0));
        let work = Box::pin(async move {
            let tell = |event: Event| heard(serde_json::to_value(event).unwrap_or_default());
            match agent.take(seat) {
                Ok(mut run) => drop(until_stopped(&mut run, parts, &tell, stop).await),
                Err(error) => tracing::error!("a run cannot be begun: {error}"),
            }
        });
        Ok(Started { run, work })
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

    fn follow(&self, id: &str) -> io::Result<Option<Box<dyn Followed>>> {
        match self.0.runs.follow(id) {
            Ok(follow) => Ok(Some(Box::new(Journal(follow)))),
            Err(RunError::Io(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// A journal that is followed.
struct Journal(Follow);

impl Followed for Journal {
    fn news(&mut self) -> io::Result<Vec<(u64, Json)>> {
        let news = self.0.news().map_err(io::Error::other)?;
        news.into_iter().map(|(number, event)| Ok((number, serde_json::to_value(event)?))).collect()
    }

    fn goes_on(&self) -> bool {
        self.0.goes_on()
    }

    fn caller(&self) -> &str {
        self.0.caller()
    }
}

/// One that is somebody else's reads like one that is not there.
fn refused(error: RunError) -> NoRun {
    match error {
        RunError::Absent(id) | RunError::Ambiguous(id) | RunError::NotYours { run: id, .. } => {
            NoRun::Absent(format!("there is no run `{id}`"))
        }
        RunError::Busy(_) | RunError::Over(_) => NoRun::Busy(error.to_string()),
        RunError::Unreadable { .. } | RunError::Io(_) => {
            tracing::error!("{error}");
            NoRun::Failed("the run cannot be written down".to_owned())
        }
    }
}
