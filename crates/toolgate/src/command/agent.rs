//! The agent of a project, for the length of one command: its model, its tools, and who answers.
//!
//! Invariant: whatever was started is gone when [`with`] returns, however the command ends.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::anyhow;
use toolgate_agent::answering::declared;
use toolgate_agent::model::{Model, ModelError, Remote};
use toolgate_agent::planner::Planner;
use toolgate_agent::run::{Agent, Hands};
use toolgate_agent::tape::Recorded;
use toolgate_agent::{RunError, Runs, Skills, Tape};
use toolgate_audit::redact::Redactor;
use toolgate_config::Config;
use toolgate_runtime::desk::Desk;
use toolgate_runtime::{Clients, Runtime};
use toolgate_search::said::Date;
use toolgate_types::agent::AgentRules;
use toolgate_types::builtins::HumanInput;
use toolgate_types::limits::ResultLimits;
use toolgate_types::{ByteSize, Caller, HumanDuration};

use crate::cli::{AgentArgs, Project};
use crate::command::log::{self, Keeping};
use crate::command::{desk, live, tools};
use crate::output::{Output, hinted};
use crate::{FAILED, REFUSED};

pub(crate) mod keys;
pub(crate) mod markdown;
pub(crate) mod printer;
pub(crate) mod tasks;

/// How long a person has to answer where the project does not say.
pub(crate) const PATIENCE: HumanDuration = HumanDuration::from_secs(600);

/// An agent that is ready, and for whom it works.
pub(crate) struct Ready {
    pub(crate) agent: Agent,
    pub(crate) caller: Caller,
}

/// The runs of a project, and the project.
pub(crate) fn runs(config: &Config) -> Runs {
    Runs::of(&config.project, Redactor::new(config.secrets.clone(), config.audit.redact.clone()))
}

/// Gets an agent ready, does the work, and ends all that was started.
pub(crate) fn with<F>(
    args: &AgentArgs,
    project: &Project,
    output: &Output,
    work: impl FnOnce(Ready) -> F,
) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    let Some((mut config, files)) = live::config(project, output)? else { return Ok(REFUSED) };
    let rules = std::mem::take(&mut config.agent);
    let (skills, wrong) = Skills::read(&rules.skills);
    for error in wrong {
        output.message(&format!("a skill is not used: {error}\n"));
    }
    let model = model(&rules)?;
    people_and_results(&mut config, model.most_result());
    let (downloading, keeping) = (live::downloading(&config), Keeping::of(&config)?);
    let (collector, runs, name) = (config.telemetry.clone(), runs(&config), config.name.clone());
    let desk =
        config.builtins.human_input.map(|rules| Desk::new(rules.timeout, false, desk::ways(args.answers)));
    let mut setup = live::setup_at(config, args.answers, desk.as_ref(), |_| true);
    setup.questions = Arc::new(Clients { capabilities: declared(&rules) });
    setup.approver = keys::approver(args.answers);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tokio.block_on(async {
        let runtime = Arc::new(Runtime::new(setup));
        live::trace_to(&runtime, collector)?;
        let job = async {
            let errors = match live::discover(&runtime, &downloading, output).await {
                Ok(errors) => errors,
                Err(code) => return Ok(code),
            };
            // A server that is not there is told of, and the others are used.
            live::tell(&errors, output);
            let caller = tools::caller(&runtime, &args.caller)?;
            runtime.remember(keeping.history());
            runtime.log_to(keeping.open(log::Calls::Many)?);
            let hands = Hands::Road(Arc::clone(&runtime));
            let record = args.record.clone();
            let agent = Agent { hands, model, rules, name, skills, runs, desk, record };
            // Beside the work: nobody waits for a second look at the files.
            let changes = async {
                if let Some((_, actor)) = files.open_for(&runtime, output).await {
                    actor.run().await;
                }
                std::future::pending::<std::convert::Infallible>().await
            };
            tokio::select! {
                outcome = work(Ready { agent, caller }) => outcome,
                never = runtime.keep() => match never {},
                never = changes => match never {},
            }
        };
        let outcome = job.await;
        runtime.stop().await;
        outcome
    })
}

