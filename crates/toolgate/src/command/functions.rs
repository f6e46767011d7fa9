//! `toolgate tools add FILE`: adds the functions of a Python file as tools.
//!
//! Only Python can read the signatures that the entries come from, so the file is run: in a child process with the
//! environment and the limits of a call. Invariant: nothing is written before the whole file was described.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::CommandFactory;
use clap::error::ErrorKind;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use toolgate_app::Project;
use toolgate_config::{Config, closest_match};
use toolgate_redact::printable;
use toolgate_store::document::{EntryAction, EntryKind, EntryOp};
use toolgate_store::registry::{CommittedChange, RegistryChange};
use toolgate_types::ToolDefinition;
use toolgate_types::tool::ScriptSpec;
use toolgate_upstream::ScriptRunner;

use crate::cli::{AddToolArgs, Cli, ProjectArgs};
use crate::command::change;
use crate::output::{BOLD, DIM, Output, display_path, error_or_hint, error_with_hint, first_line};
use crate::{DONE, FAILED, INVALID_CONFIG};

/// The description of a Python file, as the worker writes it.
#[derive(Debug, Deserialize)]
struct DescribedFile {
    functions: Vec<DescribedFunction>,
    /// `__version__` of the file.
    version: Option<String>,
}

/// A public function. With a problem, it has no schema.
#[derive(Debug, Deserialize)]
struct DescribedFunction {
    name: String,
    line: Option<u32>,
    #[serde(default)]
    description: String,
    input_schema: Option<Json>,
    output_schema: Option<Json>,
    problem: Option<String>,
}

impl AddToolArgs {
    /// Returns true if the command adds the functions of a file.
    pub(crate) fn adds_functions(&self) -> bool {
        let is_python = self
            .name
            .as_deref()
            .is_some_and(|name| Path::new(name).extension().is_some_and(|end| end == "py"));
        is_python && self.from.is_none() && self.script.is_none() && self.description.is_none()
    }

    /// Ends the process with a usage error if an argument is missing, or only fits a Python file.
    pub(crate) fn check_usage(&self) {
        let usage_error = |kind, message: &str| Cli::command().error(kind, message).exit();
        if !self.functions.is_empty() || self.preview || self.replace {
            usage_error(
                ErrorKind::ArgumentConflict,
                "FUNCTION, --preview and --replace need a Python file: FILE.py",
            );
        }
        if self.from.is_none() && self.description.is_none() {
            usage_error(
                ErrorKind::MissingRequiredArgument,
                "the following required arguments were not provided:\n  --description <TEXT>\n\nThe functions of a Python file need none: toolgate tools add FILE.py",
            );
        }
    }
}

pub(crate) fn add(args: &AddToolArgs, project: &ProjectArgs, output: &Output) -> anyhow::Result<u8> {
    let Some(loaded) = change::load_for_change(project, output)? else { return Ok(INVALID_CONFIG) };
    let Some(registry) = loaded.files.registries.tools.clone() else {
        return Err(change::missing_registry(EntryKind::Tool));
    };
    let folder = registry.parent().map(Path::to_owned).unwrap_or_default();
    let script = find_script(args.name.as_deref().unwrap_or_default(), &folder, &loaded.config)?;
    let described = describe(&script, &folder, &loaded.config)?;
    let shown =
        script.strip_prefix(&loaded.config.project).map_or_else(|_| display_path(&script), display_path);
    let (entries, mut left_out) = select(args, &described, &shown)?;
    let path = script.strip_prefix(&folder).unwrap_or(&script).to_string_lossy().into_owned();
    let mut entries = entries
        .into_iter()
        .map(|function| {
            let mut entry = entry(function, &path, described.version.as_deref());
            change::set_keys(&mut entry, &args.set, &[])?;
            Ok((function, entry))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    if args.preview {
        return preview(&entries, &left_out, &shown, output);
    }
    // Tools that exist already stay as they are, unless they are replaced.
    if !args.replace {
        let known = |name: &str| loaded.config.tools.iter().find(|tool| tool.name.as_str() == name);
        entries.retain(|(function, _)| {
            let same = known(&function.name).is_some_and(|tool| tool.script.script_path == script);
            if same {
                left_out.push((function.name.clone(), "exists already; `--replace` updates it".to_owned()));
            }
            !same
        });
    }
    submit(args, loaded, entries, &left_out, &shown, output)
}

/// Finds the file: from the current folder, the project or the folder of the registry.
fn find_script(named: &str, folder: &Path, config: &Config) -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    let places = [here.as_path(), &config.project, folder];
    let found = places.iter().map(|place| place.join(named)).find(|path| path.is_file());
    let shown = folder.strip_prefix(&config.project).map_or_else(|_| display_path(folder), display_path);
    let Some(found) = found else {
        let mut files: Vec<String> = Vec::new();
        for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
            files.extend(entry.file_name().into_string().ok().filter(|name| name.ends_with(".py")));
        }
        let wanted =
            Path::new(named).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let hint = match closest_match(&wanted, files.iter().map(String::as_str)) {
            Some(close) => format!("did you mean `{shown}/{close}`?"),
            None => format!("write the file to `{shown}`, with a function in it"),
        };
        return Err(error_with_hint(format!("there is no file `{}`", printable(named)), hint));
    };
    let real = fs_err::canonicalize(&found)?;
    let root = fs_err::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    match real.strip_prefix(&root) {
        Ok(inside) => Ok(folder.join(inside)),
        Err(_) => {
            let name = found.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let message = format!("`{}` is not in `{shown}`, the folder of your own tools", printable(named));
            Err(error_with_hint(
                message,
                format!("move it there, then run `toolgate tools add {shown}/{name}`"),
            ))
        }
    }
}

