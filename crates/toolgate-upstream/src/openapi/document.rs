//! A document of OpenAPI 3.0 or 3.1, read: which operations it has, and what each takes and gives.
//!
//! A pure function of the document and of what the operator says. Invariant: nothing is fetched, whatever a `$ref`
//! names; one bad operation is told and spoils no other; and the work is bounded, whatever the document holds.

use std::collections::HashSet;

use serde_json::{Value, json};
use toolgate_types::api::Looked;
use toolgate_types::{ApiSpec, ToolName};
use url::Url;

use super::base::{self, BaseError};
use super::operation::{Shape, Taken, parameters};
use super::schema::{Direction, Schemas};
use super::security::{Credentials, credentials};
use super::{body, schema};

/// Operations of one document.
const MOST_OPERATIONS: usize = 5_000;
/// References that lead to references.
const MOST_HOPS: usize = 16;
/// The longest description that a tool may have, in bytes.
const LONGEST_DESCRIPTION: usize = 4_000;

const METHODS: [(&str, &str); 7] = [
    ("get", "GET"),
    ("head", "HEAD"),
    ("options", "OPTIONS"),
    ("put", "PUT"),
    ("delete", "DELETE"),
    ("post", "POST"),
    ("patch", "PATCH"),
];

/// Why a document is of no use at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It is something else.
    #[error("it is not a document of OpenAPI 3.0 or 3.1")]
    NotOpenApi,
    /// It is of another version.
    #[error("it is OpenAPI {0}, and 3.0 and 3.1 are understood")]
    Version(String),
    /// It does not say where its API is.
    #[error(transparent)]
    Base(#[from] BaseError),
    /// It has too many operations.
    #[error("it has more than {MOST_OPERATIONS} operations; `include` says which are wanted")]
    TooMany,
}

/// Why a part of a document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Fault(pub(super) String);

/// A document that was read.
#[derive(Debug)]
pub struct Contents {
    /// The version of the API.
    pub version: String,
    /// Its operations.
    pub operations: Vec<Described>,
    /// What was left out or changed, each with its place.
    pub notes: Vec<String>,
    /// Where the API is.
    pub base: Url,
}

/// An operation as a tool.
#[derive(Debug)]
pub struct Described {
    /// The definition of the tool, as a server would write it.
    pub definition: Value,
    /// How it is called.
    pub shape: Shape,
    /// As whom.
    pub credentials: Credentials,
}

/// The document while it is read.
#[derive(Clone, Copy)]
pub(super) struct Document<'a> {
    root: &'a Value,
    /// Whether schemas are JSON Schema as it is, which 3.1 says.
    pub(super) plain_schemas: bool,
}

impl<'a> Document<'a> {
    fn new(root: &'a Value) -> Result<Self, DocumentError> {
        let version = match root.get("openapi") {
            Some(Value::String(version)) => version.clone(),
            Some(Value::Number(version)) => version.to_string(),
            _ => match root.get("swagger") {
                Some(version) => return Err(DocumentError::Version(plain(version))),
                None => return Err(DocumentError::NotOpenApi),
            },
        };
        let is = |minor: &str| version == minor || version.starts_with(&format!("{minor}."));
        match version.as_str() {
            _ if is("3.0") => Ok(Self { root, plain_schemas: false }),
            _ if is("3.1") => Ok(Self { root, plain_schemas: true }),
            _ => Err(DocumentError::Version(version.chars().take(20).collect())),
        }
    }

    /// The part of the document that a reference means.
    pub(super) fn referred(&self, reference: &str) -> Result<&'a Value, Fault> {
        let shown = || reference.chars().take(80).collect::<String>();
        let pointer = reference.strip_prefix('#').ok_or_else(|| {
            Fault(format!("it refers to `{}`, which is not in the document; nothing is fetched", shown()))
        })?;
        let decoded = percent_decoded(pointer);
        self.root
            .pointer(&decoded)
            .ok_or_else(|| Fault(format!("it refers to `{}`, which the document does not have", shown())))
    }

    /// What a part means where it may be a reference to another.
    pub(super) fn follow(&self, part: &'a Value) -> Result<&'a Value, Fault> {
        let mut part = part;
        for _ in 0..MOST_HOPS {
            match part.get("$ref").and_then(Value::as_str) {
                Some(reference) => part = self.referred(reference)?,
                None => return Ok(part),
            }
        }
        Err(Fault("its references go round in a circle".to_owned()))
    }

    /// A member at the top.
    pub(super) fn member(&self, key: &str) -> Option<&'a Value> {
        self.root.get(key)
    }

    /// A named part of `components`.
    pub(super) fn component(&self, kind: &str, name: &str) -> Option<&'a Value> {
        self.root.get("components")?.get(kind)?.get(name)
    }
}

