//! State shared by all readers of the configuration: the environment, the problems found so far, and the
//! owner of the file being read.
//!
//! Invariant: the value of a variable is registered as a secret before it can be shown.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolgate_redact::{literal_parts, looks_secret, mask_config};
use toolgate_state::read_regular;
use toolgate_types::{ConfigString, Secret};

use crate::node::{Node, ScalarKind, Value};
use crate::problem::{MAX_PROBLEMS, Problem, Severity};
use crate::read::dotenv;
use crate::source::{MAX_FILE_BYTES, SourceId, SourceMap, SourceVisibility, Span};
use crate::variable::{ExpansionError, VariableReference, expand};

/// Minimum length of a variable's value to be masked in messages. Masking `true` or `8080` would hide half
/// of a message and protect nothing.
const MIN_SECRET_BYTES: usize = 6;

/// Words of our own messages. Masking a variable with one of these values protects nothing and garbles
/// the messages.
const MESSAGE_WORDS: [&str; 15] = [
    "configured",
    "default",
    "default_tool_config",
    "dynamic",
    "environment",
    "last_wins",
    "latin-1",
    "missing",
    "optional",
    "qualify",
    "required",
    "server",
    "strict",
    "variable",
    "websocket",
];

/// Environment variables and home folder at the start of loading.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub variables: BTreeMap<String, String>,
    /// Home folder of the user.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// Returns the environment of this process. Variables that are not UTF-8 are left out.
    pub fn from_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect(), home: std::env::home_dir() }
    }
}

/// Owner of the file being read. Unknown keys are errors in Toolgate's own files, notes in others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileOwner {
    Toolgate,
    OtherProgram,
}

/// An input and its answer, if it has one.
#[derive(Debug, Clone)]
pub(crate) struct InputAnswer {
    pub(crate) id: String,
    pub(crate) value: Option<String>,
}

/// A variable of a `.env` file.
#[derive(Debug, Clone)]
pub(crate) struct FileVariable {
    pub(crate) value: String,
    pub(crate) span: Span,
}

pub(crate) struct Context<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) project: PathBuf,
    /// Contents to read in place of files.
    pub(crate) overlay: BTreeMap<PathBuf, Arc<str>>,
    pub(crate) sources: SourceMap,
    pub(crate) problems: Vec<Problem>,
    /// Problems beyond [`MAX_PROBLEMS`].
    pub(crate) omitted_problems: usize,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) file_owner: FileOwner,
    /// Variables of the project's `.env` files; `None` until they are read.
    pub(crate) dotenv: Option<HashMap<String, FileVariable>>,
    /// Variables of the current server's `env_file`. They take precedence over `dotenv`.
    pub(crate) server_env: HashMap<String, FileVariable>,
    pub(crate) inputs: Vec<InputAnswer>,
    /// Variables that were referred to, and where they are set; `None` for the environment.
    used_variables: BTreeMap<String, Option<Span>>,
    /// Maps being read, outermost first, as messages name them: "tool `echo`".
    pub(crate) labels: Vec<String>,
    /// Key whose value is being read.
    pub(crate) key: Option<String>,
    /// Name of the next map: its key in the surrounding map.
    pub(crate) next_name: Option<String>,
}

/// A string with its references resolved.
pub(crate) struct ResolvedText {
    pub(crate) value: String,
    /// True if part of it came from outside the file.
    pub(crate) is_external: bool,
}

