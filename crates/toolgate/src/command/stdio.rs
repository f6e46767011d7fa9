//! `toolgate stdio`: the gateway on stdin and stdout, for clients that start their MCP servers as child processes.
//!
//! Invariant: only protocol messages go to stdout.

use std::sync::Arc;

use tokio::io::{stdin, stdout};
use toolgate_mcp::scan::ScanLimits;
use toolgate_mcp::transport::lines;
use toolgate_runtime::{ClientFeatures, Runtime};
use toolgate_server::{CallerDirectory, Gateway, GatewayParts};
use toolgate_types::ServeConfig;
use toolgate_types::server::OutputEncoding;

use super::serve::{DRAIN_TIMEOUT, StopSignals};
use crate::cli::{AnswerMode, ProjectArgs, StdioArgs};
use crate::command::{log, profiles, project_runtime, tools};
use crate::output::Output;
use crate::{DONE, INVALID_CONFIG};

pub(crate) const HELP: &str = "\
Examples:
  toolgate connect claude-code        add an entry that runs this command
  toolgate -C my-project stdio        the command of such an entry
  toolgate stdio --as assistant       with the permissions of that caller
  toolgate stdio --profile coding     with the tools of a profile of toolgate.yaml

Supports every MCP revision, one message per line. Ends when stdin ends. Messages for people go to
stderr. CallVolume are recorded in the execution log of the project.

Exit codes: 0 the client disconnected, 1 failed, 78 invalid configuration.";

/// Nesting depth of a message.
const MAX_DEPTH: usize = 64;

pub(crate) fn run(args: &StdioArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let Some((config, files)) = project_runtime::load_config(project, output)? else {
        return Ok(INVALID_CONFIG);
    };
    let log_setup = log::LogSetup::of(&config)?;
    // The process that holds the pipes is the caller: no TLS and no tokens are needed.
    let serve_config = ServeConfig { tls: None, jwt: Vec::new(), ..config.serve.clone() };
    let collector = config.telemetry.clone();
    let downloading = project_runtime::downloading_servers(&config);
    let mut setup = project_runtime::runtime_setup(config, AnswerMode::Decline, |_| true);
    setup.history = log_setup.history();
    setup.log = Some(log_setup.open(log::CallVolume::Many)?);
    setup.forwarded_features = Some(ClientFeatures::all_capabilities());
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = tokio.block_on(async {
        let mut signals = StopSignals::new()?;
        setup.spans = project_runtime::span_exporter(collector)?;
        let runtime = Arc::new(Runtime::new(setup));
        let caller = tools::find_caller(&runtime, &args.caller)?;
        let profile = profiles::validate_name(&runtime, &caller.id, args.profile.as_deref())?;
        let size = usize::try_from(serve_config.max_body.bytes()).unwrap_or(usize::MAX);
        let callers = CallerDirectory::default();
        let gateway =
            Gateway::new(GatewayParts::new(Arc::clone(&runtime), serve_config, callers, log_setup.log()))?;
        let link =
            lines::open(stdin(), stdout(), OutputEncoding::Utf8, ScanLimits { size, depth: MAX_DEPTH });
        // Requests that arrive before discovery is complete wait for it.
        let start = async {
            match project_runtime::discover(&runtime, &downloading, output).await {
                Ok(errors) if errors.is_empty() => {}
                Ok(errors) => return Ok(project_runtime::report_errors(&errors, output)),
                Err(code) => return Ok(code),
            }
            let registry = files.open_for(&runtime, output).await;
            let changes = async {
                if let Some((_, actor)) = registry {
                    actor.run().await;
                }
                std::future::pending().await
            };
            gateway.open();
            tokio::select! {
                never = runtime.watch_servers() => match never {},
                never = changes => never,
            }
        };
        let code = tokio::select! {
            code = start => code,
            () = gateway.serve_link(caller, profile, link) => Ok(DONE),
            () = signals.next() => {
                gateway.drain(DRAIN_TIMEOUT).await;
                Ok(DONE)
            }
        };
        runtime.stop().await;
        code
    });
    // A blocking read of stdin may never return, so the runtime is not awaited.
    tokio.shutdown_background();
    code
}
