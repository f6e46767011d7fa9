//! Overhead of run_once agent turn: a model that replies at once and a tool that does nothing, with journal and pipeline.
//! Run with `cargo xtask bench agent`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, json};
use tokio::time::Instant;
use toolgate_agent::model::{
    CallArguments, Model, ModelError, ModelReply, ModelRequest, Part, StopReason, StreamEvent, TokenUsage,
    ToolCall,
};
use toolgate_agent::run::{Agent, Executor};
use toolgate_agent::{EndReason, RunStore, SkillSet};
use toolgate_audit::redact::Redactor;
use toolgate_runtime::runtime::RuntimeSetup;
use toolgate_runtime::{BuiltinTool, NoResponder, RawJson, Runtime};
use toolgate_types::agent::{AgentConfig, RunBudgets};
use toolgate_types::{CallLimits, Caller};

/// Turns per run. The conversation grows with each of them.
const TURNS: u32 = 50;
const RUNS: u32 = 20;
/// Upper limit for the median turn.
const LIMIT: Duration = Duration::from_millis(1);

/// Requests a call in each turn until none is left, then answers.
struct ScriptedModel {
    left: AtomicU32,
}

impl Model for ScriptedModel {
    fn name(&self) -> &str {
        "scripted"
    }

    fn reply<'a>(
        &'a self,
        _request: &'a ModelRequest,
        _on_event: &'a mut (dyn FnMut(StreamEvent) + Send),
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        let call = ToolCall {
            id: format!("c{left}"),
            name: "nothing".to_owned(),
            arguments: CallArguments::Object(Map::new()),
            signature: None,
        };
        let (calls, stop) =
            if left > 0 { (vec![call], StopReason::Calls) } else { (Vec::new(), StopReason::Done) };
        let reply = ModelReply { text: "words".to_owned(), calls, stop, usage: TokenUsage::default() };
        Box::pin(async move { Ok(reply) })
    }
}

#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn main() -> std::process::ExitCode {
    let folder = tempfile::tempdir().expect("there is room");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
    let runtime = Arc::new(tokio.block_on(start_runtime()));
    let mut times: Vec<Duration> =
        (0..RUNS).map(|_| tokio.block_on(run_once(&runtime, folder.path()))).collect();
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let met = if median <= LIMIT { "met" } else { "missed" };
    println!("a turn with run_once call: median {median:.1?}, worst run {worst:.1?}, limit {LIMIT:?}: {met}");
    if median <= LIMIT { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

/// Executes run_once run; returns the average duration of its turns.
async fn run_once(runtime: &Arc<Runtime>, folder: &std::path::Path) -> Duration {
    let budgets = RunBudgets { calls: TURNS + 1, ..RunBudgets::default() };
    let agent = Agent {
        executor: Executor::Runtime(Arc::clone(runtime)),
        model: Arc::new(ScriptedModel { left: AtomicU32::new(TURNS) }),
        config: AgentConfig { budgets, ..AgentConfig::default() },
        name: None,
        skills: SkillSet::default(),
        runs: RunStore::new(folder, Redactor::new(Vec::new(), Vec::new())),
        responder: Arc::new(NoResponder),
        person: None,
        record: None,
    };
    let mut run = agent.begin(Caller::owner()).expect("it is written down");
    let began = Instant::now();
    let ended = run.ask(vec![Part::Text { text: "go".to_owned() }], &|_| {}).await;
    assert_eq!((ended.reason, ended.spent.calls), (EndReason::Done, TURNS), "{ended:?}");
    began.elapsed() / (TURNS + 1)
}

async fn start_runtime() -> Runtime {
    let name = "nothing".parse().expect("a name");
    let schema = RawJson::from_value(&json!({ "type": "object" }));
    let reply = json!({ "content": [{ "type": "text", "text": "done" }] });
    let nothing = BuiltinTool::query(name, "Does nothing.", schema, move |_| {
        let reply = RawJson::from_value(&reply);
        Box::pin(async move { Ok(reply) })
    });
    let limits = CallLimits { max_concurrent: std::num::NonZeroU32::MIN, ..CallLimits::default() };
    let setup = RuntimeSetup { builtins: vec![nothing], limits, ..RuntimeSetup::default() };
    let runtime = Runtime::new(setup);
    runtime.discover(|_| {}).await.expect("there is nothing to wait for");
    runtime
}
