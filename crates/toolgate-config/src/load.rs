//! Loads a project folder into a checked configuration, or reports all of its problems.
//!
//! Invariant: loading only reads files; it never writes, starts or connects anything.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use url::Url;

use crate::config::Config;
use crate::context::{Context, Environment, FileVariable};
use crate::dialect::Dialect;
use crate::feature::env_file::read_env_files;
use crate::node::{Node, Value};
use crate::problem::{Problem, Report};
use crate::read::{FileFormat, read};
use crate::resolve::ConfigBuilder;
use crate::{overrides, source::Span};

/// Default names of project files. The first one that exists is used.
pub(crate) const PROJECT_FILES: [&str; 4] = ["toolgate.yaml", "toolgate.yml", "agent.yaml", "agent.yml"];
/// Usual file of a `myai` tree. Many other programs use this name too, so its content is checked.
const GENERIC_FILE: &str = "config.yaml";
/// Registries that form a project on their own if there is no project file.
pub(crate) const TOOL_REGISTRIES: [&str; 2] = ["tools/tools.json", "tools.json"];
const SERVER_REGISTRIES: [&str; 4] = ["mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"];

/// Result of loading. `config` is set unless the report contains an error.
#[derive(Debug)]
pub struct LoadOutcome {
    pub config: Option<Config>,
    /// Errors, warnings and notes.
    pub report: Report,
}

/// Loads the project in a folder. `file` names the project file if it has a non-default name.
pub fn load(project: &Path, file: Option<&Path>, environment: &Environment) -> LoadOutcome {
    load_with_overlay(project, file, environment, BTreeMap::new())
}

/// Loads the project in a folder as if the given contents were already written to their files.
pub fn load_with_overlay(
    project: &Path,
    file: Option<&Path>,
    environment: &Environment,
    texts: BTreeMap<PathBuf, Arc<str>>,
) -> LoadOutcome {
    let project = to_absolute(project, environment);
    let mut cx = Context::new(project, environment);
    cx.overlay = texts;
    add_proxy_secrets(&mut cx);
    let mut config = load_project(file, &mut cx);
    if let Some(config) = &mut config {
        config.secrets.clone_from(&cx.secrets);
        if config.egress.secrets {
            config.egress.known.clone_from(&cx.secrets);
        }
    }
    let mut report = Report::new(cx.sources, cx.problems, cx.secrets);
    report.add_omitted(cx.omitted_problems);
    LoadOutcome { config: config.filter(|_| !report.has_errors()), report }
}

/// Registers the passwords of proxies: child processes get them, and could print them.
fn add_proxy_secrets(cx: &mut Context<'_>) {
    for (name, value) in &cx.environment.variables {
        let is_proxy = name.to_ascii_lowercase().contains("proxy");
        let url = Some(value).filter(|_| is_proxy).and_then(|value| Url::parse(value).ok());
        let Some(password) = url.as_ref().and_then(Url::password) else { continue };
        let decoded = percent_decode_str(password).decode_utf8_lossy().into_owned();
        for spelling in [password, &decoded] {
            cx.add_secret("proxy", spelling);
        }
    }
}