/// Reads a document. `origin` is where it was fetched from, where it was.
///
/// # Errors
/// When nothing of it can be used.
pub fn read(root: &Value, spec: &ApiSpec, origin: Option<&Url>) -> Result<Contents, DocumentError> {
    let document = Document::new(root)?;
    let base = base::of(root, spec, origin)?;
    let info = |key: &str| root.pointer(&format!("/info/{key}")).map(plain).unwrap_or_default();
    let mut contents = Contents { version: info("version"), operations: Vec::new(), notes: Vec::new(), base };
    let mut names = HashSet::new();
    let mut chosen = 0;
    let paths = root.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten().filter(|(path, _)| !path.starts_with("x-")) {
        let item = match document.follow(item) {
            Ok(item) => item,
            Err(fault) => {
                contents.notes.push(format!("`{path}` is left out: {fault}"));
                continue;
            }
        };
        for (key, method) in METHODS {
            let Some(operation) = item.get(key) else { continue };
            let place = Place { document, spec, path, item, method, operation };
            if !place.is_wanted() {
                continue;
            }
            chosen += 1;
            if chosen > MOST_OPERATIONS {
                return Err(DocumentError::TooMany);
            }
            match place.described(&mut names, &mut contents.notes) {
                Ok(described) => contents.operations.push(described),
                Err(fault) => contents.notes.push(format!("`{method} {path}` is left out: {fault}")),
            }
        }
    }
    words_for_nothing(root, spec, &mut contents.notes);
    let has_credentials = !spec.auth.is_empty() || !spec.headers.is_empty();
    // Who allows networks of its own has said that it knows them.
    if contents.base.scheme() == "http" && has_credentials && spec.allow_networks.is_empty() {
        contents.notes.push("credentials go there without encryption; `base_url` can say `https`".to_owned());
    }
    Ok(contents)
}

/// Credentials that the document has no name for.
fn words_for_nothing(root: &Value, spec: &ApiSpec, notes: &mut Vec<String>) {
    let schemes = root.pointer("/components/securitySchemes").and_then(Value::as_object);
    for name in spec.auth.keys().filter(|name| !schemes.is_some_and(|schemes| schemes.contains_key(*name))) {
        let known: Vec<_> = schemes.into_iter().flatten().map(|(name, _)| format!("`{name}`")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        notes.push(format!(
            "`auth` names `{name}`, which is no security scheme of the document; it has {known}"
        ));
    }
}

/// An operation in its document.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) document: Document<'a>,
    pub(super) spec: &'a ApiSpec,
    pub(super) path: &'a str,
    pub(super) item: &'a Value,
    pub(super) method: &'static str,
    pub(super) operation: &'a Value,
}

