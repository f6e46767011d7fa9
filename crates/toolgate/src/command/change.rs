//! `toolgate tools|servers add|update|remove`: changes of the registry.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value as Json, json};
use toolgate_app::{ChangeRoute, InvalidProject, Project, RejectedChange, SubmitError};
use toolgate_redact::{literal_parts, looks_secret, printable};
use toolgate_store::document::{EntryAction, EntryKind, EntryOp};
use toolgate_store::registry::{CommittedChange, RegistryChange, RegistryProblem};

use crate::cli::{AddServerArgs, AddToolArgs, ChangeArgs, ProjectArgs, RemoveArgs, UpdateArgs};
use crate::command::agent::keys;
use crate::command::functions;
use crate::output::{BOLD, Output, display_path, error_or_hint, error_with_hint};
use crate::owner_key;
use crate::{DONE, FAILED, INVALID_CONFIG};

/// Bytes of an entry that are read.
const MAX_ENTRY_BYTES: u64 = 4 << 20;

pub(crate) fn add_tool(args: &AddToolArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    if args.adds_functions() {
        return functions::add(args, project, output);
    }
    args.check_usage();
    let mut entry = args.from.as_deref().map_or_else(|| Ok(Map::new()), read_entry)?;
    let own = entry.get("name").and_then(Json::as_str).map(str::to_owned);
    let Some(name) = args.name.clone().or(own) else {
        return Err(error_with_hint(
            "the entry has no `name`",
            "add `name` to the entry, or pass it as an argument",
        ));
    };
    if args.from.is_none() {
        entry.insert("name".to_owned(), json!(name));
        entry.extend(args.description.iter().map(|text| ("description".to_owned(), json!(text))));
        let schema =
            args.input_schema.as_deref().map_or_else(|| Ok(json!({ "type": "object" })), read_schema)?;
        entry.insert("input_schema".to_owned(), schema);
        entry.extend(args.script.iter().map(|script| ("script_path".to_owned(), json!(script))));
    }
    set_keys(&mut entry, &args.set, &[])?;
    submit(EntryKind::Tool, name, EntryAction::Add(entry), &args.change, project, output)
}

pub(crate) fn add_server(args: &AddServerArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let mut entry = args.from.as_deref().map_or_else(|| Ok(Map::new()), read_entry)?;
    if let Some((command, words)) = args.command.split_first() {
        entry.insert("command".to_owned(), json!(command));
        if !words.is_empty() {
            entry.insert("args".to_owned(), json!(words));
        }
    }
    entry.extend(args.url.iter().map(|url| ("url".to_owned(), json!(url))));
    for (key, pairs) in [("headers", &args.headers), ("env", &args.env)] {
        let pairs: Map<_, _> = pairs.iter().map(|pair| parse_pair(pair)).collect::<anyhow::Result<_>>()?;
        if !pairs.is_empty() {
            warn_of_secrets(&pairs, output);
            entry.insert(key.to_owned(), Json::Object(pairs));
        }
    }
    entry.extend(args.mode.iter().map(|mode| ("mode".to_owned(), json!(mode))));
    set_keys(&mut entry, &args.set, &[])?;
    submit(EntryKind::Server, args.name.clone(), EntryAction::Add(entry), &args.change, project, output)
}

