//! `toolgate stdio`: the gateway over stdin and stdout, for programs that start their MCP servers themselves.
//!
//! Invariant: nothing but messages of the protocol goes to stdout.

use std::sync::Arc;

use tokio::io::{stdin, stdout};
use toolgate_mcp::scan::Limits;
use toolgate_mcp::transport::lines;
use toolgate_runtime::Runtime;
use toolgate_server::{Door, Known};
use toolgate_types::DoorRules;
use toolgate_types::server::Encoding;

use super::serve::{DRAIN, Signals};
use crate::cli::{Answers, Project, StdioArgs};
use crate::command::{live, log, profiles, tools};
use crate::output::Output;
use crate::{DONE, REFUSED};

pub(crate) const HELP: &str = "\
Examples:
  toolgate connect claude-code               write the entry that starts this
  toolgate -C my-project stdio               what such an entry runs
  toolgate stdio --as assistant              with what the project gives that caller
  toolgate stdio --profile coding            what a profile of toolgate.yaml shows, and no more

It speaks every revision of MCP, one message a line, and ends when stdin does. What it has to say goes
to stderr. Calls are in the log of the project, as all are.

Exit codes: 0 the client has left, 1 failed, 78 configuration refused.";

/// Levels of nesting in a message.
const DEPTH: usize = 64;

pub(crate) fn run(args: &StdioArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let Some((config, files)) = live::config(project, output)? else { return Ok(REFUSED) };
    let keeping = log::Keeping::of(&config)?;
    let history = keeping.history();
    let log = keeping.open(log::Calls::Many)?;
    // Whoever holds the pipes is known, so nothing is needed to know anybody by.
    let rules = DoorRules { tls: None, jwt: Vec::new(), ..config.serve.clone() };
    let collector = config.telemetry.clone();
    let downloading = live::downloading(&config);
    let mut setup = live::setup(config, Answers::Decline, |_| true);
    setup.questions = Arc::new(toolgate_upstream::Clients::default());
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = tokio.block_on(async {
        let mut signals = Signals::new()?;
        let runtime = Arc::new(Runtime::new(setup));
        let caller = tools::caller(&runtime, &args.caller)?;
        let profile = profiles::named(&runtime, &caller.id, args.profile.as_deref())?;
        runtime.remember(history);
        runtime.log_to(log);
        live::trace_to(&runtime, collector)?;
        let door = Door::new(Arc::clone(&runtime), &rules, Known::default(), keeping.log())?;
        let size = usize::try_from(rules.max_body.bytes()).unwrap_or(usize::MAX);
        let link = lines::open(stdin(), stdout(), Encoding::Utf8, Limits { size, depth: DEPTH });
        // Requests that come before the servers were asked what they offer wait for that.
        let start = async {
            match live::discover(&runtime, &downloading, output).await {
                Ok(errors) if errors.is_empty() => {}
                Ok(errors) => return Ok(live::tell(&errors, output)),
                Err(code) => return Ok(code),
            }
            let registry = files.open_for(&runtime, output).await;
            let changes = async {
                if let Some((_, actor)) = registry {
                    actor.run().await;
                }
                std::future::pending().await
            };
            door.open();
            tokio::select! {
                never = runtime.keep() => match never {},
                never = changes => never,
            }
        };
        let code = tokio::select! {
            code = start => code,
            () = door.converse(caller, profile, link) => Ok(DONE),
            () = signals.next() => {
                door.drain(DRAIN).await;
                Ok(DONE)
            }
        };
        runtime.stop().await;
        code
    });
    // Whoever reads from stdin may wait there for ever.
    tokio.shutdown_background();
    code
}
