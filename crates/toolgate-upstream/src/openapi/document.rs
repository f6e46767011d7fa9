//! Reads an OpenAPI 3.0 or 3.1 document: its operations, with their parameters and results.
//!
//! A pure function of the document and the configuration. Invariant: nothing is fetched, no matter what a `$ref` names;
//! one bad operation is reported and affects no other; and the work is bounded, no matter what the document contains.

use std::collections::HashSet;

use serde_json::{Value, json};
use toolgate_types::api::ApiOperation;
use toolgate_types::{ApiSpec, ToolName};
use url::Url;

use super::base_url::{self, BaseUrlError};
use super::operation::{ArgumentSchemaBuilder, RequestTemplate, parameters};
use super::schema::{Direction, SchemaTranslator};
use super::security::{Credentials, credentials};
use super::{body, schema};

/// Operations per document.
const MAX_OPERATIONS: usize = 5_000;
/// The longest chain of references.
const MAX_REFERENCE_HOPS: usize = 16;
/// The longest description of a tool.
const MAX_DESCRIPTION_BYTES: usize = 4_000;

const METHODS: [(&str, &str); 7] = [
    ("get", "GET"),
    ("head", "HEAD"),
    ("options", "OPTIONS"),
    ("put", "PUT"),
    ("delete", "DELETE"),
    ("post", "POST"),
    ("patch", "PATCH"),
];

/// A document that cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It is not an OpenAPI document.
    #[error("it is not an OpenAPI 3.0 or 3.1 document")]
    NotOpenApi,
    /// It has an unsupported version.
    #[error("OpenAPI {0} is not supported (supported: 3.0, 3.1)")]
    Version(String),
    /// It has no usable base URL.
    #[error(transparent)]
    Base(#[from] BaseUrlError),
    #[error("it has more than {MAX_OPERATIONS} operations; select some with `include`")]
    TooMany,
}

/// A part of a document that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct DocumentFault(pub(super) String);

/// The contents of a document.
#[derive(Debug)]
pub struct DocumentContents {
    pub version: String,
    pub operations: Vec<OperationTool>,
    /// Everything that was left out or changed, each with its operation.
    pub notes: Vec<String>,
    pub base: Url,
}

/// An operation as a tool.
#[derive(Debug)]
pub struct OperationTool {
    /// The tool definition, in the form an MCP server would send.
    pub definition: Value,
    pub shape: RequestTemplate,
    pub credentials: Credentials,
}

/// A document being read.
#[derive(Clone, Copy)]
pub(super) struct OpenApiDocument<'a> {
    root: &'a Value,
    /// True if schemas are plain JSON Schema, as in 3.1.
    pub(super) plain_schemas: bool,
}