pub(crate) fn update(
    kind: EntryKind,
    args: &UpdateArgs,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<u8> {
    let act = match &args.from {
        Some(from) => EntryAction::Replace(read_entry(from)?),
        None => {
            let mut patch = Map::new();
            set_keys(&mut patch, &args.set, &args.unset)?;
            EntryAction::Patch(patch)
        }
    };
    submit(kind, args.name.clone(), act, &args.change, project, output)
}

pub(crate) fn remove(
    kind: EntryKind,
    args: &RemoveArgs,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<u8> {
    if !args.yes {
        if output.json || !std::io::stdin().is_terminal() {
            return Err(error_with_hint(
                "confirmation needed, but stdin is not a terminal",
                "pass `--yes` to confirm",
            ));
        }
        if !keys::yes_line(&format!("remove {} {}? [y/N] ", kind.label(), printable(&args.name))) {
            output.result("nothing was changed\n");
            return Ok(FAILED);
        }
    }
    submit(kind, args.name.clone(), EntryAction::Remove, &args.change, project, output)
}

/// Loads the project for a change, or prints its problems.
pub(super) fn load_for_change(project: &ProjectArgs, output: &Output) -> anyhow::Result<Option<Project>> {
    match project.load(owner_key::environment()) {
        Ok(loaded) => Ok(Some(loaded)),
        Err(InvalidProject { report }) => {
            if output.json {
                output.document(
                    &json!({ "ok": false, "code": "configuration_refused", "problems": report.entries() }),
                )?;
            }
            output.message(&report.render());
            output.next_step("run `toolgate check` to see the problems; nothing was changed");
            Ok(None)
        }
    }
}

/// Applies a change: through the running gateway of the project, otherwise directly on the files.
pub(crate) fn submit(
    kind: EntryKind,
    name: String,
    act: EntryAction,
    args: &ChangeArgs,
    project: &ProjectArgs,
    output: &Output,
) -> anyhow::Result<u8> {
    let Some(Project { config, files, .. }) = load_for_change(project, output)? else {
        return Ok(INVALID_CONFIG);
    };
    let verb = match act {
        EntryAction::Add(_) => "added",
        EntryAction::Replace(_) | EntryAction::Patch(_) => "changed",
        EntryAction::Remove => "removed",
    };
    let file = match kind {
        EntryKind::Tool => files.registries.tools.clone(),
        EntryKind::Server => files.registries.servers.clone(),
    };
    let Some(file) = file else { return Err(missing_registry(kind)) };
    let file = file.strip_prefix(&config.project).map_or_else(|_| display_path(&file), display_path);
    let op = EntryOp { kind, name: name.clone(), action: act };
    let change = RegistryChange { expect: args.if_revision, ..op.into() };
    match files.submit(change) {
        Ok((route, Ok(CommittedChange { rev, notes }))) => {
            if output.json {
                let (kind, via) = (kind_name(kind), route.label());
                output.document(&json!({ "ok": true, "change": verb, "kind": kind, "name": name, "file": file, "revision": rev, "notes": notes, "via": via }))?;
            } else {
                let (label, name) = (kind.label(), printable(&name));
                output.result(&format!("{verb} {label} {BOLD}{name}{BOLD:#} in {file}, revision {rev}\n"));
            }
            notes.iter().for_each(|note| output.message(&problem_text("warning", note)));
            Ok(DONE)
        }
        Ok((route, Err(rejected))) => print_rejection(&rejected, route, output),
        Err(error) => Err(submit_error(error, &file)),
    }
}

/// Converts the error of a change that could not be submitted.
pub(super) fn submit_error(error: SubmitError, file: &str) -> anyhow::Error {
    match error {
        SubmitError::Document(error) => anyhow!(error).context(format!("{file} cannot be changed")),
        SubmitError::Socket(error) => {
            let hint = error.hint();
            error_or_hint(error, hint)
        }
        error @ (SubmitError::NoGateway | SubmitError::Closed | SubmitError::Io(_)) => error.into(),
    }
}

pub(super) fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Tool => "tool",
        EntryKind::Server => "server",
    }
}

