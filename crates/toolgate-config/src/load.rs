//! From a project folder to a checked configuration, or to everything that is wrong with it.
//!
//! Invariant: loading reads and never writes, starts or connects anything.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::Config;
use crate::context::{Context, Environment, FileVariable};
use crate::dialect::Dialect;
use crate::file::env_files;
use crate::node::{Node, Value};
use crate::problem::{Problem, Report};
use crate::read::{Format, read};
use crate::settle::Draft;
use crate::{overrides, source::Span};

/// Project files by the names they usually have, the first that exists counts.
pub(crate) const PROJECT_FILES: [&str; 4] = ["toolgate.yaml", "toolgate.yml", "agent.yaml", "agent.yml"];
/// A `myai` tree is usually here, and so is the configuration of half of all other programs.
const COMMON_NAME: &str = "config.yaml";
/// Registries that make a project on their own where there is no project file.
const TOOL_REGISTRIES: [&str; 2] = ["tools/tools.json", "tools.json"];
const SERVER_REGISTRIES: [&str; 4] = ["mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"];

/// What came of loading. There is a configuration unless the report has an error.
#[derive(Debug)]
pub struct Loaded {
    /// The checked configuration.
    pub config: Option<Config>,
    /// Everything that was found wrong or passed over.
    pub report: Report,
}

/// Loads the project in a folder. `file` names the project file where it has an unusual name.
pub fn load(project: &Path, file: Option<&Path>, environment: &Environment) -> Loaded {
    load_over(project, file, environment, BTreeMap::new())
}

/// Loads the project in a folder, with these texts in the place of files: what it would be, if they were written.
pub fn load_over(
    project: &Path,
    file: Option<&Path>,
    environment: &Environment,
    texts: BTreeMap<PathBuf, Arc<str>>,
) -> Loaded {
    let project = absolute(project, environment);
    let mut cx = Context::new(project, environment);
    cx.texts = texts;
    let mut config = load_within(file, &mut cx);
    if let Some(config) = &mut config {
        config.secrets.clone_from(&cx.secrets);
        if config.egress.secrets {
            config.egress.known.clone_from(&cx.secrets);
        }
    }
    let report = Report::new(cx.sources, cx.problems, cx.secrets);
    Loaded { config: config.filter(|_| !report.has_errors()), report }
}

