//! `toolgate serve`: the door, until a signal.
//!
//! It listens before the servers were asked what they offer, so whoever watches sees that it is starting;
//! calls are let in when all is there.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use toolgate_audit::ProjectLog;
use toolgate_config::Config;
use toolgate_runtime::Runtime;
use toolgate_runtime::desk::{AtDesk, Desk};
use toolgate_server::keys::{self, KeyError, KeyStore, OwnerKey};
use toolgate_server::runs::Runs;
use toolgate_server::{Door, Known};
use toolgate_store::registry::Registry;
use toolgate_types::agent::Answering;
use toolgate_types::{Caller, CallerId, DoorRules, Secret};

use crate::cli::{Answers, Project, ServeArgs};
use crate::command::registry::Files;
use crate::command::socket::Socket;
use crate::command::{agent, live, log};
use crate::output::{BOLD, Output, hinted, toolgate_in};
use crate::{DONE, FAILED, REFUSED};

/// How long calls that run are waited for.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);
/// How long servers may take to end where nobody wants to wait.
const HURRY: Duration = Duration::from_millis(500);

pub(crate) const HELP: &str = "\
Examples:
  toolgate serve                             on 127.0.0.1:7332
  toolgate serve --listen 127.0.0.1:0        on a port that is free, which it says
  toolgate serve --json | jq -r .url         for programs: one line when it is ready
  curl -H \"X-API-Key: $KEY\" http://127.0.0.1:7332/v1/tools

The owner's key is that in TOOLGATE_API_KEY. Without it one is made at the first start, shown once and
kept as a hash in .toolgate/keys.json. docs/serve.md says what can be asked for, and by whom.

SIGHUP reads the files again, and tries servers that are gone at once.
SIGTERM and Ctrl-C let no new calls in and wait up to 30 seconds for those that run; the second one
ends at once.

Exit codes: 0 stopped, 1 failed, 78 configuration refused.";

/// All that the door is made of.
struct Plan {
    rules: DoorRules,
    known: Known,
    /// The owner's key, where it was made just now.
    made: Option<Secret>,
    downloading: Vec<String>,
    files: Files,
    /// Where questions to people wait, where they may be asked.
    desk: Option<Arc<Desk>>,
    /// Who does the tasks that come over HTTP.
    agent: Option<Arc<dyn Runs>>,
}

pub(crate) fn run(args: &ServeArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let Some((mut config, files)) = live::config(project, output)? else { return Ok(REFUSED) };
    let mut plan = match plan(args, project, &mut config, files) {
        Ok(plan) => plan,
        Err(error) => {
            output.failure(&hinted(error.to_string(), error.hint()));
            return Ok(REFUSED);
        }
    };
    let keeping = log::Keeping::of(&config)?;
    let history = keeping.history();
    let log = keeping.open(log::Calls::Many)?;
    let collector = config.telemetry.clone();
    let agent = (std::mem::take(&mut config.agent), config.name.clone(), agent::runs(&config));
    // Servers that ask in a run of the agent are answered at the desk, too.
    let asks = [agent.0.sampling, agent.0.elicitation].contains(&Answering::Ask);
    let patience = config.builtins.human_input.map(|rules| rules.timeout);
    let patience = patience.or(asks.then_some(agent::PATIENCE));
    let desk = patience.map(|patience| Desk::new(patience, true, Vec::new()));
    let mut setup = live::setup_at(config, Answers::Decline, desk.as_ref(), |_| true);
    setup.questions = Arc::new(toolgate_upstream::Clients::default());
    if let Some(desk) = &desk {
        setup.approver = Arc::new(AtDesk(Arc::clone(desk)));
    }
    plan.desk = desk;
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let listen = plan.rules.listen;
        let listener = toolgate_server::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
        let mut signals = Signals::new()?;
        // From the start on: a signal that nobody listens to would end it.
        let mut reloads = signal(SignalKind::hangup())?;
        let runtime = Arc::new(Runtime::new(setup));
        runtime.remember(history);
        runtime.log_to(log);
        live::trace_to(&runtime, collector)?;
        let (rules, name, runs) = agent;
        plan.agent = agent::behind(rules, name, runs, (&runtime, plan.desk.as_ref()), output);
        let signals = (&mut signals, &mut reloads);
        let ended = serve(&plan, listener, &runtime, (project, keeping.log()), output, signals).await?;
        match ended {
            Ended::AtOnce => drop(timeout(HURRY, runtime.stop()).await),
            Ended::With(_) => runtime.stop().await,
        }
        Ok(match ended {
            Ended::AtOnce => FAILED,
            Ended::With(code) => code,
        })
    })
}

