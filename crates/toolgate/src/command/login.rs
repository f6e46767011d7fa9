//! `toolgate servers login NAME` and `toolgate servers logout NAME`, with the browser for both.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context as _;
use serde_json::json;
use toolgate_app::{Caller, LoginPage, LogoutOutcome, Responder, TokenSource, with_browser};
use toolgate_redact::printable;

use crate::cli::{LoginArgs, ProjectArgs};
use crate::command::app::INTERRUPTED;
use crate::command::credentials;
use crate::command::terminal_prompts::TerminalResponder;
use crate::output::{BOLD, Output, safe_text};
use crate::owner_key;
use crate::{DONE, INVALID_CONFIG};

pub(crate) fn login(args: &LoginArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let LoginArgs { name, caller } = args;
    let responder: Arc<dyn Responder> = Arc::new(TerminalResponder::for_login());
    let Some(tokens) = server_tokens(args, Some(&responder), project, output)? else {
        return Ok(INVALID_CONFIG);
    };
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
        output.document(&json!({ "server": name, "caller": caller, "loggedIn": true }))?;
        return Ok(DONE);
    }
    let for_caller = for_caller(caller);
    output.result(&format!("logged in to {BOLD}{name}{BOLD:#}{for_caller}\n"));
    output.next_step(&format!("see its tools with `toolgate servers show {name}`"));
    Ok(DONE)
}

pub(crate) fn logout(args: &LoginArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let LoginArgs { name, caller } = args;
    let Some(tokens) = server_tokens(args, None, project, output)? else { return Ok(INVALID_CONFIG) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let outcome = runtime.block_on(tokens.logout());
    let LogoutOutcome { removed, revoked } =
        outcome.with_context(|| format!("cannot log out of MCP server `{name}`"))?;
    if output.json {
        output.document(&json!({
            "server": name, "caller": caller, "loggedIn": false, "forgotten": removed, "revoked": revoked }))?;
    } else if removed {
        let revoked =
            if revoked { "revoked and deleted" } else { "deleted; the server offers no revocation" };
        let for_caller = for_caller(caller);
        output.result(&format!("logged out of {BOLD}{name}{BOLD:#}{for_caller}; its tokens are {revoked}\n"));
    } else {
        output.result(&format!("no tokens are stored for {BOLD}{name}{BOLD:#}{}\n", for_caller(caller)));
    }
    Ok(DONE)
}

fn for_caller(caller: &str) -> String {
    if caller == Caller::OWNER { String::new() } else { format!(" as {BOLD}{}{BOLD:#}", printable(caller)) }
}

/// Returns the tokens of a caller for a server; `None` if the configuration is invalid.
fn server_tokens(
    LoginArgs { name, caller }: &LoginArgs,
    responder: Option<&Arc<dyn Responder>>,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<Option<Arc<TokenSource>>> {
    let Some((config, stored)) = credentials::open(project, output)? else { return Ok(None) };
    let caller = credentials::find_caller(caller, &config, project)?;
    let mut logins = stored.login_options();
    logins.any_browser = true;
    if let Some(responder) = responder {
        logins = with_browser(logins, responder);
    }
    let tokens = toolgate_app::server_tokens(&config, name, &caller, &logins);
    tokens.map(Some).map_err(credentials::with_hint)
}

/// Returns the state folder of the user.
pub(crate) fn user_state() -> Option<PathBuf> {
    toolgate_app::user_state_folder(&owner_key::environment())
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
