//! `toolgate servers login NAME` and `toolgate servers logout NAME`, with the browser for both.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context as _;
use serde_json::json;
use toolgate_app::{LoginOptions, LoginPage, Responder, TokenSource, login_options};
use toolgate_config::{LoadOutcome, load};
use toolgate_redact::printable;

use crate::cli::ProjectArgs;
use crate::command::app::INTERRUPTED;
use crate::command::terminal_prompts::TerminalResponder;
use crate::output::{BOLD, Output, safe_text};
use crate::owner_key;
use crate::{DONE, INVALID_CONFIG};

pub(crate) fn login(name: &str, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let responder: Arc<dyn Responder> = Arc::new(TerminalResponder::for_login());
    let logins = login_options(token_folder(), &responder);
    let Some(tokens) = server_tokens(name, project, output, &logins)? else { return Ok(INVALID_CONFIG) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = tokens.login(None) => done.map(|()| true),
            _ = tokio::signal::ctrl_c() => Ok(false),
        }
    });
    if !done.with_context(|| format!("cannot log in to MCP server `{name}`"))? {
        output.message("interrupted: nothing was changed\n");
        return Ok(INTERRUPTED);
    }
    if output.json {
        output.document(&json!({ "server": name, "loggedIn": true }))?;
    } else {
        output.result(&format!("logged in to {BOLD}{name}{BOLD:#}\n"));
        output.next_step(&format!("see its tools with `toolgate servers show {name}`"));
    }
    Ok(DONE)
}

pub(crate) fn logout(name: &str, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let logins = LoginOptions { folder: token_folder(), browser: None };
    let Some(tokens) = server_tokens(name, project, output, &logins)? else { return Ok(INVALID_CONFIG) };
    let forgotten =
        tokens.remove_tokens().with_context(|| format!("cannot log out of MCP server `{name}`"))?;
    if output.json {
        output.document(&json!({ "server": name, "loggedIn": false, "forgotten": forgotten }))?;
    } else if forgotten {
        output.result(&format!("logged out of {BOLD}{name}{BOLD:#}; its tokens are deleted\n"));
    } else {
        output.result(&format!("no tokens are stored for {BOLD}{name}{BOLD:#}\n"));
    }
    Ok(DONE)
}

/// Returns the token source of a server; `None` if the configuration is invalid.
fn server_tokens(
    name: &str,
    project: &ProjectArgs,
    output: &Output,
    logins: &LoginOptions,
) -> anyhow::Result<Option<TokenSource>> {
    let LoadOutcome { config, report } =
        load(&project.folder, project.file.as_deref(), &owner_key::environment());
    let Some(config) = config else {
        output.message(&report.render());
        output.next_step("run `toolgate check` to see the problems; nothing was started");
        return Ok(None);
    };
    Ok(Some(toolgate_app::server_tokens(&config, name, logins)?))
}

/// Returns the folder of the tokens, in the user's state directory.
pub(crate) fn token_folder() -> Option<PathBuf> {
    toolgate_app::token_folder(&owner_key::environment())
}

/// Prints the login URL and tries to open it in a browser.
pub(crate) fn open(page: &LoginPage) {
    let (server, url) = (printable(&page.server), page.url.as_str());
    let mut text = format!("log in to MCP server `{server}` at:\n  {url}\n");
    if let Some(host) = &page.other_host {
        text.push_str(&format!(
            "the server names this page; its host is `{host}`, check it before you log in\n"
        ));
    }
    let _ = std::io::stderr().write_all(safe_text(&text).as_bytes());
    let program = browser()
        .unwrap_or_else(|| vec![if cfg!(target_os = "macos") { "open" } else { "xdg-open" }.to_owned()]);
    let (program, arguments) = program.split_first().expect("a browser has a name");
    let placed = arguments.iter().any(|argument| argument.contains("%s"));
    #[expect(clippy::disallowed_methods, reason = "a browser outlives us")]
    let mut command = std::process::Command::new(program);
    command.args(arguments.iter().map(|argument| argument.replace("%s", url)));
    command.args((!placed).then_some(url));
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}

/// Returns the first command in `BROWSER`, with its arguments.
pub(crate) fn browser() -> Option<Vec<String>> {
    let browsers = env::var("BROWSER").ok()?;
    let words: Vec<_> = browsers.split(':').next()?.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}