/// How it ended.
enum Ended {
    /// With a code.
    With(u8),
    /// Somebody did not want to wait.
    AtOnce,
}

fn plan(args: &ServeArgs, project: &Project, config: &mut Config, files: Files) -> Result<Plan, KeyError> {
    let given = std::env::var(keys::VARIABLE).ok();
    if let Some(given) = given.as_ref().filter(|given| !given.is_empty()) {
        // It may turn up in what is written down.
        config.secrets.push(Secret::new(given.clone()));
    }
    let mut keys = std::mem::take(&mut config.caller_keys);
    let mut made = None;
    let owner: CallerId = Caller::owner().id;
    if given.is_some() || keys.iter().all(|(id, _)| *id != owner) {
        let OwnerKey { hash, made: new } = keys::owner(given.as_deref(), &project.folder.join(".toolgate"))?;
        if let Some((id, _)) = keys.iter().find(|(id, key)| *key == hash && *id != owner) {
            return Err(KeyError::Taken(id.clone()));
        }
        keys.push((owner, hash));
        made = new;
    }
    let mut rules = config.serve.clone();
    rules.listen = args.listen.unwrap_or(rules.listen);
    let known = Known {
        callers: config.callers.clone(),
        keys,
        certificates: std::mem::take(&mut config.caller_certificates),
        kept: Some(KeyStore::new(&project.folder.join(".toolgate"))),
        ruled: config.policy.as_ref().map(|policy| policy.rules.callers()).unwrap_or_default(),
        descriptions: config.caller_descriptions.clone(),
    };
    Ok(Plan { rules, known, made, downloading: live::downloading(config), files, desk: None, agent: None })
}

async fn serve(
    plan: &Plan,
    listener: TcpListener,
    runtime: &Arc<Runtime>,
    (project, log): (&Project, ProjectLog),
    output: &Output,
    (signals, reloads): (&mut Signals, &mut Signal),
) -> anyhow::Result<Ended> {
    let address = listener.local_addr()?;
    let door = match Door::new(Arc::clone(runtime), &plan.rules, plan.known.clone(), log) {
        Ok(door) => door,
        Err(error) => {
            output.failure(&hinted(error.to_string(), error.hint()));
            return Ok(Ended::With(REFUSED));
        }
    };
    if let Some(desk) = &plan.desk {
        door.answer_at(Arc::clone(desk));
    }
    if let Some(agent) = &plan.agent {
        door.employ(Arc::clone(agent));
    }
    let scheme = if plan.rules.tls.is_some() { "https" } else { "http" };
    let start = async {
        match live::discover(runtime, &plan.downloading, output).await {
            Ok(errors) if errors.is_empty() => {}
            Ok(errors) => return Ok(live::tell(&errors, output)),
            Err(code) => return Ok(code),
        }
        let registry = plan.files.clone().open_for(runtime, output).await;
        if let Some((registry, _)) = &registry {
            door.manage(registry.clone());
        }
        let way = registry.as_ref().map(|(registry, _)| registry.clone());
        let changes = async {
            if let Some((_, actor)) = registry {
                actor.run().await;
            }
            std::future::pending().await
        };
        door.open();
        greet(plan, &format!("{scheme}://{address}"), project, output)?;
        tokio::select! {
            never = runtime.keep() => match never {},
            never = prepare(runtime, &door) => match never {},
            never = changes => match never {},
            never = reload(way, runtime, reloads, output) => match never {},
        }
    };
    let stop = async {
        signals.next().await;
        output.message(&format!("stopping: no new calls are let in, {} run\n", door.calls()));
        tokio::select! {
            ended = door.drain(DRAIN) => {
                if !ended {
                    output.message(&format!("stopped: {} calls took too long\n", door.calls()));
                }
                Ended::With(DONE)
            }
            () = signals.next() => {
                output.message("stopped at once\n");
                Ended::AtOnce
            }
        }
    };
    let mut socket = listen(project, output);
    let at_machine = socket.as_mut().and_then(|socket| socket.listener.take());
    let serving = async {
        let commands = async {
            if let Some(listener) = at_machine {
                door.serve_socket(listener).await;
            }
        };
        tokio::join!(door.serve(listener), commands);
        // It was drained; whoever did that says how it ended.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        code = start => code.map(Ended::With),
        ended = stop => Ok(ended),
        () = serving => unreachable!("it waits for ever"),
    }
}

