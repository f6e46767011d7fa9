//! `toolgate connect CLIENT`: adds Toolgate to the MCP servers of another program, or removes it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;
use similar::TextDiff;
use toolgate_config::ClientProgram;
use toolgate_config::connect::{self, ConnectError, ConnectMethod, KEY_VARIABLE, Scope};
use toolgate_redact::printable;

use crate::DONE;
use crate::cli::{ConnectArgs, ConnectScope, ProjectArgs};
use crate::command::import::write_atomically;
use crate::command::take_over;
use crate::output::{BOLD, Output, display_path, error_with_hint};
use crate::owner_key;

pub(crate) const HELP: &str = "\
Examples:
  toolgate connect vscode                       for you, in every folder
  toolgate connect claude-code --scope project  for everyone in this folder, in .mcp.json
  toolgate connect codex --dry-run              show the difference, write nothing
  toolgate -C ~/gate connect cursor --http http://127.0.0.1:7332/mcp
  toolgate connect vscode --profile coding      with the tools of a profile of toolgate.yaml
  toolgate connect vscode --remove              remove the entry
  toolgate connect cursor --take-over           move the servers of Cursor behind Toolgate
  toolgate connect cursor --undo                move them back

Without `--http`, the client starts `toolgate stdio` for the project of `-C`. With it, the client sends
the key in TOOLGATE_API_KEY of its own environment; no key is written. Only the entry of Toolgate
changes. An entry of the same name that does not belong to Toolgate is kept unless `--force` is given.
With `--take-over`, the other servers of the client move to mcp.json: none is there twice, and no call
goes around the log. The files as they were are kept in .toolgate until `--undo`.

Exit codes: 0 done or nothing to do, 1 rejected or not written, 2 wrong usage.";

pub(crate) fn run(args: &ConnectArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    if args.undo {
        return take_over::undo(args.client.client(), project, output);
    }
    if args.take_over {
        return take_over::run(args, project, output);
    }
    let environment = owner_key::environment();
    let client = args.client.client();
    let scope = match args.scope {
        ConnectScope::User => Scope::User,
        ConnectScope::Project => Scope::Project,
    };
    let here = std::env::current_dir().context("there is no current folder")?;
    let path = connect::config_path(client, scope, &here, &environment)
        .map_err(|error| connect_error(error, args))?;
    let before = path.is_file().then(|| fs_err::read_to_string(&path)).transpose()?;
    let text = before.as_deref().unwrap_or_default();
    let after = if args.remove {
        connect::disconnect(client, text, &args.name, args.force).map(|text| text.or(before.clone()))
    } else {
        connect_method(args, project)
            .and_then(|way| Ok(Some(connect::connect(client, text, &args.name, &way, args.force)?)))
    };
    let after = after
        .map_err(|error| connect_error(error, args))
        .with_context(|| format!("{} was not changed", display_path(&path)))?;
    let changed = after != before;
    if let Some(after) = after.as_deref().filter(|_| changed && !args.dry_run) {
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder)?;
        }
        write_atomically(&path, before.as_deref(), after)?;
    }
    print_result(
        args,
        client,
        &path,
        changed,
        &difference(text, after.as_deref().unwrap_or_default()),
        output,
    )
}

pub(crate) fn connect_method(
    args: &ConnectArgs,
    project: &ProjectArgs,
) -> Result<ConnectMethod, ConnectError> {
    if let Some(url) = &args.http {
        let url = match &args.profile {
            Some(profile) => format!("{}/{profile}", url.trim_end_matches('/')),
            None => url.clone(),
        };
        return Ok(ConnectMethod::Http { url });
    }
    let text = |path: &Path| {
        let whole = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        whole.display().to_string()
    };
    let mut arguments = vec!["-C".to_owned(), text(&project.folder)];
    if let Some(file) = &project.file {
        arguments.extend(["--file".to_owned(), text(file)]);
    }
    arguments.push("stdio".to_owned());
    if let Some(profile) = &args.profile {
        arguments.extend(["--profile".to_owned(), profile.to_string()]);
    }
    // Graphical clients often run without the user's PATH.
    let command = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("toolgate"));
    Ok(ConnectMethod::Stdio { command: command.display().to_string(), arguments })
}

/// Returns the changed lines without context, because other lines may contain secrets.
pub(crate) fn difference(before: &str, after: &str) -> String {
    let difference = TextDiff::from_lines(before, after);
    difference.unified_diff().context_radius(0).missing_newline_hint(false).to_string()
}

fn print_result(
    args: &ConnectArgs,
    client: ClientProgram,
    path: &Path,
    changed: bool,
    difference: &str,
    output: &Output,
) -> anyhow::Result<u8> {
    let file = display_path(path);
    if output.json {
        output.document(&json!({
            "ok": true,
            "client": client.label(),
            "name": args.name,
            "file": file,
            "connected": !args.remove,
            "changed": changed,
            "written": changed && !args.dry_run,
            "diff": difference,
        }))?;
        return Ok(DONE);
    }
    let name = printable(&args.name);
    let outcome = match (args.remove, changed, args.dry_run) {
        (false, false, _) => "is already in",
        (true, false, _) => "is not in",
        (false, true, true) => "would be written to",
        (false, true, false) => "was written to",
        (true, true, true) => "would be removed from",
        (true, true, false) => "was removed from",
    };
    if args.dry_run {
        output.result(difference);
    }
    output.message(&format!("{BOLD}{name}{BOLD:#} {outcome} {file}\n"));
    let next = match (args.remove, args.dry_run && changed, &args.http) {
        (_, true, _) => "run it again without `--dry-run` to write this".to_owned(),
        (true, ..) => "restart the client if it still shows the tools".to_owned(),
        (false, false, Some(_)) => {
            format!("run `toolgate serve`, and start the client with {KEY_VARIABLE} in its environment")
        }
        (false, false, None) => "restart the client; it starts Toolgate when it needs it".to_owned(),
    };
    output.next_step(&next);
    Ok(DONE)
}

pub(crate) fn connect_error(error: ConnectError, args: &ConnectArgs) -> anyhow::Error {
    let hint = match &error {
        ConnectError::NoProject(_) => "use `--scope user`",
        ConnectError::NoHttp(_) => "omit `--http`: the client starts `toolgate stdio` itself",
        ConnectError::Foreign(_) if args.remove => "use `--force` to remove it anyway",
        ConnectError::Foreign(_) => "use `--name` for another name, or `--force` to overwrite the entry",
        ConnectError::NoTable(_) => "edit the file by hand: the entry is not a separate table",
        ConnectError::Unknown(_)
        | ConnectError::Text(_)
        | ConnectError::Toml(_)
        | ConnectError::Yaml(_)
        | ConnectError::Shape(_) => "fix the file by hand first",
    };
    error_with_hint(chain(&error), hint)
}

/// Joins an error with its causes, because one hint covers all of them.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