/// Runs the file to describe its functions.
fn describe(script: &Path, folder: &Path, config: &Config) -> anyhow::Result<DescribedFile> {
    let spec = ScriptSpec {
        folder: fs_err::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()),
        project: config.project.clone(),
        ..ScriptSpec::new(fs_err::canonicalize(script)?)
    };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let described = tokio.block_on(async {
        let runner = ScriptRunner::new(Default::default());
        let described = runner.describe(spec).await;
        runner.stop().await;
        described
    });
    let described = described.map_err(|error| {
        let hint = error.hint().map(str::to_owned);
        error_or_hint(error, hint)
    })?;
    described.parse().context("the description of the file is invalid")
}

/// Functions to add, and those left out with the reason.
type Selection<'a> = (Vec<&'a DescribedFunction>, Vec<(String, String)>);

/// Selects the functions to add.
fn select<'a>(args: &AddToolArgs, file: &'a DescribedFile, shown: &str) -> anyhow::Result<Selection<'a>> {
    if file.functions.is_empty() {
        return Err(error_with_hint(
            format!("`{shown}` has no public function"),
            "write `def name(argument: str) -> str:` with a docstring; names that begin with `_` are private",
        ));
    }
    let names = || file.functions.iter().map(|function| function.name.as_str());
    for wanted in &args.functions {
        if !names().any(|name| name == wanted) {
            let hint = match closest_match(wanted, names()) {
                Some(close) => format!("did you mean `{close}`?"),
                None => format!("its public functions: {}", names().collect::<Vec<_>>().join(", ")),
            };
            return Err(error_with_hint(
                format!("`{shown}` has no public function `{}`", printable(wanted)),
                hint,
            ));
        }
    }
    let is_wanted =
        |function: &&DescribedFunction| args.functions.is_empty() || args.functions.contains(&function.name);
    let (good, bad): (Vec<_>, Vec<_>) =
        file.functions.iter().filter(is_wanted).partition(|function| function.problem.is_none());
    let reason = |function: &DescribedFunction| {
        let line = function.line.map(|line| format!(":{line}")).unwrap_or_default();
        (
            function.name.clone(),
            format!("{} ({shown}{line})", function.problem.as_deref().unwrap_or_default()),
        )
    };
    Ok((good, bad.into_iter().map(reason).collect()))
}

fn entry(function: &DescribedFunction, path: &str, version: Option<&str>) -> Map<String, Json> {
    let description = match function.description.trim() {
        "" => format!("Calls the Python function `{}`.", function.name),
        text => text.to_owned(),
    };
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(function.name));
    entry.insert("description".to_owned(), json!(description));
    entry.extend(version.map(|version| ("version".to_owned(), json!(version))));
    entry.insert("input_schema".to_owned(), json!(function.input_schema));
    entry.extend(function.output_schema.clone().map(|schema| ("output_schema".to_owned(), schema)));
    entry.insert("script_path".to_owned(), json!(path));
    entry.insert("entrypoint".to_owned(), json!(function.name));
    entry
}

/// A function with its entry.
type NewEntry<'a> = (&'a DescribedFunction, Map<String, Json>);

