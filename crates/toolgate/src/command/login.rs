//! `toolgate servers login NAME`, `toolgate servers logout NAME`, and the browser for both.

use std::env;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::json;
use toolgate_config::{Environment, Loaded, load};
use toolgate_upstream::connect::tokens;
use toolgate_upstream::{Logins, Person, TokenSource};

use crate::cli::Project;
use crate::command::live::INTERRUPTED;
use crate::output::{BOLD, Output};
use crate::{DONE, REFUSED};

/// How long a person may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// What logins need: somebody at the terminal, or a program that stands for a browser.
pub(crate) fn logins() -> Logins {
    let there = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    Logins { folder: folder(), person: (there || browser().is_some()).then(person) }
}

pub(crate) fn login(name: &str, project: &Project, output: &Output) -> anyhow::Result<u8> {
    // Whoever says this is there.
    let logins = Logins { folder: folder(), person: Some(person()) };
    let Some(tokens) = of_server(name, project, output, &logins)? else { return Ok(REFUSED) };
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
        output.next(&format!("`toolgate servers show {name}` says what it offers"));
    }
    Ok(DONE)
}

pub(crate) fn logout(name: &str, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let logins = Logins { folder: folder(), person: None };
    let Some(tokens) = of_server(name, project, output, &logins)? else { return Ok(REFUSED) };
    let forgotten = tokens.forget().with_context(|| format!("cannot log out of MCP server `{name}`"))?;
    if output.json {
        output.document(&json!({ "server": name, "loggedIn": false, "forgotten": forgotten }))?;
    } else if forgotten {
        output.result(&format!("logged out of {BOLD}{name}{BOLD:#}; its tokens are forgotten here\n"));
    } else {
        output.result(&format!("there were no tokens for {BOLD}{name}{BOLD:#}\n"));
    }
    Ok(DONE)
}

/// The tokens of a server of the project; `None` where the project is refused.
fn of_server(
    name: &str,
    project: &Project,
    output: &Output,
    logins: &Logins,
) -> anyhow::Result<Option<TokenSource>> {
    let Loaded { config, report } =
        load(&project.folder, project.file.as_deref(), &Environment::of_process());
    let Some(config) = config else {
        output.message(&report.render());
        output.next("`toolgate check` shows what is wrong; nothing was started");
        return Ok(None);
    };
    let Some(server) = config.servers.iter().find(|server| server.name.as_str() == name) else {
        bail!("there is no MCP server `{name}`; `toolgate servers` lists them");
    };
    match tokens(server, logins) {
        Some(tokens) => Ok(Some(tokens)),
        None => bail!(
            "MCP server `{name}` is not one to log in to: it is reached without HTTP, or its `headers` hold a token"
        ),
    }
}

/// Where tokens are kept: the user's folder for state.
fn folder() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| env::home_dir().map(|home| home.join(".local/state")))?;
    Some(state.join("toolgate/tokens"))
}

fn person() -> Person {
    Person { open: Arc::new(open), patience: PATIENCE }
}

/// Shows where to log in, and opens it where that works: the address is always printed.
fn open(server: &str, url: &str) {
    let _ = writeln!(std::io::stderr(), "log in to MCP server `{server}` at:\n  {url}");
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

/// The first browser that `BROWSER` names, with its arguments.
fn browser() -> Option<Vec<String>> {
    let browsers = env::var("BROWSER").ok()?;
    let words: Vec<_> = browsers.split(':').next()?.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty()).then_some(words)
}
