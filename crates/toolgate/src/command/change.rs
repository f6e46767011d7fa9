//! `toolgate tools|servers add|update|remove`: changes of the registry, through its queue.

use std::io::{BufRead, IsTerminal, Read};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value as Json, json};
use toolgate_config::{Environment, load};
use toolgate_store::document::{Act, DocumentError, Kind, Op};
use toolgate_store::registry::{Change, Done, OpenError, Problem, Problems, Refused};
use toolgate_types::redact::{literal_parts, looks_secret, printable};

use crate::cli::{AddServerArgs, AddToolArgs, ChangeArgs, Project, RemoveArgs, UpdateArgs};
use crate::command::registry::Files;
use crate::command::socket;
use crate::output::{BOLD, Output, hinted, shown_path};
use crate::{DONE, FAILED, REFUSED};

/// More than any entry.
const LARGEST_ENTRY_BYTES: u64 = 4 << 20;

pub(crate) fn add_tool(args: &AddToolArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let mut entry = args.from.as_deref().map_or_else(|| Ok(Map::new()), entry_of)?;
    let own = entry.get("name").and_then(Json::as_str).map(str::to_owned);
    let Some(name) = args.name.clone().or(own) else {
        return Err(hinted("the entry has no `name`", "write it there, or behind `add`"));
    };
    if args.from.is_none() {
        entry.insert("name".to_owned(), json!(name));
        entry.extend(args.description.iter().map(|text| ("description".to_owned(), json!(text))));
        let schema =
            args.input_schema.as_deref().map_or_else(|| Ok(json!({ "type": "object" })), schema_of)?;
        entry.insert("input_schema".to_owned(), schema);
        entry.extend(args.script.iter().map(|script| ("script_path".to_owned(), json!(script))));
    }
    set(&mut entry, &args.set, &[])?;
    submit(Kind::Tool, name, Act::Add(entry), &args.change, project, output)
}

pub(crate) fn add_server(args: &AddServerArgs, project: &Project, output: &Output) -> anyhow::Result<u8> {
    let mut entry = args.from.as_deref().map_or_else(|| Ok(Map::new()), entry_of)?;
    if let Some((command, words)) = args.command.split_first() {
        entry.insert("command".to_owned(), json!(command));
        if !words.is_empty() {
            entry.insert("args".to_owned(), json!(words));
        }
    }
    entry.extend(args.url.iter().map(|url| ("url".to_owned(), json!(url))));
    for (key, pairs) in [("headers", &args.headers), ("env", &args.env)] {
        let pairs: Map<_, _> = pairs.iter().map(|pair| pair_of(pair)).collect::<anyhow::Result<_>>()?;
        if !pairs.is_empty() {
            warn_of_secrets(&pairs, output);
            entry.insert(key.to_owned(), Json::Object(pairs));
        }
    }
    entry.extend(args.mode.iter().map(|mode| ("mode".to_owned(), json!(mode))));
    set(&mut entry, &args.set, &[])?;
    submit(Kind::Server, args.name.clone(), Act::Add(entry), &args.change, project, output)
}

pub(crate) fn update(
    kind: Kind,
    args: &UpdateArgs,
    project: &Project,
    output: &Output,
) -> anyhow::Result<u8> {
    let act = match &args.from {
        Some(from) => Act::Replace(entry_of(from)?),
        None => {
            let mut patch = Map::new();
            set(&mut patch, &args.set, &args.unset)?;
            Act::Patch(patch)
        }
    };
    submit(kind, args.name.clone(), act, &args.change, project, output)
}

pub(crate) fn remove(
    kind: Kind,
    args: &RemoveArgs,
    project: &Project,
    output: &Output,
) -> anyhow::Result<u8> {
    if !args.yes {
        if output.json || !std::io::stdin().is_terminal() {
            return Err(hinted("nobody is at the terminal to say yes", "`--yes` says it"));
        }
        output.message(&format!("remove {} {}? [y/N] ", kind.label(), printable(&args.name)));
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            output.result("nothing was changed\n");
            return Ok(FAILED);
        }
    }
    submit(kind, args.name.clone(), Act::Remove, &args.change, project, output)
}