impl<'a> OpenApiDocument<'a> {
    fn new(root: &'a Value) -> Result<Self, DocumentError> {
        let version = match root.get("openapi") {
            Some(Value::String(version)) => version.clone(),
            Some(Value::Number(version)) => version.to_string(),
            _ => match root.get("swagger") {
                Some(version) => return Err(DocumentError::Version(plain_string(version))),
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

    /// The part of the document that a reference points to.
    pub(super) fn resolve_reference(&self, reference: &str) -> Result<&'a Value, DocumentFault> {
        let shown = || reference.chars().take(80).collect::<String>();
        let pointer = reference.strip_prefix('#').ok_or_else(|| {
            DocumentFault(format!(
                "it refers to `{}`, which is outside of the document and is not fetched",
                shown()
            ))
        })?;
        let decoded = percent_decode(pointer);
        self.root
            .pointer(&decoded)
            .ok_or_else(|| DocumentFault(format!("it refers to `{}`, which is not in the document", shown())))
    }

    /// Follows references until a part is not a reference.
    pub(super) fn resolve(&self, part: &'a Value) -> Result<&'a Value, DocumentFault> {
        let mut part = part;
        for _ in 0..MAX_REFERENCE_HOPS {
            match part.get("$ref").and_then(Value::as_str) {
                Some(reference) => part = self.resolve_reference(reference)?,
                None => return Ok(part),
            }
        }
        Err(DocumentFault("its references form a cycle".to_owned()))
    }

    /// A top-level member.
    pub(super) fn member(&self, key: &str) -> Option<&'a Value> {
        self.root.get(key)
    }

    /// A named part of `components`.
    pub(super) fn component(&self, kind: &str, name: &str) -> Option<&'a Value> {
        self.root.get("components")?.get(kind)?.get(name)
    }
}

/// Reads a document. `origin` is the URL it was fetched from, if it was fetched.
///
/// # Errors
/// If no part of it can be used.
pub fn read_document(
    root: &Value,
    spec: &ApiSpec,
    origin: Option<&Url>,
) -> Result<DocumentContents, DocumentError> {
    let document = OpenApiDocument::new(root)?;
    let base = base_url::resolve(root, spec, origin)?;
    let info = |key: &str| root.pointer(&format!("/info/{key}")).map(plain_string).unwrap_or_default();
    let mut contents =
        DocumentContents { version: info("version"), operations: Vec::new(), notes: Vec::new(), base };
    let mut names = HashSet::new();
    let mut chosen = 0;
    let paths = root.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten().filter(|(path, _)| !path.starts_with("x-")) {
        let item = match document.resolve(item) {
            Ok(item) => item,
            Err(fault) => {
                contents.notes.push(format!("`{path}` is left out: {fault}"));
                continue;
            }
        };
        for (key, method) in METHODS {
            let Some(operation) = item.get(key) else { continue };
            let context = OperationContext { document, spec, path, item, method, operation };
            if !context.is_selected() {
                continue;
            }
            chosen += 1;
            if chosen > MAX_OPERATIONS {
                return Err(DocumentError::TooMany);
            }
            match context.build_tool(&mut names, &mut contents.notes) {
                Ok(described) => contents.operations.push(described),
                Err(fault) => contents.notes.push(format!("`{method} {path}` is left out: {fault}")),
            }
        }
    }
    note_unknown_schemes(root, spec, &mut contents.notes);
    let has_credentials = !spec.auth.is_empty() || !spec.headers.is_empty();
    // An operator who allows networks explicitly has accepted them as they are.
    if contents.base.scheme() == "http" && has_credentials && spec.allow_networks.is_empty() {
        contents
            .notes
            .push("credentials are sent without encryption; set `base_url` to an `https` URL".to_owned());
    }
    Ok(contents)
}

/// Notes credentials in `auth` that match no security scheme of the document.
fn note_unknown_schemes(root: &Value, spec: &ApiSpec, notes: &mut Vec<String>) {
    let schemes = root.pointer("/components/securitySchemes").and_then(Value::as_object);
    for name in spec.auth.keys().filter(|name| !schemes.is_some_and(|schemes| schemes.contains_key(*name))) {
        let known: Vec<_> = schemes.into_iter().flatten().map(|(name, _)| format!("`{name}`")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        notes.push(format!(
            "`auth` names `{name}`, which is not a security scheme of the document (it has: {known})"
        ));
    }
}

/// An operation in its document.
#[derive(Clone, Copy)]
pub(super) struct OperationContext<'a> {
    pub(super) document: OpenApiDocument<'a>,
    pub(super) spec: &'a ApiSpec,
    pub(super) path: &'a str,
    pub(super) item: &'a Value,
    pub(super) method: &'static str,
    pub(super) operation: &'a Value,
}

impl<'a> OperationContext<'a> {
    fn id(&self) -> Option<&'a str> {
        self.operation.get("operationId").and_then(Value::as_str).filter(|id| !id.trim().is_empty())
    }

    fn is_selected(&self) -> bool {
        let tags = self.operation.get("tags").and_then(Value::as_array);
        let tags: Vec<&str> = tags.into_iter().flatten().filter_map(Value::as_str).collect();
        let looked = ApiOperation {
            operation: self.id().unwrap_or_default(),
            tags: &tags,
            method: self.method,
            path: self.path,
        };
        self.spec.include.matches_all(looked) && !self.spec.exclude.matches_any(looked)
    }

    fn build_tool(
        &self,
        names: &mut HashSet<String>,
        notes: &mut Vec<String>,
    ) -> Result<OperationTool, DocumentFault> {
        if !self.operation.is_object() {
            return Err(DocumentFault("it is not an object".to_owned()));
        }
        let elsewhere = [self.operation, self.item].iter().any(|part| part.get("servers").is_some());
        if elsewhere && self.spec.base_url.is_none() {
            return Err(DocumentFault("it overrides `servers`; set `base_url` to use it anyway".to_owned()));
        }
        let mut operation_notes = Vec::new();
        let credentials = credentials(self, &mut operation_notes)?;
        let output = self.output(&mut operation_notes);
        let mut template_notes = Vec::new();
        let (mut shape, mut input) = self.request_template(&credentials, false, &mut template_notes)?;
        if !schema::is_acceptable(&input) {
            // Descriptions are most of a large schema, so they go first.
            (shape, input) = self.request_template(&credentials, true, &mut Vec::new())?;
        }
        operation_notes.extend(template_notes);
        let name = self.name(names, &mut operation_notes)?;
        notes.extend(
            operation_notes.into_iter().map(|note| format!("`{} {}`: {note}", self.method, self.path)),
        );
        let definition = self.definition(&name, input, output);
        Ok(OperationTool { definition, shape, credentials })
    }