/// Makes a path absolute without resolving symbolic links.
pub(crate) fn to_absolute(path: &Path, environment: &Environment) -> PathBuf {
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

fn load_project(file: Option<&Path>, cx: &mut Context<'_>) -> Option<Config> {
    let (files, bare) = find_files(file, cx)?;
    let mut builder = ConfigBuilder::default();
    let mut prefixes = Vec::new();
    for path in files {
        let Some(mut node) = parse(&path, cx) else { continue };
        // A file with everything commented out is empty, not invalid.
        if node.is_null() {
            node.value = Value::Map(Vec::new());
        }
        let Some(dialect) = Dialect::detect(&node, &path) else {
            report_unknown_shape(&node, cx);
            continue;
        };
        if let Some(prefix) = dialect.override_prefix() {
            overrides::apply(&mut node, prefix, cx);
            prefixes.push(prefix);
        }
        if cx.dotenv.is_none() {
            cx.dotenv = Some(read_project_env(dialect, &node, cx));
        }
        dialect.record_registry(&path, &mut builder);
        dialect.read(&node, &mut builder, cx);
    }
    if bare {
        set_default_registries(&mut builder, cx);
    }
    builder.load_default_policy(cx);
    if !prefixes.contains(&overrides::PREFIX) {
        overrides::warn_unused(cx);
    }
    let mut files: Vec<String> = Vec::new();
    for source in cx.sources.iter().filter(|source| source.path().is_some()) {
        // Several servers may use the same `env_file`.
        if !files.iter().any(|known| known == source.name()) {
            files.push(source.name().to_owned());
        }
    }
    Some(builder.finish(files, cx))
}

/// Sets the registry paths of a project without a project file, for registries that do not exist yet.
fn set_default_registries(builder: &mut ConfigBuilder, cx: &Context<'_>) {
    let [inside, beside] = TOOL_REGISTRIES.map(|name| cx.project.join(name));
    let tools = if inside.parent().is_some_and(Path::is_dir) { inside } else { beside };
    builder.registries.tools.get_or_insert(tools);
    builder.registries.servers.get_or_insert_with(|| cx.project.join(SERVER_REGISTRIES[0]));
}

/// Returns the files to read, and true if they are registries without a project file. Reports a missing project.
fn find_files(file: Option<&Path>, cx: &mut Context<'_>) -> Option<(Vec<PathBuf>, bool)> {
    let project = cx.project.clone();
    if !project.is_dir() {
        let message = format!("the folder `{}` does not exist", project.display());
        cx.push(
            Problem::without_span(message)
                .hint("name an existing folder with `-C`, or run `toolgate init DIR`"),
        );
        return None;
    }
    if let Some(file) = file {
        let path = project.join(file);
        if !path.exists() {
            let message = format!("the file `{}` does not exist", file.display());
            cx.push(
                Problem::without_span(message).hint("paths start at the project folder, which `-C` names"),
            );
            return None;
        }
        return Some((vec![path], false));
    }
    let first = |names: &[&str]| names.iter().map(|name| project.join(name)).find(|path| cx.has_file(path));
    if let Some(file) =
        first(&PROJECT_FILES).or_else(|| first(&[GENERIC_FILE]).filter(|file| is_known_config(file, cx)))
    {
        return Some((vec![file], false));
    }
    let registries: Vec<_> =
        [first(&TOOL_REGISTRIES), first(&SERVER_REGISTRIES)].into_iter().flatten().collect();
    if registries.is_empty() {
        let message = format!("there is no project in `{}`", project.display());
        let hint = "run `toolgate init` to write one, or name a file with `--file`";
        cx.push(Problem::without_span(message).hint(hint));
        return None;
    }
    Some((registries, true))
}

/// Returns true if a file with a generic name is a known configuration, or if it cannot be parsed.
fn is_known_config(path: &Path, cx: &Context<'_>) -> bool {
    let mut aside = Context::new(cx.project.clone(), cx.environment);
    parse(path, &mut aside).is_none_or(|node| Dialect::detect(&node, path).is_some())
}

/// Parses a file into a tree and reports its problems.
pub(crate) fn parse(path: &Path, cx: &mut Context<'_>) -> Option<Node> {
    let name = path.to_string_lossy().into_owned();
    let node = cx.open(path).and_then(|id| read(&cx.sources, id, FileFormat::of(&name)));
    node.map_err(|problem| cx.push(problem)).ok()
}

fn report_unknown_shape(node: &Node, cx: &mut Context<'_>) {
    let span = match &node.value {
        Value::Map(entries) => entries.first().map_or(node.span, |entry| entry.key_span),
        _ => Span::new(node.span.source, node.span.start, node.span.start),
    };
    let hint = match FileFormat::of(cx.sources.get(span.source).name()) {
        FileFormat::Json => {
            "an `mcp.json` has `servers` or `mcpServers` at its top, a `tools.json` has `tools`"
        }
        FileFormat::Yaml => "a project has `toolbox` or `registries` at its top; `toolgate init` writes one",
        FileFormat::Toml => "Codex keeps its servers in `[mcp_servers.NAME]`",
    };
    cx.push(Problem::error(span, "unknown kind of configuration file").hint(hint));
}

/// Reads the variables of `.env` files, before anything refers to them.
fn read_project_env(dialect: Dialect, node: &Node, cx: &mut Context<'_>) -> HashMap<String, FileVariable> {
    let named = if dialect == Dialect::Project { read_env_files(node, cx) } else { None };
    let default_file = cx.project.join(".env");
    match named {
        Some(variables) => variables,
        None if default_file.is_file() => cx.read_env_file(&default_file).unwrap_or_default(),
        None => HashMap::new(),
    }
}