impl<'a> Place<'a> {
    fn id(&self) -> Option<&'a str> {
        self.operation.get("operationId").and_then(Value::as_str).filter(|id| !id.trim().is_empty())
    }

    fn is_wanted(&self) -> bool {
        let tags = self.operation.get("tags").and_then(Value::as_array);
        let tags: Vec<&str> = tags.into_iter().flatten().filter_map(Value::as_str).collect();
        let looked = Looked {
            operation: self.id().unwrap_or_default(),
            tags: &tags,
            method: self.method,
            path: self.path,
        };
        self.spec.include.fits_all(looked) && !self.spec.exclude.fits_any(looked)
    }

    fn described(&self, names: &mut HashSet<String>, notes: &mut Vec<String>) -> Result<Described, Fault> {
        if !self.operation.is_object() {
            return Err(Fault("it is not an object".to_owned()));
        }
        let elsewhere = [self.operation, self.item].iter().any(|part| part.get("servers").is_some());
        if elsewhere && self.spec.base_url.is_none() {
            return Err(Fault(
                "it has `servers` of its own; `base_url` says where it is all the same".to_owned(),
            ));
        }
        let mut told = Vec::new();
        let credentials = credentials(self, &mut told)?;
        let output = self.output(&mut told);
        let mut noted = Vec::new();
        let (mut shape, mut input) = self.taken(&credentials, false, &mut noted)?;
        if !schema::fits(&input) {
            // Most of a large schema are explanations.
            (shape, input) = self.taken(&credentials, true, &mut Vec::new())?;
        }
        told.extend(noted);
        let name = self.name(names, &mut told)?;
        notes.extend(told.into_iter().map(|note| format!("`{} {}`: {note}", self.method, self.path)));
        let definition = self.definition(&name, input, output);
        Ok(Described { definition, shape, credentials })
    }

    /// How it is called, and the schema of what it takes; without explanations where it is `lean`.
    fn taken(
        &self,
        credentials: &Credentials,
        lean: bool,
        told: &mut Vec<String>,
    ) -> Result<(Shape, Value), Fault> {
        let mut taken = Taken::new(Schemas::new(self.document, Direction::Request, lean));
        let parameters = parameters(self, credentials, &mut taken, told)?;
        let body = body::of(self, &mut taken)?;
        Ok((Shape::new(self, parameters, body)?, taken.schema()?))
    }

    /// What a server would say of it.
    fn definition(&self, name: &str, input: Value, output: Option<Value>) -> Value {
        let text =
            |key: &str| self.operation.get(key).and_then(Value::as_str).map(str::trim).unwrap_or_default();
        let (summary, description) = (text("summary"), text("description"));
        let described = match (summary, description) {
            ("", "") => format!("{} {}", self.method, self.path),
            (summary, "") => summary.to_owned(),
            ("", description) => description.to_owned(),
            (summary, description) if description.starts_with(summary) => description.to_owned(),
            (summary, description) => format!("{}.\n\n{description}", summary.trim_end_matches('.')),
        };
        let deprecated = self.operation.get("deprecated") == Some(&Value::Bool(true));
        let described = if deprecated { format!("Deprecated. {described}") } else { described };
        let reads = is_safe(self.method);
        let mut definition = json!({
            "name": name,
            "description": cut(&described),
            "inputSchema": input,
            "annotations": {
                "readOnlyHint": reads,
                "destructiveHint": !reads,
                "idempotentHint": is_idempotent(self.method),
                "openWorldHint": true,
            },
        });
        if !summary.is_empty() {
            definition["title"] = cut(summary).into();
        }
        if let Some(output) = output {
            definition["outputSchema"] = output;
        }
        definition
    }

    /// The schema of what it gives when it works, where that is JSON and the schema can be used.
    fn output(&self, told: &mut Vec<String>) -> Option<Value> {
        let responses = self.operation.get("responses")?.as_object()?;
        let good = |status: &&String| status.len() == 3 && status.starts_with('2');
        let status = responses.keys().filter(good).min()?;
        let outcome = (|| {
            let response = self.document.follow(&responses[status])?;
            let content = response.get("content").and_then(Value::as_object);
            let json = content.into_iter().flatten().find(|(kind, _)| body::is_json(kind));
            let Some(schema) = json.and_then(|(_, media)| media.get("schema")) else { return Ok(None) };
            schema::whole(self.document, schema, Direction::Response).map(Some)
        })();
        outcome.unwrap_or_else(|fault: Fault| {
            told.push(format!("its result is not checked: {fault}"));
            None
        })
    }

    /// A name that no other has: its `operationId`, else method and path.
    fn name(&self, names: &mut HashSet<String>, told: &mut Vec<String>) -> Result<String, Fault> {
        let by_path = || {
            let path = self.path.replace(['{', '}'], "");
            let words: Vec<_> = path.split('/').filter(|word| !word.is_empty()).collect();
            format!("{}_{}", self.method.to_lowercase(), words.join("_"))
        };
        let legal = |name: &str| {
            let letter =
                |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' };
            format!("{}{}", self.spec.prefix, name.trim().chars().map(letter).collect::<String>())
        };
        let wanted = legal(&self.id().map_or_else(by_path, str::to_owned));
        // Names that differ in capitals alone are one to a reader.
        let free = |name: &str, names: &HashSet<String>| {
            name.parse::<ToolName>().is_ok() && !names.contains(&name.to_lowercase())
        };
        let name = if free(&wanted, names) {
            wanted
        } else {
            let other = legal(&by_path());
            if !free(&other, names) {
                return Err(Fault(format!("its name `{wanted}` is taken or too long, and so is `{other}`")));
            }
            told.push(format!("its name `{wanted}` is taken or too long; the tool is called `{other}`"));
            other
        };
        names.insert(name.to_lowercase());
        Ok(name)
    }
}

/// Whether a method only reads.
pub(super) fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// Whether doing it twice is as good as doing it once.
pub(super) fn is_idempotent(method: &str) -> bool {
    is_safe(method) || matches!(method, "PUT" | "DELETE")
}

/// As much of a text as a model should have to read.
fn cut(text: &str) -> String {
    if text.len() <= LONGEST_DESCRIPTION {
        return text.to_owned();
    }
    let end = (0..=LONGEST_DESCRIPTION).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The text that a fragment of a reference stands for.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