/// A resolved reference.
struct VariableUse {
    name: String,
    value: String,
    /// Location of the variable (`None`: the environment). An input is not a variable.
    variable: Option<Option<Span>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(project: PathBuf, environment: &'a Environment) -> Self {
        Self {
            environment,
            project,
            overlay: BTreeMap::new(),
            sources: SourceMap::default(),
            problems: Vec::new(),
            omitted_problems: 0,
            secrets: Vec::new(),
            file_owner: FileOwner::Toolgate,
            dotenv: None,
            server_env: HashMap::new(),
            inputs: Vec::new(),
            used_variables: BTreeMap::new(),
            labels: Vec::new(),
            key: None,
            next_name: None,
        }
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        // Errors have room of their own: after too many warnings, an error must still reject the configuration.
        let room = if problem.severity == Severity::Error { 2 * MAX_PROBLEMS } else { MAX_PROBLEMS };
        if self.problems.len() < room {
            self.problems.push(problem);
        } else {
            self.omitted_problems += 1;
        }
    }

    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Problem::error(span, message).hint(hint));
    }

    /// Returns `" in tool `echo`"`, or an empty string at the top of a file.
    pub(crate) fn location_suffix(&self) -> String {
        self.labels.last().map(|label| format!(" in {label}")).unwrap_or_default()
    }

    /// Returns true if the file exists or has contents in the overlay.
    pub(crate) fn has_file(&self, path: &Path) -> bool {
        self.overlay.contains_key(path) || path.is_file()
    }

    /// Adds a file to the sources. Paths inside the project are shown relative to it.
    pub(crate) fn open(&mut self, path: &Path) -> Result<SourceId, Problem> {
        let name = path.strip_prefix(&self.project).unwrap_or(path).display().to_string();
        if let Some(text) = self.overlay.get(path) {
            return Ok(self.sources.add(name, text.to_string(), Some(path.to_owned())));
        }
        let refuse = |what: String| Problem::without_span(format!("`{name}` cannot be read: {what}"));
        let bytes = read_regular(path, MAX_FILE_BYTES).map_err(|error| match error.kind() {
            ErrorKind::FileTooLarge => refuse(format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20)),
            _ => refuse(describe_io_error(&error)),
        })?;
        let is_writable = toolgate_state::is_writable_by_others(path);
        match String::from_utf8(bytes) {
            Ok(text) => {
                let id = self.sources.add(name.clone(), text, Some(path.to_owned()));
                if is_writable {
                    let message = format!("other users can change `{name}`");
                    let hint = "they could add commands that run as you: make the file yours, and run `chmod go-w` on it";
                    self.push(Problem::warning(Span::new(id, 0, 0), message).hint(hint));
                }
                Ok(id)
            }
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let good = String::from_utf8_lossy(&error.as_bytes()[..at]).into_owned();
                let id = self.sources.add(name, good, Some(path.to_owned()));
                Err(Problem::error(Span::new(id, at, at), "the file is not UTF-8 from here on")
                    .hint("save it as UTF-8"))
            }
        }
    }

    /// Reads the variables of a `.env` file and reports its problems.
    pub(crate) fn read_env_file(&mut self, path: &Path) -> Option<HashMap<String, FileVariable>> {
        let id = match self.open(path) {
            Ok(id) => id,
            Err(problem) => {
                self.push(problem);
                return None;
            }
        };
        self.sources.set_visibility(id, SourceVisibility::Names);
        let (variables, problems) = dotenv::read(self.sources.get(id).text(), id);
        for problem in problems {
            // An invalid line may still contain a secret.
            let line = problem.span.map(|span| self.sources.text(span)).unwrap_or_default();
            let value = line.split_once('=').map_or(line, |(_, value)| value);
            let value = value.trim_matches(['"', '\'', ' ']).to_owned();
            self.hide(&value);
            self.push(problem);
        }
        let mut known = HashMap::new();
        for dotenv::EnvVariable { name, value, span } in variables {
            self.add_secret(&name, &value);
            known.insert(name, FileVariable { value, span });
        }
        Some(known)
    }

    /// Registers a value as a secret, so that it is masked everywhere, unless it is too short or too common.
    pub(crate) fn add_secret(&mut self, name: &str, value: &str) {
        let is_maskable = |value: &str| value.len() >= MIN_SECRET_BYTES && !MESSAGE_WORDS.contains(&value);
        if !is_maskable(value) && !looks_secret(name) {
            return;
        }
        self.hide(value);
        // Messages show files line by line.
        if value.contains('\n') {
            value.lines().map(str::trim).filter(|line| is_maskable(line)).for_each(|line| self.hide(line));
        }
    }

    pub(crate) fn hide(&mut self, value: &str) {
        if !value.is_empty() && !self.secrets.iter().any(|known| known.expose() == value) {
            self.secrets.push(Secret::new(value));
        }
    }

    /// Registers the secrets of a server before any problem with it is reported.
    pub(crate) fn add_server_secrets(&mut self, server: &Node) {
        for key in ["env", "headers", "config"] {
            if let Some(node) = server.get(key) {
                self.add_secret_values(key, node);
            }
        }
        let Some(Value::List(args)) = server.get("args").map(|args| &args.value) else { return };
        let mut flag = None;
        for arg in args.iter().filter_map(Node::as_text) {
            match (flag, arg.strip_prefix('-').and_then(|flag| flag.split_once('='))) {
                (_, Some((name, value))) if looks_secret(name) => self.add_literal_parts(name, value),
                (Some(name), _) if looks_secret(name) && !arg.starts_with('-') => {
                    self.add_literal_parts(name, arg);
                }
                _ => {}
            }
            flag = arg.strip_prefix('-').map(|flag| flag.trim_start_matches('-'));
        }
    }

    /// Registers the literal parts of a string. References are registered with their variables.
    fn add_literal_parts(&mut self, name: &str, text: &str) {
        literal_parts(text).into_iter().for_each(|part| self.add_secret(name, part.trim()));
    }

    /// Registers every string in a tree as a secret of this name.
    pub(crate) fn add_secret_values(&mut self, name: &str, node: &Node) {
        match &node.value {
            Value::Scalar(scalar) if matches!(scalar.kind, ScalarKind::String | ScalarKind::Number) => {
                self.add_literal_parts(name, &scalar.text);
            }
            Value::Scalar(_) => {}
            Value::List(items) => items.iter().for_each(|item| self.add_secret_values(name, item)),
            Value::Map(entries) => {
                entries.iter().for_each(|entry| self.add_secret_values(&entry.key, &entry.node));
            }
        }
    }

    /// Resolves the references in a scalar. Reports those that cannot be resolved and returns `None`.
    pub(crate) fn resolve(&mut self, node: &Node) -> Option<ResolvedText> {
        let Value::Scalar(scalar) = &node.value else { return None };
        if scalar.kind != ScalarKind::String || !scalar.text.contains('$') {
            return Some(ResolvedText { value: scalar.text.clone(), is_external: false });
        }
        let text = scalar.text.clone();
        let mut used = Vec::new();
        let expanded = expand(&text, &mut |reference| self.look_up(reference, &mut used));
        for VariableUse { name, value, variable } in used {
            self.add_secret(&name, &value);
            if let Some(place) = variable {
                self.used_variables.insert(name, place);
            }
        }
        match expanded {
            Ok(expansion) => {
                Some(ResolvedText { value: expansion.value, is_external: expansion.is_external })
            }
            Err(errors) => {
                for (range, fault) in errors {
                    let span = self.subspan(node.span, &text, range);
                    let message = match (&fault, self.labels.last()) {
                        (ExpansionError::Unset(_), Some(label)) => format!("{fault}, and {label} needs it"),
                        _ => format!("{fault}{}", self.location_suffix()),
                    };
                    self.error(span, message, fault.hint());
                }
                None
            }
        }
    }

    fn look_up(&self, reference: VariableReference<'_>, used: &mut Vec<VariableUse>) -> Option<String> {
        let (name, value, variable) = match reference {
            VariableReference::Variable(name) => {
                self.variable(name).map(|(value, place)| (name, value.to_owned(), Some(place)))?
            }
            VariableReference::Input(id) => {
                let input = self.inputs.iter().find(|input| input.id == id)?;
                (id, input.value.clone().unwrap_or_default(), None)
            }
            VariableReference::Place(name) => return self.editor_variable(name),
        };
        used.push(VariableUse { name: name.to_owned(), value: value.clone(), variable });
        Some(value)
    }

    /// Returns the value of a variable and where it is set. The process environment takes precedence.
    pub(crate) fn variable(&self, name: &str) -> Option<(&str, Option<Span>)> {
        if let Some(value) = self.environment.variables.get(name) {
            return Some((value, None));
        }
        let variable = self.server_env.get(name).or_else(|| self.dotenv.as_ref()?.get(name))?;
        Some((&variable.value, Some(variable.span)))
    }

    /// Returns the variables that were referred to, each with its location.
    pub(crate) fn variables_used(&self) -> BTreeMap<String, String> {
        let place = |place: &Option<Span>| {
            place.map_or_else(|| "environment".to_owned(), |span| self.sources.location(span))
        };
        self.used_variables.iter().map(|(name, span)| (name.clone(), place(span))).collect()
    }

    fn editor_variable(&self, name: &str) -> Option<String> {
        let path = |path: &Path| path.display().to_string();
        match name {
            "workspaceFolder" | "workspaceRoot" => Some(path(&self.project)),
            "workspaceFolderBasename" => {
                self.project.file_name().map(|name| name.to_string_lossy().into_owned())
            }
            "userHome" => self.environment.home.as_deref().map(path),
            "pathSeparator" | "/" => Some(std::path::MAIN_SEPARATOR.to_string()),
            _ => None,
        }
    }

    /// Narrows a span to a part of the scalar's text, if the file contains the text literally.
    fn subspan(&self, span: Span, text: &str, range: std::ops::Range<usize>) -> Span {
        match self.sources.text(span).find(text) {
            Some(at) => Span::new(span.source, span.start + at + range.start, span.start + at + range.end),
            None => span,
        }
    }

    /// Resolves a scalar, together with the form that may be shown: as written if it contains a variable,
    /// with `***` for literals that look like secrets.
    pub(crate) fn resolve_text(&mut self, node: &Node) -> Option<ConfigString> {
        let written = node.as_text().unwrap_or_default().to_owned();
        let resolved = self.resolve(node)?;
        let shown = mask_config(if resolved.is_external { &written } else { &resolved.value }, &[]);
        Some(ConfigString::new(resolved.value, shown))
    }

    /// Returns true if a string contains an input that has no answer yet, so its value is unknown.
    pub(crate) fn awaits_input(&self, text: &ConfigString) -> bool {
        let asked = |input: &&InputAnswer| text.redacted().contains(&format!("${{input:{}}}", input.id));
        self.inputs.iter().filter(|input| input.value.is_none()).any(|input| asked(&input))
    }

    /// Returns the folder that relative paths in a file start from.
    pub(crate) fn source_folder(&self, span: Span) -> PathBuf {
        let file = self.sources.get(span.source).path();
        file.and_then(Path::parent).map_or_else(|| self.project.clone(), Path::to_owned)
    }
}

/// Describes an I/O error without the path, since the message already names it.
pub(crate) fn describe_io_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        std::io::ErrorKind::InvalidInput => "it is not a regular file".to_owned(),
        kind => kind.to_string(),
    }
}