/// Reads the files again whenever SIGHUP comes, and tries the servers that are gone at once.
async fn reload(
    registry: Option<Registry>,
    runtime: &Arc<Runtime>,
    reloads: &mut Signal,
    output: &Output,
) -> std::convert::Infallible {
    while reloads.recv().await.is_some() {
        let Some(registry) = &registry else {
            output.message("not reloaded: changes of the files are not taken over here\n");
            continue;
        };
        let state = registry.reload().await;
        match &state.refused {
            None => output.message(&format!("reloaded: the registry is at revision {}\n", state.rev)),
            Some(problems) => {
                let first = problems.0.first().map_or("", |problem| &problem.message);
                output.message(&format!("not reloaded, all stays as it was: {first}\n"));
            }
        }
        for server in runtime.servers().iter().filter(|server| server.retry_in_ms.is_some()) {
            runtime.reconnect(&server.name).await;
        }
    }
    std::future::pending().await
}

/// The socket for commands, where there can be one. Without it they write to the files, which are looked at.
fn listen(project: &Project, output: &Output) -> Option<Socket> {
    match Socket::listen(&project.folder) {
        Ok(Some(socket)) => Some(socket),
        Ok(None) => {
            output.message("note: another `toolgate serve` runs for this project; commands go to that one\n");
            None
        }
        Err(error) => {
            output.message(&format!("note: commands write to the files, as there is no socket: {error}\n"));
            None
        }
    }
}

/// Makes ready what a first call would have to wait for, whenever the catalog has changed.
async fn prepare(runtime: &Arc<Runtime>, door: &Arc<Door>) -> std::convert::Infallible {
    let mut changes = runtime.changes();
    loop {
        let (ready, door) = (Arc::clone(runtime), Arc::clone(door));
        let making = move || {
            ready.prepare();
            door.prepare();
        };
        if let Err(error) = tokio::task::spawn_blocking(making).await {
            tracing::error!("schemas could not be made ready: {error}");
        }
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Says where it is, and by which key.
fn greet(plan: &Plan, url: &str, project: &Project, output: &Output) -> anyhow::Result<()> {
    let key = plan.made.as_ref().map(Secret::expose);
    if output.json {
        let mut document = json!({ "url": url, "address": url.split("://").last() });
        if let Some(key) = key {
            document["apiKey"] = key.into();
        }
        return output.line(&document);
    }
    output.result(&format!(
        "{BOLD}{url}{BOLD:#} is open: MCP at /mcp, REST at /v1, its description at /v1/docs\n"
    ));
    let shown = match key {
        Some(key) => {
            output.result(&format!(
                "the owner's key, which is shown this once:\n  {key}\nonly its hash is kept, in .toolgate/keys.json\n"
            ));
            key
        }
        None => "KEY",
    };
    let toolgate = toolgate_in(&project.folder);
    output.next(&format!(
        "try one of these; Ctrl-C stops it\n  \
         curl -H \"X-API-Key: {shown}\" {url}/v1/tools\n  \
         {toolgate} run \"…\"                # an agent with these tools; it needs no model\n  \
         {toolgate} connect claude-code    # or vscode, cursor, claude-desktop, codex"
    ));
    Ok(())
}

/// SIGTERM and Ctrl-C.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
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