/// Makes a change: by the server that runs for this project, or where none does, on the files.
pub(crate) fn submit(
    kind: Kind,
    name: String,
    act: Act,
    args: &ChangeArgs,
    project: &Project,
    output: &Output,
) -> anyhow::Result<u8> {
    let environment = Environment::of_process();
    let loaded = load(&project.folder, project.file.as_deref(), &environment);
    let Some(config) = loaded.config else {
        if output.json {
            output.document(
                &json!({ "ok": false, "code": "configuration_refused", "problems": loaded.report.entries() }),
            )?;
        }
        output.message(&loaded.report.render());
        output.next("`toolgate check` shows what is wrong; nothing was changed");
        return Ok(REFUSED);
    };
    let files = Files::new(project, environment, config.registries);
    let verb = match act {
        Act::Add(_) => "added",
        Act::Replace(_) | Act::Patch(_) => "changed",
        Act::Remove => "removed",
    };
    let file = match kind {
        Kind::Tool => files.registries.tools.clone(),
        Kind::Server => files.registries.servers.clone(),
    };
    let Some(file) = file else { return Err(no_file(kind)) };
    let file = file.strip_prefix(&config.project).map_or_else(|_| shown_path(&file), shown_path);
    let change = Change { expect: args.if_revision, op: Op { kind, name: name.clone(), act } };
    let outcome = match socket::submit(&project.folder, &change)? {
        Some(outcome) => Ok((outcome.map_err(Told::from), "server")),
        None => directly(files, change)
            .map(|outcome| (outcome.map_err(|refused| Told::of(&refused, &name)), "files")),
    };
    match outcome {
        Ok((Ok(Done { rev, notes }), via)) => {
            if output.json {
                let kind = kind_name(kind);
                output.document(&json!({ "ok": true, "change": verb, "kind": kind, "name": name, "file": file, "revision": rev, "notes": notes, "via": via }))?;
            } else {
                let (label, name) = (kind.label(), printable(&name));
                output.result(&format!("{verb} {label} {BOLD}{name}{BOLD:#} in {file}, revision {rev}\n"));
            }
            notes.iter().for_each(|note| output.message(&shown("warning", note)));
            Ok(DONE)
        }
        Ok((Err(told), via)) => told.tell(via, output),
        Err(error) => match error.downcast::<DocumentError>() {
            Ok(error) => Err(anyhow!(error).context(format!("{file} cannot be changed"))),
            Err(error) => Err(error),
        },
    }
}

/// Makes a change on the files.
fn directly(files: Files, change: Change) -> anyhow::Result<Result<Done, Refused>> {
    // Files and a queue: nothing here waits for a descriptor.
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    tokio.block_on(async {
        let nobody = std::sync::Arc::new(|_| futures_util::FutureExt::boxed(async {}));
        let (registry, actor) = match files.open(nobody).await {
            Ok(opened) => opened,
            Err(OpenError::Refused(problems)) => return Ok(Err(Refused::Unreadable(problems))),
            Err(OpenError::Unavailable(error)) => return Ok(Err(Refused::Unavailable(error))),
            Err(OpenError::Document(error)) => return Err(error.into()),
        };
        tokio::select! {
            outcome = registry.submit(change) => Ok(outcome),
            () = actor.run() => bail!("the registry was closed"),
        }
    })
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "tool",
        Kind::Server => "server",
    }
}

