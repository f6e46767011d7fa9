//! What a turn of the agent costs beside the model and the tool: a model that answers at once, a tool that does nothing,
//! the journal and the road included. `cargo xtask bench agent` runs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, json};
use tokio::time::Instant;
use toolgate_agent::model::{Given, Heard, Model, ModelError, Part, Reply, Request, Stop, ToolCall, Usage};
use toolgate_agent::run::{Agent, Hands};
use toolgate_agent::{Reason, Runs, Skills};
use toolgate_audit::redact::Redactor;
use toolgate_runtime::runtime::Setup;
use toolgate_runtime::{Builtin, Logins, Nobody, NobodyApproves, Policy, Raw, Runtime};
use toolgate_types::agent::{AgentRules, Budgets};
use toolgate_types::egress::EgressRules;
use toolgate_types::{ByteSize, Caller, HumanDuration, Limits, OnCollision};

/// Turns of one run: a conversation grows with each.
const TURNS: u32 = 50;
const RUNS: u32 = 20;
/// The bar of a turn.
const BAR: Duration = Duration::from_millis(1);

/// Wants a call, as often as it is told to, and then has an answer.
struct Instantly {
    left: AtomicU32,
}

impl Model for Instantly {
    fn name(&self) -> &str {
        "instantly"
    }

    fn reply<'a>(
        &'a self,
        _request: &'a Request,
        _heard: &'a mut (dyn FnMut(Heard) + Send),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let left = self.left.fetch_sub(1, Ordering::Relaxed);
        let call = ToolCall {
            id: format!("c{left}"),
            name: "nothing".to_owned(),
            arguments: Given::Object(Map::new()),
            seal: None,
        };
        let (calls, stop) = if left > 0 { (vec![call], Stop::Calls) } else { (Vec::new(), Stop::Done) };
        let reply = Reply { text: "words".to_owned(), calls, stop, usage: Usage::default() };
        Box::pin(async move { Ok(reply) })
    }
}

#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
fn main() -> std::process::ExitCode {
    let folder = tempfile::tempdir().expect("there is room");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
    let runtime = Arc::new(tokio.block_on(started()));
    let mut times: Vec<Duration> = (0..RUNS).map(|_| tokio.block_on(one(&runtime, folder.path()))).collect();
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let met = if median <= BAR { "met" } else { "missed" };
    println!("a turn with one call: median {median:.1?}, worst run {worst:.1?}, bar {BAR:?}: {met}");
    if median <= BAR { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

/// One run; how long each of its turns took.
async fn one(runtime: &Arc<Runtime>, folder: &std::path::Path) -> Duration {
    let budgets = Budgets { calls: TURNS + 1, ..Budgets::default() };
    let agent = Agent {
        hands: Hands::Road(Arc::clone(runtime)),
        model: Arc::new(Instantly { left: AtomicU32::new(TURNS) }),
        rules: AgentRules { budgets, ..AgentRules::default() },
        name: None,
        skills: Skills::default(),
        runs: Runs::of(folder, Redactor::new(Vec::new(), Vec::new())),
        desk: None,
        record: None,
    };
    let mut run = agent.begin(Caller::owner()).expect("it is written down");
    let began = Instant::now();
    let ended = run.ask(vec![Part::Text { text: "go".to_owned() }], &|_| {}).await;
    assert_eq!((ended.reason, ended.spent.calls), (Reason::Done, TURNS), "{ended:?}");
    began.elapsed() / (TURNS + 1)
}

async fn started() -> Runtime {
    let name = "nothing".parse().expect("a name");
    let schema = Raw::of(&json!({ "type": "object" }));
    let reply = json!({ "content": [{ "type": "text", "text": "done" }] });
    let nothing = Builtin::query(name, "Does nothing.", schema, move |_| {
        let reply = Raw::of(&reply);
        Box::pin(async move { Ok(reply) })
    });
    let limits = Limits {
        max_concurrent: std::num::NonZeroU32::MIN,
        default_timeout: HumanDuration::from_secs(30),
        max_output: ByteSize::from_mib(4),
        on_collision: OnCollision::Qualify,
    };
    let setup = Setup {
        apis: Vec::new(),
        read_document: |_| Err(String::new()),
        builtins: vec![nothing],
        own: Vec::new(),
        settings: Vec::new(),
        servers: Vec::new(),
        limits,
        logins: Logins { folder: None, person: None },
        questions: Arc::new(Nobody),
        lock: None,
        secrets: Vec::new(),
        callers: Vec::new(),
        policy: Policy::new(None),
        approver: Arc::new(NobodyApproves),
        egress: EgressRules::default(),
        results: None,
        profiles: Arc::default(),
    };
    let runtime = Runtime::new(setup);
    runtime.discover(|_| {}).await.expect("there is nothing to wait for");
    runtime
}
