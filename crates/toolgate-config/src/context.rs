//! What every reader of the configuration shares: the environment, the problems found so far, and
//! whose file is being read.
//!
//! Invariant: whatever comes out of a variable is known as a secret before anyone sees it.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolgate_types::redact::{literal_parts, looks_secret, mask};
use toolgate_types::{Secret, Text};

use crate::node::{Kind, Node, Value};
use crate::problem::Problem;
use crate::read::dotenv;
use crate::source::{LARGEST_FILE, Shows, SourceId, Sources, Span};
use crate::variable::{Fault, Reference, expand};

/// A value out of a variable is looked for in messages when it is at least this long; `true` or
/// `8080` would hide half of a message and protect nothing.
const SHORTEST_FROM_VARIABLE: usize = 6;

/// Words of our own messages: a variable that holds one of them protects nothing, and hiding it would
/// hide what we say.
const OUR_WORDS: [&str; 15] = [
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

/// The world outside of the files, as it was when loading began.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The environment variables.
    pub variables: BTreeMap<String, String>,
    /// The person's home folder.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process. Variables that are not UTF-8 are left out.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect(), home: std::env::home_dir() }
    }
}

/// Whose file is being read: in ours an unknown key is an error, in others' a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Others,
}

/// Something a person is asked for when a server starts.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) id: String,
    pub(crate) value: Option<String>,
}

/// A variable of a `.env` file.
#[derive(Debug, Clone)]
pub(crate) struct FileVariable {
    pub(crate) value: String,
    pub(crate) span: Span,
}

/// The state of loading.
pub(crate) struct Context<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) project: PathBuf,
    /// Texts that are read in the place of files.
    pub(crate) texts: BTreeMap<PathBuf, Arc<str>>,
    pub(crate) sources: Sources,
    pub(crate) problems: Vec<Problem>,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) whose: Whose,
    /// Variables of the project's `.env` files; `None` until they were read.
    pub(crate) dotenv: Option<HashMap<String, FileVariable>>,
    /// Variables of the `env_file` of the server that is being read; they count more.
    pub(crate) server_env: HashMap<String, FileVariable>,
    pub(crate) inputs: Vec<Input>,
    /// The variables that texts referred to, and where those of files are set.
    used: BTreeMap<String, Option<Span>>,
    /// The map that is being read, as messages name it: "tool `echo`".
    pub(crate) labels: Vec<String>,
    /// The key whose value is being read.
    pub(crate) key: Option<String>,
    /// The name that the next map has by its key in the map around it.
    pub(crate) next_name: Option<String>,
}

/// A text with its references resolved.
pub(crate) struct Resolved {
    pub(crate) value: String,
    /// Whether part of it came from outside of the file.
    pub(crate) from_outside: bool,
}

/// What a reference came to.
struct Used {
    name: String,
    value: String,
    /// Where the variable is set, with `None` for the environment; no variable is an input.
    variable: Option<Option<Span>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(project: PathBuf, environment: &'a Environment) -> Self {
        Self {
            environment,
            project,
            texts: BTreeMap::new(),
            sources: Sources::default(),
            problems: Vec::new(),
            secrets: Vec::new(),
            whose: Whose::Ours,
            dotenv: None,
            server_env: HashMap::new(),
            inputs: Vec::new(),
            used: BTreeMap::new(),
            labels: Vec::new(),
            key: None,
            next_name: None,
        }
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.push(Problem::error(span, message).hint(hint));
    }

    /// `" in tool `echo`"`, or nothing at the top of a file.
    pub(crate) fn whereabouts(&self) -> String {
        self.labels.last().map(|label| format!(" in {label}")).unwrap_or_default()
    }

    /// Whether there is a file, or a text in its place.
    pub(crate) fn has_file(&self, path: &Path) -> bool {
        self.texts.contains_key(path) || path.is_file()
    }

