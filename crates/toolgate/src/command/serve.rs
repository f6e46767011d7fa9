//! `toolgate serve`: runs the gateway until a signal.
//!
//! It listens before discovery is complete, so that health checks see that it is starting. Calls are accepted once the
//! catalog is complete.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use toolgate_audit::ProjectLog;
use toolgate_config::Config;
use toolgate_runtime::questions::{QuestionQueue, Responder};
use toolgate_runtime::{ClientFeatures, Runtime};
use toolgate_server::keys::{self, KeyError, KeyStore, OwnerKey};
use toolgate_server::runs::RunService;
use toolgate_server::{CallerDirectory, Gateway, GatewayParts};
use toolgate_store::registry::Registry;
use toolgate_types::agent::AnswerPolicy;
use toolgate_types::{Caller, CallerId, Secret, ServeConfig};

use crate::cli::{AnswerMode, ProjectArgs, ServeArgs};
use crate::command::registry::{ProjectFiles, publish_to};
use crate::command::socket::CommandSocket;
use crate::command::terminal_prompts::{ApprovalInput, TerminalResponder};
use crate::command::{agent, log, project_runtime};
use crate::output::{BOLD, Output, error_with_hint, toolgate_command};
use crate::{DONE, FAILED, INVALID_CONFIG};

/// Longest wait for running calls at shutdown.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for servers to stop after a second signal.
const FORCED_STOP_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) const HELP: &str = "\
Examples:
  toolgate serve                             on 127.0.0.1:7332
  toolgate serve --listen 127.0.0.1:0        on a free port, which is printed
  toolgate serve --json | jq -r .url         for scripts: one line when it is ready
  curl -H \"X-API-Key: $KEY\" http://127.0.0.1:7332/v1/tools

The owner key is read from TOOLGATE_API_KEY. Without it, a key is created at the first start, shown
once, and stored as a hash in .toolgate/keys.json. See docs/serve.md for endpoints and permissions.

SIGHUP reloads the files and reconnects failed servers at once.
SIGTERM and Ctrl-C stop accepting calls and wait up to 30 seconds for running ones; a second signal
stops at once.

Exit codes: 0 stopped, 1 failed, 78 invalid configuration.";

/// Everything the gateway is built from.
struct ServePlan {
    serve_config: ServeConfig,
    callers: CallerDirectory,
    /// Owner key, if it was created just now.
    new_owner_key: Option<Secret>,
    downloading: Vec<String>,
    files: ProjectFiles,
    /// Queue for questions to people, if they are allowed.
    question_queue: Option<Arc<QuestionQueue>>,
    /// Agent that executes tasks sent over HTTP.
    agent: Option<Arc<dyn RunService>>,
}

pub(crate) fn run(args: &ServeArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let Some((mut config, files)) = project_runtime::load_config(project, output)? else {
        return Ok(INVALID_CONFIG);
    };
    let mut plan = match build_plan(args, project, &mut config, files) {
        Ok(plan) => plan,
        Err(error) => {
            output.error(&error_with_hint(error.to_string(), error.hint()));
            return Ok(INVALID_CONFIG);
        }
    };
    let log_setup = log::LogSetup::of(&config)?;
    let collector = config.telemetry.clone();
    let agent = (std::mem::take(&mut config.agent), config.name.clone(), agent::run_store(&config));
    // The agent may pass questions of servers to people even without the built-in tool.
    let asks = [agent.0.sampling, agent.0.elicitation].contains(&AnswerPolicy::Ask);
    let question_timeout = config.builtins.human_input.map(|human_input| human_input.timeout);
    let question_timeout = question_timeout.or(asks.then_some(agent::QUESTION_TIMEOUT));
    // People answer over HTTP. The terminal shows the URLs of logins.
    let terminal: Arc<dyn Responder> =
        Arc::new(TerminalResponder::new(AnswerMode::Decline, ApprovalInput::Line));
    let question_queue = question_timeout
        .map(|question_timeout| QuestionQueue::new(question_timeout, true, vec![Arc::clone(&terminal)]));
    let responder = question_queue.clone().map_or(terminal, |queue| queue as Arc<dyn Responder>);
    let mut setup = project_runtime::runtime_setup_with(config, responder, question_queue.as_ref(), |_| true);
    setup.history = log_setup.history();
    setup.log = Some(log_setup.open(log::CallVolume::Many)?);
    setup.forwarded_features = Some(ClientFeatures::all_capabilities());
    plan.question_queue = question_queue;
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let listen = plan.serve_config.listen;
        let listener = toolgate_server::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
        let mut signals = StopSignals::new()?;
        // Registered before discovery: an unhandled SIGHUP would end the process.
        let mut reloads = signal(SignalKind::hangup())?;
        setup.spans = project_runtime::span_exporter(collector)?;
        let runtime = Arc::new(Runtime::new(setup));
        let (agent_config, name, runs) = agent;
        plan.agent =
            agent::agent_service(agent_config, name, runs, (&runtime, plan.question_queue.as_ref()), output);
        let signals = (&mut signals, &mut reloads);
        let ended = serve(&plan, listener, &runtime, (project, log_setup.log()), output, signals).await?;
        match ended {
            ServeEnd::AtOnce => drop(timeout(FORCED_STOP_TIMEOUT, runtime.stop()).await),
            ServeEnd::With(_) => runtime.stop().await,
        }
        Ok(match ended {
            ServeEnd::AtOnce => FAILED,
            ServeEnd::With(code) => code,
        })
    })
}