/// The agent behind a door, for all its callers; none where there is no way to its model, which is told.
pub(crate) fn behind(
    rules: AgentRules,
    name: Option<String>,
    runs: Runs,
    (runtime, desk): (&Arc<Runtime>, Option<&Arc<Desk>>),
    output: &Output,
) -> Option<Arc<dyn toolgate_server::runs::Runs>> {
    let (skills, wrong) = Skills::read(&rules.skills);
    for error in wrong {
        output.message(&format!("a skill is not used: {error}\n"));
    }
    let model = match model(&rules) {
        Ok(model) => model,
        Err(error) => {
            output.message(&format!("there is no agent at /v1/runs: {error}\n"));
            return None;
        }
    };
    let hands = Hands::Road(Arc::clone(runtime));
    let agent = Agent { hands, model, rules, name, skills, runs, desk: desk.cloned(), record: None };
    Some(Arc::new(tasks::Tasks(Arc::new(agent))))
}

/// Plays a record again: without a model, without tools, without a project.
pub(crate) fn replay<F>(tape: &Path, work: impl FnOnce(Ready, Arc<Tape>) -> F) -> anyhow::Result<u8>
where
    F: Future<Output = anyhow::Result<u8>>,
{
    let tape = Tape::read(tape)?;
    let agent = Agent {
        hands: Hands::Recorded(Arc::clone(&tape)),
        model: Arc::new(Recorded(Arc::clone(&tape))),
        rules: AgentRules::default(),
        name: None,
        skills: Skills::default(),
        runs: Runs::of(Path::new("."), Redactor::new(Vec::new(), Vec::new())),
        desk: None,
        record: None,
    };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio.block_on(work(Ready { agent, caller: Caller::owner() }, tape))
}

/// The model that the project names; without one the planner serves.
fn model(rules: &AgentRules) -> anyhow::Result<Arc<dyn Model>> {
    let Some(spec) = &rules.model else { return Ok(Arc::new(Planner::new(today))) };
    let told = |ModelError { message, hint, .. }: ModelError| match hint {
        Some(hint) => hinted(message, hint),
        None => anyhow!(message),
    };
    Ok(Arc::new(Remote::new(spec.clone()).map_err(told)?))
}

/// The day, in UTC.
fn today() -> Option<Date> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Date::of_number(i64::try_from(since.as_secs() / (24 * 60 * 60)).ok()?))
}

/// An agent can always ask whoever is there, and never gets more of a result than its model takes.
fn people_and_results(config: &mut Config, most: usize) {
    config.builtins.human_input.get_or_insert(HumanInput { timeout: PATIENCE });
    let usual = ResultLimits {
        max_inline: ByteSize::from_mib(1),
        keep: HumanDuration::from_secs(24 * 60 * 60),
        max_disk: ByteSize::from_mib(256),
    };
    let results = config.results.get_or_insert(usual);
    if results.max_inline.as_usize() > most
        && let Ok(most) = most.to_string().parse()
    {
        results.max_inline = most;
    }
}

/// Why a run is not taken up or shown, with the way out.
pub(crate) fn untaken(error: RunError) -> anyhow::Error {
    let hint = match &error {
        RunError::Absent(_) | RunError::Ambiguous(_) => "`toolgate runs` lists them".to_owned(),
        RunError::Over(id) => {
            format!(
                "`toolgate chat --resume {id}` says more to it, `toolgate runs show {id}` tells what happened"
            )
        }
        RunError::NotYours { caller, .. } => format!("`--as {caller}` is who may go on with it"),
        RunError::Busy(_) | RunError::Unreadable { .. } | RunError::Io(_) => return error.into(),
    };
    hinted(error.to_string(), hint)
}

/// The code to end with.
pub(crate) fn code(ended: &toolgate_agent::Ended) -> u8 {
    use toolgate_agent::Reason;
    match ended.reason {
        Reason::Done => crate::DONE,
        Reason::Interrupted => live::INTERRUPTED,
        _ => FAILED,
    }
}