fn preview(
    entries: &[NewEntry<'_>],
    left_out: &[(String, String)],
    shown: &str,
    output: &Output,
) -> anyhow::Result<u8> {
    if output.json {
        let tools: Vec<_> = entries.iter().map(|(_, entry)| entry).collect();
        output.document(
            &json!({ "ok": true, "preview": true, "tools": tools, "left_out": left_out_json(left_out) }),
        )?;
    } else {
        for (function, entry) in entries {
            output.result(&summary(function, shown));
            output.result(&format!("{}\n", serde_json::to_string_pretty(entry)?));
        }
    }
    report_left_out(left_out, output);
    Ok(if left_out.is_empty() { DONE } else { FAILED })
}

/// One line about a function: its arguments, its place and its purpose.
fn summary(function: &DescribedFunction, shown: &str) -> String {
    let schema = function.input_schema.as_ref();
    let required: Vec<&str> = schema
        .and_then(|schema| schema["required"].as_array())
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let properties = schema.and_then(|schema| schema["properties"].as_object());
    let argument =
        |name: &String| if required.contains(&name.as_str()) { name.clone() } else { format!("[{name}]") };
    let arguments: Vec<_> = properties.into_iter().flat_map(Map::keys).map(argument).collect();
    let line = function.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!(
        "{BOLD}{}{BOLD:#}({})  {DIM}{shown}{line}{DIM:#}  {}\n",
        printable(&function.name),
        printable(&arguments.join(", ")),
        first_line(&function.description)
    )
}

fn submit(
    args: &AddToolArgs,
    Project { config, files, .. }: Project,
    entries: Vec<NewEntry<'_>>,
    left_out: &[(String, String)],
    shown: &str,
    output: &Output,
) -> anyhow::Result<u8> {
    let file = files.registries.tools.clone().unwrap_or_default();
    let file = file.strip_prefix(&config.project).map_or_else(|_| display_path(&file), display_path);
    let (mut expect, mut added, mut via) = (args.change.if_revision, Vec::new(), None);
    for (function, entry) in entries {
        let existing = config.tools.iter().find(|tool| tool.name.as_str() == function.name);
        let name = function.name.clone();
        let (verb, action) = match existing.filter(|_| args.replace) {
            Some(tool) => ("changed", EntryAction::Patch(patch(entry, tool))),
            None => ("added", EntryAction::Add(entry)),
        };
        let op = EntryOp { kind: EntryKind::Tool, name: name.clone(), action };
        let change = RegistryChange { expect, ..op.into() };
        match files.clone().submit(change).map_err(|error| change::submit_error(error, &file))? {
            (route, Ok(CommittedChange { rev, notes })) => {
                via = Some(route.label());
                added.push(json!({ "name": name, "change": verb, "line": function.line, "revision": rev, "notes": notes }));
                if !output.json {
                    output.result(&format!("{verb} {}", summary(function, shown)));
                }
                notes.iter().for_each(|note| output.message(&change::problem_text("warning", note)));
                if function.description.trim().is_empty() {
                    let name = printable(&name);
                    output.message(&format!(
                        "note: `{name}` has no docstring; models choose tools by their description\n"
                    ));
                }
                expect = expect.map(|_| rev);
            }
            (route, Err(rejected)) => {
                if !added.is_empty() {
                    output
                        .message(&format!("note: {} of the tools were added before this one\n", added.len()));
                }
                return change::print_rejection(&rejected, route, output);
            }
        }
    }
    if output.json {
        let kind = change::kind_name(EntryKind::Tool);
        output.document(&json!({ "ok": left_out.is_empty(), "kind": kind, "file": file, "tools": added, "left_out": left_out_json(left_out), "via": via }))?;
    }
    report_left_out(left_out, output);
    if let Some(first) = added.first().and_then(|tool| tool["name"].as_str()) {
        output.next_step(&format!("show one with `toolgate tools show {first}`, call it with `toolgate tools call {first} key=value`"));
    }
    Ok(if left_out.is_empty() { DONE } else { FAILED })
}

/// The keys that come from the function, as changes to the entry of a tool.
fn patch(mut entry: Map<String, Json>, tool: &ToolDefinition) -> Map<String, Json> {
    entry.remove("name");
    let parse = |schema: &str| serde_json::from_str::<Json>(schema).unwrap_or_default();
    let output = tool.output_schema.as_ref().map(|schema| parse(schema.get())).unwrap_or_default();
    let new_output = entry.remove("output_schema").unwrap_or_default();
    entry.insert("output_schema".to_owned(), difference(&output, new_output));
    if let Some(schema) = entry.remove("input_schema") {
        entry.insert("input_schema".to_owned(), difference(&parse(tool.input_schema.get()), schema));
    }
    entry
}

/// The changes that turn one value into another: `null` removes a member.
fn difference(old: &Json, new: Json) -> Json {
    let (Json::Object(old), Json::Object(new)) = (old, &new) else { return new };
    let gone = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Json::Null));
    let kept = new
        .iter()
        .map(|(name, value)| (name.clone(), difference(old.get(name).unwrap_or(&Json::Null), value.clone())));
    Json::Object(gone.chain(kept).collect())
}

fn report_left_out(left_out: &[(String, String)], output: &Output) {
    for (name, why) in left_out {
        output.message(&format!("left out `{}`: {}\n", printable(name), printable(why)));
    }
}

fn left_out_json(left_out: &[(String, String)]) -> Vec<Json> {
    left_out.iter().map(|(name, reason)| json!({ "name": name, "reason": reason })).collect()
}