/// End of the gateway process.
enum ServeEnd {
    /// Normally, with this exit code.
    With(u8),
    /// By a second signal, without waiting.
    AtOnce,
}

fn build_plan(
    args: &ServeArgs,
    project: &ProjectArgs,
    config: &mut Config,
    files: ProjectFiles,
) -> Result<ServePlan, KeyError> {
    let given = std::env::var(keys::KEY_VARIABLE).ok();
    if let Some(given) = given.as_ref().filter(|given| !given.is_empty()) {
        // Masks the key in logs and records.
        config.secrets.push(Secret::new(given.clone()));
    }
    let mut keys = std::mem::take(&mut config.caller_keys);
    let mut new_owner_key = None;
    let owner: CallerId = Caller::owner().id;
    if given.is_some() || keys.iter().all(|(id, _)| *id != owner) {
        let OwnerKey { hash, generated: new } =
            keys::load_owner_key(given.as_deref(), &project.folder.join(".toolgate"))?;
        if let Some((id, _)) = keys.iter().find(|(id, key)| *key == hash && *id != owner) {
            return Err(KeyError::Duplicate(id.clone()));
        }
        keys.push((owner, hash));
        new_owner_key = new;
    }
    let mut serve_config = config.serve.clone();
    serve_config.listen = args.listen.unwrap_or(serve_config.listen);
    let callers = CallerDirectory {
        callers: config.callers.clone(),
        keys,
        certificates: std::mem::take(&mut config.caller_certificates),
        key_store: Some(KeyStore::new(&project.folder.join(".toolgate"))),
        policy_callers: config.policy.as_ref().map(|policy| policy.rules.named_callers()).unwrap_or_default(),
        descriptions: config.caller_descriptions.clone(),
    };
    Ok(ServePlan {
        serve_config,
        callers,
        new_owner_key,
        downloading: project_runtime::downloading_servers(config),
        files,
        question_queue: None,
        agent: None,
    })
}

async fn serve(
    plan: &ServePlan,
    listener: TcpListener,
    runtime: &Arc<Runtime>,
    (project, log): (&ProjectArgs, ProjectLog),
    output: &Output,
    (signals, reloads): (&mut StopSignals, &mut Signal),
) -> anyhow::Result<ServeEnd> {
    let address = listener.local_addr()?;
    // Opened before discovery, because the gateway needs it. The actor, which runs after discovery, finds edits made
    // until then.
    let publish = publish_to(runtime, output);
    let opened = plan.files.clone().open(Arc::clone(&publish)).await;
    let failed = |error: &_| output.message(&format!("file changes are ignored: {error}\n"));
    let (registry, actor) = opened.inspect_err(failed).ok().unzip();
    let parts = GatewayParts {
        registry: registry.clone(),
        questions: plan.question_queue.clone(),
        runs: plan.agent.clone(),
        ..GatewayParts::new(Arc::clone(runtime), plan.serve_config.clone(), plan.callers.clone(), log)
    };
    let gateway = match Gateway::new(parts) {
        Ok(gateway) => gateway,
        Err(error) => {
            output.error(&error_with_hint(error.to_string(), error.hint()));
            return Ok(ServeEnd::With(INVALID_CONFIG));
        }
    };
    let scheme = if plan.serve_config.tls.is_some() { "https" } else { "http" };
    let start = async {
        match project_runtime::discover(runtime, &plan.downloading, output).await {
            Ok(errors) if errors.is_empty() => {}
            Ok(errors) => return Ok(project_runtime::report_errors(&errors, output)),
            Err(code) => return Ok(code),
        }
        if let Some(registry) = &registry {
            publish(registry.state()).await;
        }
        let changes = async {
            if let Some(actor) = actor {
                actor.run().await;
            }
            std::future::pending().await
        };
        gateway.open();
        print_greeting(plan, &format!("{scheme}://{address}"), project, output)?;
        tokio::select! {
            never = runtime.watch_servers() => match never {},
            never = prepare_schemas(runtime, &gateway) => match never {},
            never = changes => match never {},
            never = reload(registry, runtime, reloads, output) => match never {},
        }
    };
    let stop = async {
        signals.next().await;
        output.message(&format!("stopping: no new calls are accepted, {} running\n", gateway.active_calls()));
        tokio::select! {
            ended = gateway.drain(DRAIN_TIMEOUT) => {
                if !ended {
                    output.message(&format!("stopped: {} calls were still running\n", gateway.active_calls()));
                }
                ServeEnd::With(DONE)
            }
            () = signals.next() => {
                output.message("stopped at once\n");
                ServeEnd::AtOnce
            }
        }
    };
    let mut socket = open_socket(project, output);
    let at_machine = socket.as_mut().and_then(|socket| socket.listener.take());
    let serving = async {
        let commands = async {
            if let Some(listener) = at_machine {
                gateway.serve_socket(listener).await;
            }
        };
        tokio::join!(gateway.serve(listener), commands);
        // Drained: `stop` returns the exit code.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        code = start => code.map(ServeEnd::With),
        ended = stop => Ok(ended),
        () = serving => unreachable!("it waits for ever"),
    }
}