    /// Adds a file to the texts. A path inside of the project is shown relative to it.
    pub(crate) fn open(&mut self, path: &Path) -> Result<SourceId, Problem> {
        let name = path.strip_prefix(&self.project).unwrap_or(path).display().to_string();
        if let Some(text) = self.texts.get(path) {
            return Ok(self.sources.add(name, text.to_string(), Some(path.to_owned())));
        }
        let refuse = |what: String| Problem::nowhere(format!("`{name}` cannot be read: {what}"));
        // Counted while it is read: what is no file, such as a device, has no size and no end.
        let mut bytes = Vec::new();
        fs_err::File::open(path)
            .and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes))
            .map_err(|error| refuse(reason(&error)))?;
        if bytes.len() as u64 > LARGEST_FILE {
            return Err(refuse(format!("it is larger than {} MiB", LARGEST_FILE >> 20)));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(self.sources.add(name, text, Some(path.to_owned()))),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let good = String::from_utf8_lossy(&error.as_bytes()[..at]).into_owned();
                let id = self.sources.add(name, good, Some(path.to_owned()));
                Err(Problem::error(Span::new(id, at, at), "the file is not UTF-8 from here on")
                    .hint("save it as UTF-8"))
            }
        }
    }

    /// The variables of a `.env` file; what is wrong with it is told.
    pub(crate) fn read_env_file(&mut self, path: &Path) -> Option<HashMap<String, FileVariable>> {
        let id = match self.open(path) {
            Ok(id) => id,
            Err(problem) => {
                self.push(problem);
                return None;
            }
        };
        self.sources.restrict(id, Shows::Names);
        let (variables, problems) = dotenv::read(self.sources.get(id).text(), id);
        for problem in problems {
            // A line that is wrong may hold a secret all the same.
            let line = problem.span.map(|span| self.sources.text(span)).unwrap_or_default();
            let value = line.split_once('=').map_or(line, |(_, value)| value);
            let value = value.trim_matches(['"', '\'', ' ']).to_owned();
            self.hide(&value);
            self.push(problem);
        }
        let mut known = HashMap::new();
        for dotenv::Variable { name, value, span } in variables {
            self.keep_secret(&name, &value);
            known.insert(name, FileVariable { value, span });
        }
        Some(known)
    }

    /// From now on this value is masked wherever it turns up.
    pub(crate) fn keep_secret(&mut self, name: &str, value: &str) {
        let worth_it = |value: &str| value.len() >= SHORTEST_FROM_VARIABLE && !OUR_WORDS.contains(&value);
        if !worth_it(value) && !looks_secret(name) {
            return;
        }
        self.hide(value);
        // Messages show files line by line.
        if value.contains('\n') {
            value.lines().map(str::trim).filter(|line| worth_it(line)).for_each(|line| self.hide(line));
        }
    }

    pub(crate) fn hide(&mut self, value: &str) {
        if !value.is_empty() && !self.secrets.iter().any(|known| known.expose() == value) {
            self.secrets.push(Secret::new(value));
        }
    }

    /// Knows the secrets of a server before anything about it is told, whatever is wrong with it.
    pub(crate) fn keep_secrets_of_server(&mut self, server: &Node) {
        for key in ["env", "headers", "config"] {
            if let Some(node) = server.get(key) {
                self.keep_values_secret(key, node);
            }
        }
        let Some(Value::List(args)) = server.get("args").map(|args| &args.value) else { return };
        let mut flag = None;
        for arg in args.iter().filter_map(Node::as_text) {
            match (flag, arg.strip_prefix('-').and_then(|flag| flag.split_once('='))) {
                (_, Some((name, value))) if looks_secret(name) => self.keep_literals(name, value),
                (Some(name), _) if looks_secret(name) && !arg.starts_with('-') => {
                    self.keep_literals(name, arg);
                }
                _ => {}
            }
            flag = arg.strip_prefix('-').map(|flag| flag.trim_start_matches('-'));
        }
    }

    /// What a reference stands for is known by its variable; the rest of the text is not.
    fn keep_literals(&mut self, name: &str, text: &str) {
        literal_parts(text).into_iter().for_each(|part| self.keep_secret(name, part.trim()));
    }

    /// Every text in a tree is a secret, by this name.
    pub(crate) fn keep_values_secret(&mut self, name: &str, node: &Node) {
        match &node.value {
            Value::Scalar(scalar) if matches!(scalar.kind, Kind::String | Kind::Number) => {
                self.keep_literals(name, &scalar.text);
            }
            Value::Scalar(_) => {}
            Value::List(items) => items.iter().for_each(|item| self.keep_values_secret(name, item)),
            Value::Map(entries) => {
                entries.iter().for_each(|entry| self.keep_values_secret(&entry.key, &entry.node));
            }
        }
    }

    /// The text of a scalar, references resolved; `None` where one cannot be, which is told.
    pub(crate) fn resolve(&mut self, node: &Node) -> Option<Resolved> {
        let Value::Scalar(scalar) = &node.value else { return None };
        if scalar.kind != Kind::String || !scalar.text.contains('$') {
            return Some(Resolved { value: scalar.text.clone(), from_outside: false });
        }
        let text = scalar.text.clone();
        let mut used = Vec::new();
        let expanded = expand(&text, &mut |reference| self.look_up(reference, &mut used));
        for Used { name, value, variable } in used {
            self.keep_secret(&name, &value);
            if let Some(place) = variable {
                self.used.insert(name, place);
            }
        }
        match expanded {
            Ok(expansion) => Some(Resolved { value: expansion.value, from_outside: expansion.resolved }),
            Err(broken) => {
                for (range, fault) in broken {
                    let span = self.inside(node.span, &text, range);
                    let message = match (&fault, self.labels.last()) {
                        (Fault::Unset(_), Some(label)) => format!("{fault}, and {label} needs it"),
                        _ => format!("{fault}{}", self.whereabouts()),
                    };
                    self.error(span, message, fault.hint());
                }
                None
            }
        }
    }

    fn look_up(&self, reference: Reference<'_>, used: &mut Vec<Used>) -> Option<String> {
        let (name, value, variable) = match reference {
            Reference::Variable(name) => {
                self.variable(name).map(|(value, place)| (name, value.to_owned(), Some(place)))?
            }
            Reference::Input(id) => {
                let input = self.inputs.iter().find(|input| input.id == id)?;
                (id, input.value.clone().unwrap_or_default(), None)
            }
            Reference::Place(name) => return self.editor_place(name),
        };
        used.push(Used { name: name.to_owned(), value: value.clone(), variable });
        Some(value)
    }

    /// The value of a variable and where it comes from: the environment counts most.
    pub(crate) fn variable(&self, name: &str) -> Option<(&str, Option<Span>)> {
        if let Some(value) = self.environment.variables.get(name) {
            return Some((value, None));
        }
        let variable = self.server_env.get(name).or_else(|| self.dotenv.as_ref()?.get(name))?;
        Some((&variable.value, Some(variable.span)))
    }

    /// The variables that texts referred to, each with where it was found.
    pub(crate) fn variables_used(&self) -> BTreeMap<String, String> {
        let place = |place: &Option<Span>| {
            place.map_or_else(|| "environment".to_owned(), |span| self.sources.place(span))
        };
        self.used.iter().map(|(name, span)| (name.clone(), place(span))).collect()
    }

    fn editor_place(&self, name: &str) -> Option<String> {
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

    /// The place of a part of a scalar's text, where the file spells the text as it is.
    fn inside(&self, span: Span, text: &str, range: std::ops::Range<usize>) -> Span {
        match self.sources.text(span).find(text) {
            Some(at) => Span::new(span.source, span.start + at + range.start, span.start + at + range.end),
            None => span,
        }
    }

    /// The text of a scalar with what may be shown of it: as written where a variable is in it,
    /// `***` where a literal looks like a secret.
    pub(crate) fn resolve_text(&mut self, node: &Node) -> Option<Text> {
        let written = node.as_text().unwrap_or_default().to_owned();
        let resolved = self.resolve(node)?;
        let shown = if resolved.from_outside { mask(&written, &[]) } else { mask(&resolved.value, &[]) };
        Some(Text::new(resolved.value, shown))
    }

    /// Whether a text waits for the answer to an input: what it will be is not known yet.
    pub(crate) fn waits(&self, text: &Text) -> bool {
        let asked = |input: &&Input| text.shown().contains(&format!("${{input:{}}}", input.id));
        self.inputs.iter().filter(|input| input.value.is_none()).any(|input| asked(&input))
    }

    /// The folder that relative paths in a file start from.
    pub(crate) fn folder(&self, span: Span) -> PathBuf {
        let file = self.sources.get(span.source).path();
        file.and_then(Path::parent).map_or_else(|| self.project.clone(), Path::to_owned)
    }
}

/// What went wrong, without the path that the message names already.
pub(crate) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        kind => kind.to_string(),
    }
}
