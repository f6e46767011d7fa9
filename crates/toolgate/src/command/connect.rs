//! `toolgate connect CLIENT`: Toolgate among the MCP servers of another program, and out of them again.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;
use similar::TextDiff;
use toolgate_config::connect::{self, ConnectError, KEY_VARIABLE, Scope, Way};
use toolgate_config::{Client, Environment};
use toolgate_types::redact::printable;

use crate::DONE;
use crate::cli::{ConnectArgs, ConnectScope, Project};
use crate::command::import::write_whole;
use crate::output::{BOLD, Output, hinted, shown_path};

pub(crate) const HELP: &str = "\
Examples:
  toolgate connect vscode                      for you, in every folder
  toolgate connect claude-code --scope project for all who work in this folder, in .mcp.json
  toolgate connect codex --dry-run             show the difference, and write nothing
  toolgate -C ~/gate connect cursor --http http://127.0.0.1:7332/mcp
  toolgate connect vscode --profile coding     with what that profile of toolgate.yaml shows
  toolgate connect vscode --remove             undo it

Without `--http` the client starts `toolgate stdio` for the project of `-C`. With it the client sends
the key in TOOLGATE_API_KEY of its own environment: no key is written. Only our entry changes, byte by
byte. One of the same name that is not Toolgate's is left alone unless `--force` is given.

Exit codes: 0 done or nothing to do, 1 refused or not written, 2 wrong usage.";

pub(crate) fn run(args: &ConnectArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let environment = Environment::of_process();
    let client = args.client.client();
    let scope = match args.scope {
        ConnectScope::User => Scope::User,
        ConnectScope::Project => Scope::Project,
    };
    let here = std::env::current_dir().context("there is no current folder")?;
    let path = connect::place(client, scope, &here, &environment).map_err(|error| told(error, args))?;
    let before = path.is_file().then(|| fs_err::read_to_string(&path)).transpose()?;
    let text = before.as_deref().unwrap_or_default();
    let after = if args.remove {
        connect::disconnect(client, text, &args.name, args.force).map(|text| text.or(before.clone()))
    } else {
        way(args, project)
            .and_then(|way| Ok(Some(connect::connect(client, text, &args.name, &way, args.force)?)))
    };
    let after = after
        .map_err(|error| told(error, args))
        .with_context(|| format!("{} was not changed", shown_path(&path)))?;
    let changed = after != before;
    if let Some(after) = after.as_deref().filter(|_| changed && !args.dry_run) {
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder)?;
        }
        write_whole(&path, before.as_deref(), after)?;
    }
    tell(args, client, &path, changed, &difference(text, after.as_deref().unwrap_or_default()), output)
}

fn way(args: &ConnectArgs, project: &Project) -> Result<Way, ConnectError> {
    if let Some(url) = &args.http {
        let url = match &args.profile {
            Some(profile) => format!("{}/{profile}", url.trim_end_matches('/')),
            None => url.clone(),
        };
        return Ok(Way::Http { url });
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
    // Clients with windows often know no PATH of the person's.
    let command = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("toolgate"));
    Ok(Way::Stdio { command: command.display().to_string(), arguments })
}

/// The lines that change, and no other: whatever else is in the file may be secret.
fn difference(before: &str, after: &str) -> String {
    let difference = TextDiff::from_lines(before, after);
    difference.unified_diff().context_radius(0).missing_newline_hint(false).to_string()
}

fn tell(
    args: &ConnectArgs,
    client: Client,
    path: &Path,
    changed: bool,
    difference: &str,
    output: &Output,
) -> anyhow::Result<u8> {
    let file = shown_path(path);
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
    let said = match (args.remove, changed, args.dry_run) {
        (false, false, _) => "is there already:",
        (true, false, _) => "is not there:",
        (false, true, true) => "would be written to",
        (false, true, false) => "was written to",
        (true, true, true) => "would be taken out of",
        (true, true, false) => "was taken out of",
    };
    if args.dry_run {
        output.result(difference);
    }
    output.message(&format!("{BOLD}{name}{BOLD:#} {said} {file}\n"));
    let next = match (args.remove, args.dry_run && changed, &args.http) {
        (_, true, _) => "run it again without `--dry-run` to write this".to_owned(),
        (true, ..) => "restart the client if it still shows the tools".to_owned(),
        (false, false, Some(_)) => {
            format!("start the client with {KEY_VARIABLE} in its environment, and `toolgate serve` beside it")
        }
        (false, false, None) => "restart the client, which starts Toolgate when it needs it".to_owned(),
    };
    output.next(&next);
    Ok(DONE)
}

fn told(error: ConnectError, args: &ConnectArgs) -> anyhow::Error {
    let hint = match &error {
        ConnectError::NoProject(_) => "`--scope user` is what it has",
        ConnectError::NoHttp(_) => "leave `--http` out: it starts `toolgate stdio` itself",
        ConnectError::Foreign(_) if args.remove => "`--force` takes it out all the same",
        ConnectError::Foreign(_) => "`--name` gives ours another name, `--force` overwrites that one",
        ConnectError::NoTable(_) => "change it by hand: it is not written as a table of its own",
        ConnectError::Unknown(_) | ConnectError::Text(_) | ConnectError::Toml(_) | ConnectError::Shape(_) => {
            "mend the file by hand first"
        }
    };
    hinted(chain(&error), hint)
}

/// The error with its causes, since a hint stands for all of them.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
