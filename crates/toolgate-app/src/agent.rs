//! The agent of an app: its model, the features it needs, and tasks sent over HTTP.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use serde_json::{Value as Json, json};
use tokio::time::Instant;
use toolgate_agent::journal::{JournalReader, RunSummary};
use toolgate_agent::model::{Model, ModelError, Part, RemoteModel};
use toolgate_agent::planner::Planner;
use toolgate_agent::recording::RecordedModel;
use toolgate_agent::{Agent, Executor, Recording, Run, RunError, RunEvent, RunOutcome, RunStore, SkillSet};
use toolgate_audit::redact::Redactor;
use toolgate_config::Config;
use toolgate_runtime::questions::NoResponder;
use toolgate_search::values::CalendarDate;
use toolgate_server::runs::{EventSink, RunFollower, RunRequest, RunService, RunStartError, StartedRun};
use toolgate_types::agent::{AgentConfig, AnswerPolicy};
use toolgate_types::builtins::HumanInputConfig;
use toolgate_types::limits::ResultLimits;
use toolgate_types::{ByteSize, Caller, HumanDuration};

use crate::event::{AppEvent, EventHandler};

/// Time a person has to answer, if the project does not configure it.
pub(crate) const QUESTION_TIMEOUT: HumanDuration = HumanDuration::from_secs(600);

/// Opens the run store of a project.
pub fn run_store(config: &Config) -> RunStore {
    RunStore::new(&config.project, Redactor::new(config.secrets.clone(), config.audit.redact.clone()))
}

/// Builds an agent that replays a recording, without model, tools or project.
pub fn replay_agent(recording: &Arc<Recording>) -> Agent {
    Agent {
        executor: Executor::Recording(Arc::clone(recording)),
        model: Arc::new(RecordedModel(Arc::clone(recording))),
        config: AgentConfig::default(),
        name: None,
        skills: SkillSet::default(),
        runs: RunStore::new(Path::new("."), Redactor::new(Vec::new(), Vec::new())),
        responder: Arc::new(NoResponder),
        person: None,
        record: None,
    }
}

/// Runs the agent loop until there is an answer or `stop` resolves.
pub async fn run_until_stopped(
    run: &mut Run<'_>,
    parts: Option<Vec<Part>>,
    on_event: &(dyn Fn(RunEvent) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> RunOutcome {
    let began = Instant::now();
    let work = async {
        match parts {
            Some(parts) => run.ask(parts, on_event).await,
            None => run.run_loop(on_event).await,
        }
    };
    let ended = tokio::select! {
        ended = work => Some(ended),
        () = stop => None,
    };
    match ended {
        Some(ended) => ended,
        None => run.interrupt(began, on_event),
    }
}

/// The parts of an agent that come from the configuration.
#[derive(Clone)]
pub(crate) struct AgentParts {
    config: AgentConfig,
    name: Option<String>,
    runs: RunStore,
}

impl AgentParts {
    pub(crate) fn new(config: &Config) -> Self {
        Self { config: config.agent.clone(), name: config.name.clone(), runs: run_store(config) }
    }

    pub(crate) fn config(&self) -> &AgentConfig {
        &self.config
    }

    /// Time for people to answer servers, if the agent passes such questions on to them.
    pub(crate) fn question_timeout(&self) -> Option<HumanDuration> {
        let asks = [self.config.sampling, self.config.elicitation].contains(&AnswerPolicy::Ask);
        asks.then_some(QUESTION_TIMEOUT)
    }

    /// Reads the skills. Reports and leaves out invalid ones.
    pub(crate) fn read_skills(&self, events: &EventHandler) -> SkillSet {
        let (skills, errors) = SkillSet::read(&self.config.skills);
        errors.iter().for_each(|error| events(AppEvent::SkillIgnored(error)));
        skills
    }

    /// Creates the configured model, or the planner if there is none.
    pub(crate) fn build_model(&self) -> Result<Arc<dyn Model>, ModelError> {
        Ok(match &self.config.model {
            Some(spec) => Arc::new(RemoteModel::new(spec.clone())?),
            None => Arc::new(Planner::new(today)),
        })
    }

    /// Puts the parts together.
    pub(crate) fn into_agent(self, executor: Executor, model: Arc<dyn Model>, skills: SkillSet) -> Agent {
        let Self { config, name, runs } = self;
        let responder = Arc::new(NoResponder);
        Agent { executor, model, config, name, skills, runs, responder, person: None, record: None }
    }
}

/// Returns the current date, UTC.
fn today() -> Option<CalendarDate> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(CalendarDate::from_day_number(i64::try_from(since.as_secs() / (24 * 60 * 60)).ok()?))
}

/// Enables questions to a person, and stores results that are too large for the model.
pub(crate) fn enable_questions_and_results(config: &mut Config, max_result_bytes: usize) {
    config.builtins.human_input.get_or_insert(HumanInputConfig { timeout: QUESTION_TIMEOUT });
    let default_limits = ResultLimits {
        max_inline: ByteSize::from_mib(1),
        keep: HumanDuration::from_secs(24 * 60 * 60),
        max_disk: ByteSize::from_mib(256),
    };
    let results = config.results.get_or_insert(default_limits);
    if results.max_inline.as_usize() > max_result_bytes
        && let Ok(max_inline) = max_result_bytes.to_string().parse()
    {
        results.max_inline = max_inline;
    }
}

/// Executes tasks sent over HTTP.
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
        let budgets = json!(self.0.config.budgets);
        let with_budgets = |run: &RunSummary| {
            let mut run = serde_json::to_value(run).unwrap_or_default();
            run["budgets"] = budgets.clone();
            run
        };
        Ok(all.iter().map(with_budgets).collect())
    }

    fn show(&self, id: &str) -> io::Result<Option<Json>> {
        let (summary, entries) = match self.0.runs.show(id) {
            Ok(shown) => shown,
            Err(RunError::Io(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        let mut run = serde_json::to_value(summary)?;
        run["budgets"] = json!(self.0.config.budgets);
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