/// Without touching the file system beyond the current folder: symbolic links stay as they are.
pub(crate) fn absolute(path: &Path, environment: &Environment) -> PathBuf {
    let base = std::env::current_dir().ok().or_else(|| environment.home.clone()).unwrap_or_default();
    let joined = base.join(path);
    let mut clean = PathBuf::new();
    for part in joined.components() {
        match part {
            std::path::Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}

fn load_within(file: Option<&Path>, cx: &mut Context<'_>) -> Option<Config> {
    let (files, bare) = find(file, cx)?;
    let mut draft = Draft::new();
    let mut prefixes = Vec::new();
    for path in files {
        let Some(mut node) = parse(&path, cx) else { continue };
        // A file in which everything is commented out holds nothing yet, and is no mistake.
        if node.is_null() {
            node.value = Value::Map(Vec::new());
        }
        let Some(dialect) = Dialect::of(&node, &path) else {
            unknown_shape(&node, cx);
            continue;
        };
        if let Some(prefix) = dialect.override_prefix() {
            overrides::apply(&mut node, prefix, cx);
            prefixes.push(prefix);
        }
        if cx.dotenv.is_none() {
            cx.dotenv = Some(project_env(dialect, &node, cx));
        }
        dialect.register(&path, &mut draft);
        dialect.read(&node, &mut draft, cx);
    }
    if bare {
        usual_registries(&mut draft, cx);
    }
    draft.usual_policy(cx);
    if !prefixes.contains(&overrides::PREFIX) {
        overrides::tell_unused(cx);
    }
    let mut files: Vec<String> = Vec::new();
    for source in cx.sources.iter().filter(|source| source.path().is_some()) {
        // Servers may share an `env_file`.
        if !files.iter().any(|known| known == source.name()) {
            files.push(source.name().to_owned());
        }
    }
    Some(draft.finish(files, cx))
}

/// Where a project without a project file would have the registry that it does not have yet.
fn usual_registries(draft: &mut Draft, cx: &Context<'_>) {
    let [inside, beside] = TOOL_REGISTRIES.map(|name| cx.project.join(name));
    let tools = if inside.parent().is_some_and(Path::is_dir) { inside } else { beside };
    draft.registries.tools.get_or_insert(tools);
    draft.registries.servers.get_or_insert_with(|| cx.project.join(SERVER_REGISTRIES[0]));
}

/// The files to read, and whether they are registries without a project file. A missing project is told.
fn find(file: Option<&Path>, cx: &mut Context<'_>) -> Option<(Vec<PathBuf>, bool)> {
    let project = cx.project.clone();
    if !project.is_dir() {
        let message = format!("the folder `{}` does not exist", project.display());
        cx.push(
            Problem::nowhere(message).hint("name an existing folder with `-C`, or run `toolgate init DIR`"),
        );
        return None;
    }
    if let Some(file) = file {
        let path = project.join(file);
        if !path.exists() {
            let message = format!("the file `{}` does not exist", file.display());
            cx.push(Problem::nowhere(message).hint("paths start at the project folder, which `-C` names"));
            return None;
        }
        return Some((vec![path], false));
    }
    let first = |names: &[&str]| names.iter().map(|name| project.join(name)).find(|path| cx.has_file(path));
    if let Some(file) =
        first(&PROJECT_FILES).or_else(|| first(&[COMMON_NAME]).filter(|file| is_ours(file, cx)))
    {
        return Some((vec![file], false));
    }
    let registries: Vec<_> =
        [first(&TOOL_REGISTRIES), first(&SERVER_REGISTRIES)].into_iter().flatten().collect();
    if registries.is_empty() {
        let message = format!("there is no project in `{}`", project.display());
        let hint = "run `toolgate init` to write one, or name a file with `--file`";
        cx.push(Problem::nowhere(message).hint(hint));
        return None;
    }
    Some((registries, true))
}

/// Whether a file with a common name is a configuration that we know. One that cannot be read may be.
fn is_ours(path: &Path, cx: &Context<'_>) -> bool {
    let mut aside = Context::new(cx.project.clone(), cx.environment);
    parse(path, &mut aside).is_none_or(|node| Dialect::of(&node, path).is_some())
}

/// Reads a file into a tree; what is wrong with it is told.
pub(crate) fn parse(path: &Path, cx: &mut Context<'_>) -> Option<Node> {
    let name = path.to_string_lossy().into_owned();
    let node = cx.open(path).and_then(|id| read(&cx.sources, id, Format::of(&name)));
    node.map_err(|problem| cx.push(problem)).ok()
}

fn unknown_shape(node: &Node, cx: &mut Context<'_>) {
    let span = match &node.value {
        Value::Map(entries) => entries.first().map_or(node.span, |entry| entry.key_span),
        _ => Span::new(node.span.source, node.span.start, node.span.start),
    };
    let hint = match Format::of(cx.sources.get(span.source).name()) {
        Format::Json => "an `mcp.json` has `servers` or `mcpServers` at its top, a `tools.json` has `tools`",
        Format::Yaml => "a project has `toolbox` or `registries` at its top; `toolgate init` writes one",
        Format::Toml => "Codex keeps its servers in `[mcp_servers.NAME]`",
    };
    cx.push(Problem::error(span, "this is not a configuration that we know").hint(hint));
}

/// The variables of `.env` files, before anything refers to them.
fn project_env(dialect: Dialect, node: &Node, cx: &mut Context<'_>) -> HashMap<String, FileVariable> {
    let named = if dialect == Dialect::Project { env_files(node, cx) } else { None };
    let usual = cx.project.join(".env");
    match named {
        Some(variables) => variables,
        None if usual.is_file() => cx.read_env_file(&usual).unwrap_or_default(),
        None => HashMap::new(),
    }
}