    /// Builds the request template and the schema of the arguments; `lean` omits descriptions.
    fn request_template(
        &self,
        credentials: &Credentials,
        lean: bool,
        operation_notes: &mut Vec<String>,
    ) -> Result<(RequestTemplate, Value), DocumentFault> {
        let mut arguments =
            ArgumentSchemaBuilder::new(SchemaTranslator::new(self.document, Direction::Request, lean));
        let parameters = parameters(self, credentials, &mut arguments, operation_notes)?;
        let body = body::parse(self, &mut arguments)?;
        Ok((RequestTemplate::new(self, parameters, body)?, arguments.schema()?))
    }

    /// Builds the tool definition that an MCP server would send.
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
            "description": truncate(&described),
            "inputSchema": input,
            "annotations": {
                "readOnlyHint": reads,
                "destructiveHint": !reads,
                "idempotentHint": is_idempotent(self.method),
                "openWorldHint": true,
            },
        });
        if !summary.is_empty() {
            definition["title"] = truncate(summary).into();
        }
        if let Some(output) = output {
            definition["outputSchema"] = output;
        }
        definition
    }

    /// The schema of a successful result, if it is JSON and the schema is usable.
    fn output(&self, operation_notes: &mut Vec<String>) -> Option<Value> {
        let responses = self.operation.get("responses")?.as_object()?;
        let is_success = |status: &&String| status.len() == 3 && status.starts_with('2');
        let status = responses.keys().filter(is_success).min()?;
        let outcome = (|| {
            let response = self.document.resolve(&responses[status])?;
            let content = response.get("content").and_then(Value::as_object);
            let json = content.into_iter().flatten().find(|(kind, _)| body::is_json(kind));
            let Some(schema) = json.and_then(|(_, media)| media.get("schema")) else { return Ok(None) };
            schema::translate_standalone(self.document, schema, Direction::Response).map(Some)
        })();
        outcome.unwrap_or_else(|fault: DocumentFault| {
            operation_notes.push(format!("its result is not checked: {fault}"));
            None
        })
    }

    /// Picks a unique tool name: the `operationId`, else method and path.
    fn name(
        &self,
        names: &mut HashSet<String>,
        operation_notes: &mut Vec<String>,
    ) -> Result<String, DocumentFault> {
        let by_path = || {
            let path = self.path.replace(['{', '}'], "");
            let words: Vec<_> = path.split('/').filter(|word| !word.is_empty()).collect();
            format!("{}_{}", self.method.to_lowercase(), words.join("_"))
        };
        let sanitized = |name: &str| {
            let letter =
                |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' };
            format!("{}{}", self.spec.prefix, name.trim().chars().map(letter).collect::<String>())
        };
        let preferred = sanitized(&self.id().map_or_else(by_path, str::to_owned));
        // Case-insensitive, because a reader confuses names that differ only in case.
        let is_free = |name: &str, names: &HashSet<String>| {
            name.parse::<ToolName>().is_ok() && !names.contains(&name.to_lowercase())
        };
        let name = if is_free(&preferred, names) {
            preferred
        } else {
            let other = sanitized(&by_path());
            if !is_free(&other, names) {
                return Err(DocumentFault(format!(
                    "its name `{preferred}` is taken or too long, and so is `{other}`"
                )));
            }
            operation_notes
                .push(format!("its name `{preferred}` is taken or too long; the tool is called `{other}`"));
            other
        };
        names.insert(name.to_lowercase());
        Ok(name)
    }
}

/// Returns true if a method only reads.
pub(super) fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// Returns true if repeating a method has no further effect.
pub(super) fn is_idempotent(method: &str) -> bool {
    is_safe(method) || matches!(method, "PUT" | "DELETE")
}

/// Truncates a description to the length that a model should have to read.
fn truncate(text: &str) -> String {
    if text.len() <= MAX_DESCRIPTION_BYTES {
        return text.to_owned();
    }
    let end = (0..=MAX_DESCRIPTION_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

fn plain_string(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Decodes the percent-encoding in the fragment of a reference.
fn percent_decode(text: &str) -> String {
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