/// Reloads the files on SIGHUP and reconnects failed servers at once.
async fn reload(
    registry: Option<Registry>,
    runtime: &Arc<Runtime>,
    reloads: &mut Signal,
    output: &Output,
) -> std::convert::Infallible {
    while reloads.recv().await.is_some() {
        let Some(registry) = &registry else {
            output.message(
                "not reloaded: file changes are ignored, because the registry could not be opened\n",
            );
            continue;
        };
        let state = registry.reload().await;
        match &state.rejection {
            None => output.message(&format!("reloaded: the registry is at revision {}\n", state.rev)),
            Some(problems) => {
                let first = problems.0.first().map_or("", |problem| &problem.message);
                output.message(&format!("not reloaded, the old configuration stays active: {first}\n"));
            }
        }
        for server in runtime.servers().iter().filter(|server| server.retry_in_ms.is_some()) {
            runtime.reconnect(&server.name).await;
        }
    }
    std::future::pending().await
}

/// Opens the socket for commands. Without it, commands change the files, which are watched.
fn open_socket(project: &ProjectArgs, output: &Output) -> Option<CommandSocket> {
    match CommandSocket::listen(&project.folder) {
        Ok(Some(socket)) => Some(socket),
        Ok(None) => {
            output.message("note: another `toolgate serve` runs for this project; commands go to that one\n");
            None
        }
        Err(error) => {
            output.message(&format!(
                "note: no command socket, so commands change the files directly: {error}\n"
            ));
            None
        }
    }
}

/// Compiles schemas ahead of the first call, after each change of the catalog.
async fn prepare_schemas(runtime: &Arc<Runtime>, gateway: &Arc<Gateway>) -> std::convert::Infallible {
    let mut changes = runtime.changes();
    loop {
        let (ready, gateway) = (Arc::clone(runtime), Arc::clone(gateway));
        let making = move || {
            ready.compile_schemas();
            gateway.prepare();
        };
        if let Err(error) = tokio::task::spawn_blocking(making).await {
            tracing::error!("cannot compile schemas: {error}");
        }
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Prints the URL and, if it is new, the owner key.
fn print_greeting(plan: &ServePlan, url: &str, project: &ProjectArgs, output: &Output) -> anyhow::Result<()> {
    let key = plan.new_owner_key.as_ref().map(Secret::expose);
    if output.json {
        let mut document = json!({ "url": url, "address": url.split("://").last() });
        if let Some(key) = key {
            document["apiKey"] = key.into();
        }
        return output.json_line(&document);
    }
    output.result(&format!(
        "listening on {BOLD}{url}{BOLD:#}: MCP at /mcp, REST at /v1, API reference at /v1/docs\n"
    ));
    let shown = match key {
        Some(key) => {
            output.result(&format!(
                "owner key (shown only once):\n  {key}\nits hash is stored in .toolgate/keys.json\n"
            ));
            key
        }
        None => "KEY",
    };
    let toolgate = toolgate_command(&project.folder);
    output.next_step(&format!(
        "try one of these; Ctrl-C stops the gateway\n  \
         curl -H \"X-API-Key: {shown}\" {url}/v1/tools\n  \
         {toolgate} run \"…\"                # an agent with these tools; it needs no model\n  \
         {toolgate} connect claude-code    # or vscode, cursor, claude-desktop, codex"
    ));
    Ok(())
}

/// Receives SIGTERM and Ctrl-C.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
