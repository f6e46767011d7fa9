//! `toolgate serve`: runs the gateway until a signal.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use toolgate_app::{ServeControl, ServeEnd, ServeError};
use toolgate_types::Secret;

use crate::cli::{ProjectArgs, ServeArgs};
use crate::command::{app, remote};
use crate::output::{BOLD, Output, toolgate_command};
use crate::{DONE, FAILED, INVALID_CONFIG};

pub(crate) const HELP: &str = "\
Examples:
  toolgate serve                             on 127.0.0.1:7332
  toolgate serve --listen 127.0.0.1:0        on a free port, which is printed
  toolgate serve --json | jq -r .url         for scripts: one line when it is ready
  toolgate serve --key-file owner.key        write the first owner key to a file
  curl -H \"X-API-Key: $KEY\" http://127.0.0.1:7332/v1/tools

The owner key is read from TOOLGATE_API_KEY. Without it, a key is created at the first start, shown
once (or written to --key-file), and stored as a hash in .toolgate/keys.json. A created key that was
never used is replaced at the next start. See docs/serve.md for endpoints and permissions.

SIGHUP reloads the files and reconnects failed servers at once.
SIGTERM and Ctrl-C stop accepting calls and wait up to 30 seconds for running ones; a second signal
stops at once.

Exit codes: 0 stopped, 1 failed, 78 invalid configuration.";

pub(crate) fn run(args: &ServeArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let Some(loaded) = app::load_project(project, output)? else { return Ok(INVALID_CONFIG) };
    let listen = args.listen.unwrap_or(loaded.config.serve.listen);
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let listener = toolgate_app::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
        let mut signals = StopSignals::new()?;
        // Registered before discovery: an unhandled SIGHUP would end the process.
        let mut hangups = signal(SignalKind::hangup())?;
        let gateway = match app::gateway_builder(loaded, output).build_gateway().await {
            Ok(gateway) => gateway,
            Err(error) if error.is_invalid_config() => {
                output.error(&app::app_error(error));
                return Ok(INVALID_CONFIG);
            }
            Err(error) => return Err(app::app_error(error)),
        };
        let mut owner_key = gateway.new_owner_key().cloned();
        if let Some(path) = &args.key_file {
            match owner_key.take() {
                Some(key) => {
                    write_key(path, &key)
                        .with_context(|| format!("cannot write the owner key to `{}`", path.display()))?;
                    output.message(&format!("the owner key is in {}\n", path.display()));
                }
                None => output.message("note: the owner has a key already, so none was written\n"),
            }
        }
        let control = ServeControl {
            on_open: |url: &str| {
                print_greeting(owner_key.as_ref(), url, project, output).map_err(io::Error::other)
            },
            reload: async || {
                if hangups.recv().await.is_none() {
                    std::future::pending().await
                }
            },
            stop: async || signals.next().await,
            commands: Some(remote::handler(output)),
        };
        match gateway.serve(listener, control).await {
            Ok(ServeEnd::Drained) => Ok(DONE),
            Ok(ServeEnd::Forced) => Ok(FAILED),
            Err(ServeError::Start(failure)) => Ok(app::report_failure(&failure, output)),
            Err(error @ ServeError::Io(_)) => Err(error.into()),
        }
    })
}

/// Writes a key to a file that only its owner can read. Replaces the file, and follows no link.
fn write_key(path: &Path, key: &Secret) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".owner-key").tempfile_in(folder)?;
    writeln!(file, "{}", key.expose())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Prints the URL and, if it is new, the owner key.
fn print_greeting(
    new_owner_key: Option<&Secret>,
    url: &str,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<()> {
    let key = new_owner_key.map(Secret::expose);
    if output.json {
        let mut document = json!({ "url": url, "address": url.split("://").last() });
        if let Some(key) = key {
            document["apiKey"] = key.into();
        }
        return output.json_line(&document);
    }
    output.result(&format!(
        "listening on {BOLD}{url}{BOLD:#}: console at /, MCP at /mcp, REST at /v1, API reference at /v1/docs\n"
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
         {toolgate} connect claude-code    # or vscode, cursor, codex, gemini, zed, …"
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