pub(crate) fn no_file(kind: Kind) -> anyhow::Error {
    let (what, line, blank) = match kind {
        Kind::Tool => ("tools of its own", "registries: { tools: tools/tools.json }", r#"{"tools": []}"#),
        Kind::Server => {
            ("MCP servers that can be changed", "registries: { mcp: mcp.json }", r#"{"servers": {}}"#)
        }
    };
    let message = format!("the project has no file for {what}");
    hinted(message, format!("add `{line}` to toolgate.yaml, and write the file: `{blank}`"))
}

/// Why nothing was changed.
struct Told {
    code: String,
    message: String,
    problems: Vec<Problem>,
    revision: Option<String>,
}

impl From<socket::Refusal> for Told {
    fn from(socket::Refusal { code, message, problems, revision }: socket::Refusal) -> Self {
        Self { code, message, problems, revision }
    }
}

impl Told {
    fn of(refused: &Refused, name: &str) -> Self {
        let problems = match refused {
            Refused::Invalid(Problems(problems)) | Refused::Unreadable(Problems(problems)) => {
                problems.clone()
            }
            Refused::Unavailable(error) => {
                vec![Problem { message: error.0.to_string(), place: None, hint: None }]
            }
            _ => Vec::new(),
        };
        let message = match refused {
            Refused::Invalid(_) => format!("`{}` is refused, and nothing was changed", printable(name)),
            Refused::Unreadable(_) => "the files are not in order, and nothing was changed".to_owned(),
            refused => refused.to_string(),
        };
        let revision = match refused {
            Refused::Conflict { current } => Some(current.to_string()),
            _ => None,
        };
        Self { code: refused.code().to_owned(), message, problems, revision }
    }

    fn hint(&self) -> Option<&'static str> {
        match self.code.as_str() {
            "already_exists" => Some("`update` changes it"),
            "not_found" => Some("`add` makes it; the project file may name others, which are changed there"),
            "conflict" => Some("look at what has changed, then try again with this revision"),
            "configuration_refused" => Some("mend them; `toolgate check` shows what is wrong"),
            "storage_unavailable" => {
                Some("look at the disk and the rights of the files; nothing was changed")
            }
            _ => None,
        }
    }

    fn tell(&self, via: &str, output: &Output) -> anyhow::Result<u8> {
        let (Self { code, message, problems, revision }, hint) = (self, self.hint());
        if output.json {
            output.document(&json!({ "ok": false, "code": code, "error": message, "problems": problems, "revision": revision, "hint": hint, "via": via }))?;
        }
        let mut text = format!("{BOLD}error{BOLD:#}: {}\n", printable(message));
        problems.iter().for_each(|problem| text.push_str(&shown("because", problem)));
        text.extend(hint.map(|hint| format!("hint: {hint}\n")));
        output.message(&text);
        Ok(if code == "configuration_refused" { REFUSED } else { FAILED })
    }
}

fn shown(label: &str, Problem { message, place, hint }: &Problem) -> String {
    let place = place.as_ref().map(|place| format!(" ({})", printable(place))).unwrap_or_default();
    let hint = hint.as_ref().map(|hint| format!("    hint: {}\n", printable(hint))).unwrap_or_default();
    format!("  {label}: {}{place}\n{hint}", printable(message))
}

/// The object in a file, or on stdin.
fn entry_of(from: &Path) -> anyhow::Result<Map<String, Json>> {
    let text = text_of(from)?;
    let wrong = || format!("{} is not a JSON object", shown_path(from));
    match serde_json::from_str(&text).with_context(wrong)? {
        Json::Object(entry) => Ok(entry),
        _ => Err(hinted(
            wrong(),
            "it is one entry, such as {\"command\": \"uvx\", \"args\": [\"web-server\"]}",
        )),
    }
}

fn text_of(from: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if from == Path::new("-") {
        std::io::stdin().lock().take(LARGEST_ENTRY_BYTES).read_to_string(&mut text)?;
    } else {
        fs_err::File::open(from)?.take(LARGEST_ENTRY_BYTES).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// A schema, or the file that holds it.
fn schema_of(given: &str) -> anyhow::Result<Json> {
    if given.trim_start().starts_with('{') {
        return serde_json::from_str(given).context("`--input-schema` is not valid JSON");
    }
    serde_json::from_str(&text_of(Path::new(given))?).with_context(|| format!("{given} is not valid JSON"))
}

fn pair_of(pair: &str) -> anyhow::Result<(String, Json)> {
    let Some((name, value)) = pair.split_once('=') else {
        bail!("`{}` is not `NAME=VALUE`", printable(pair))
    };
    Ok((name.to_owned(), json!(value)))
}

/// A key in plain text is not for a file that is committed.
fn warn_of_secrets(pairs: &Map<String, Json>, output: &Output) {
    for (name, value) in pairs {
        let text = value.as_str().unwrap_or_default();
        if looks_secret(name) && literal_parts(text).iter().any(|part| part.trim().len() > 7) {
            let name = printable(name);
            output.message(&format!("note: the value of `{name}` is written to the file as it is; `${{NAME}}` would keep it in .env\n"));
        }
    }
}

/// Writes `a.b=value` into an object, and `null` where a key is to go.
fn set(entry: &mut Map<String, Json>, pairs: &[String], unset: &[String]) -> anyhow::Result<()> {
    for pair in pairs {
        let (path, value) = pair_of(pair)?;
        let text = value.as_str().unwrap_or_default().to_owned();
        put(entry, &path, serde_json::from_str(&text).unwrap_or(value))?;
    }
    unset.iter().try_for_each(|path| put(entry, path, Json::Null))
}

fn put(entry: &mut Map<String, Json>, path: &str, value: Json) -> anyhow::Result<()> {
    match path.split_once('.') {
        _ if path.is_empty() => bail!("a key is empty"),
        None => {
            entry.insert(path.to_owned(), value);
            Ok(())
        }
        Some((first, rest)) => match entry.entry(first).or_insert_with(|| json!({})) {
            Json::Object(inner) => put(inner, rest, value),
            _ => bail!("`{first}` is given a value and keys of its own"),
        },
    }
}