pub(crate) fn missing_registry(kind: EntryKind) -> anyhow::Error {
    let (what, line, blank) = match kind {
        EntryKind::Tool => ("its own tools", "registries: { tools: tools/tools.json }", r#"{"tools": []}"#),
        EntryKind::Server => ("MCP servers", "registries: { mcp: mcp.json }", r#"{"servers": {}}"#),
    };
    let message = format!("the project has no file for {what}");
    error_with_hint(message, format!("add `{line}` to toolgate.yaml and create the file with `{blank}`"))
}

pub(super) fn print_rejection(
    rejected: &RejectedChange,
    route: ChangeRoute,
    output: &Output,
) -> anyhow::Result<u8> {
    let (RejectedChange { code, message, problems, revision }, hint) = (rejected, rejected.hint());
    if output.json {
        output.document(&json!({ "ok": false, "code": code, "error": message, "problems": problems, "revision": revision, "hint": hint, "via": route.label() }))?;
    }
    let mut text = format!("{BOLD}error{BOLD:#}: {}\n", printable(message));
    problems.iter().for_each(|problem| text.push_str(&problem_text("because", problem)));
    text.extend(hint.map(|hint| format!("hint: {hint}\n")));
    output.message(&text);
    Ok(if code == "configuration_refused" { INVALID_CONFIG } else { FAILED })
}

pub(super) fn problem_text(
    label: &str,
    RegistryProblem { message, place, hint }: &RegistryProblem,
) -> String {
    let place = place.as_ref().map(|place| format!(" ({})", printable(place))).unwrap_or_default();
    let hint = hint.as_ref().map(|hint| format!("    hint: {}\n", printable(hint))).unwrap_or_default();
    format!("  {label}: {}{place}\n{hint}", printable(message))
}

/// Reads a JSON object from a file or from stdin.
fn read_entry(from: &Path) -> anyhow::Result<Map<String, Json>> {
    let text = read_text(from)?;
    let wrong = || format!("{} is not a JSON object", display_path(from));
    match serde_json::from_str(&text).with_context(wrong)? {
        Json::Object(entry) => Ok(entry),
        _ => Err(error_with_hint(
            wrong(),
            "expected one entry, for example {\"command\": \"uvx\", \"args\": [\"web-server\"]}",
        )),
    }
}

fn read_text(from: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if from == Path::new("-") {
        std::io::stdin().lock().take(MAX_ENTRY_BYTES).read_to_string(&mut text)?;
    } else {
        fs_err::File::open(from)?.take(MAX_ENTRY_BYTES).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Parses a schema, given as JSON or as a file.
fn read_schema(given: &str) -> anyhow::Result<Json> {
    if given.trim_start().starts_with('{') {
        return serde_json::from_str(given).context("`--input-schema` is not valid JSON");
    }
    serde_json::from_str(&read_text(Path::new(given))?).with_context(|| format!("{given} is not valid JSON"))
}

fn parse_pair(pair: &str) -> anyhow::Result<(String, Json)> {
    let Some((name, value)) = pair.split_once('=') else {
        bail!("`{}` is not `NAME=VALUE`", printable(pair))
    };
    Ok((name.to_owned(), json!(value)))
}

/// Warns about secrets in plain text, because the file is usually committed.
fn warn_of_secrets(pairs: &Map<String, Json>, output: &Output) {
    for (name, value) in pairs {
        let text = value.as_str().unwrap_or_default();
        if looks_secret(name) && literal_parts(text).iter().any(|part| part.trim().len() > 7) {
            let name = printable(name);
            output.message(&format!("note: the value of `{name}` is written to the file in plain text; use `${{NAME}}` to keep it in .env\n"));
        }
    }
}

/// Sets `a.b=value` in an object; sets `null` for keys to remove.
pub(super) fn set_keys(
    entry: &mut Map<String, Json>,
    pairs: &[String],
    unset: &[String],
) -> anyhow::Result<()> {
    for pair in pairs {
        let (path, value) = parse_pair(pair)?;
        let text = value.as_str().unwrap_or_default().to_owned();
        set_key(entry, &path, serde_json::from_str(&text).unwrap_or(value))?;
    }
    unset.iter().try_for_each(|path| set_key(entry, path, Json::Null))
}

fn set_key(entry: &mut Map<String, Json>, path: &str, value: Json) -> anyhow::Result<()> {
    match path.split_once('.') {
        _ if path.is_empty() => bail!("a key is empty"),
        None => {
            entry.insert(path.to_owned(), value);
            Ok(())
        }
        Some((first, rest)) => match entry.entry(first).or_insert_with(|| json!({})) {
            Json::Object(inner) => set_key(inner, rest, value),
            _ => bail!("`{first}` is set both to a value and to an object"),
        },
    }
}
