//! An operation: its arguments, and the place of each in a request.

use serde_json::{Map, Value, json};

use super::body::RequestBody;
use super::document::{DocumentFault, OperationContext};
use super::schema::SchemaTranslator;
use super::security::{CredentialLocation, Credentials};

/// Parameters of one operation.
const MAX_PARAMETERS: usize = 500;

/// Headers that arguments must not set: those that the OpenAPI specification ignores, those that control how the request
/// is parsed, and those that Toolgate sets.
const RESERVED_HEADERS: [&str; 18] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "traceparent",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-correlation-id",
];

/// The request of an operation, with placeholders for its arguments.
#[derive(Debug, Clone)]
pub struct RequestTemplate {
    pub(super) method: &'static str,
    /// The path as in the document, for error messages.
    pub(super) path: String,
    pub(super) segments: Vec<Vec<PathPiece>>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<RequestBody>,
}

/// A piece of a path segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathPiece {
    /// Already percent-encoded.
    Literal(String),
    /// The index of a parameter.
    Parameter(usize),
}

/// A parameter: an input of a request besides its body.
#[derive(Debug, Clone)]
pub(super) struct Parameter {
    /// The name among the arguments.
    pub(super) argument: String,
    /// The name in the request.
    pub(super) name: String,
    pub(super) location: ParameterLocation,
    pub(super) style: ParameterStyle,
    pub(super) explode: bool,
    /// True if the value is encoded as JSON.
    pub(super) json: bool,
    /// The allowed member names of an object, if they become names in the query.
    pub(super) members: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterLocation {
    Path,
    Query,
    Header,
    Cookie,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterStyle {
    Simple,
    Label,
    Matrix,
    Form,
    Space,
    Pipe,
    Deep,
}

/// Builds the schema of the arguments of one operation.
pub(super) struct ArgumentSchemaBuilder<'a> {
    properties: Map<String, Value>,
    required: Vec<Value>,
    pub(super) schemas: SchemaTranslator<'a>,
}

impl<'a> ArgumentSchemaBuilder<'a> {
    pub(super) fn new(schemas: SchemaTranslator<'a>) -> Self {
        Self { properties: Map::new(), required: Vec::new(), schemas }
    }

    /// Adds an argument under the first of these names that is free.
    pub(super) fn add(
        &mut self,
        names: [String; 2],
        schema: Value,
        required: bool,
    ) -> Result<String, DocumentFault> {
        let free = names.into_iter().find(|name| !self.properties.contains_key(name));
        let name =
            free.ok_or_else(|| DocumentFault("two of its parameters have the same name".to_owned()))?;
        self.properties.insert(name.clone(), schema);
        if required {
            self.required.push(name.clone().into());
        }
        Ok(name)
    }

    /// The schema of all arguments.
    pub(super) fn schema(self) -> Result<Value, DocumentFault> {
        let mut schema =
            json!({ "type": "object", "properties": self.properties, "additionalProperties": false });
        if !self.required.is_empty() {
            schema["required"] = self.required.into();
        }
        let defs = self.schemas.finish()?;
        if !defs.is_empty() {
            schema["$defs"] = Value::Object(defs);
        }
        Ok(schema)
    }
}

/// Parses the parameters of an operation, including those of its path.
pub(super) fn parameters(
    context: &OperationContext<'_>,
    credentials: &Credentials,
    arguments: &mut ArgumentSchemaBuilder<'_>,
    operation_notes: &mut Vec<String>,
) -> Result<Vec<Parameter>, DocumentFault> {
    let list =
        |part: &'_ Value| part.get("parameters").and_then(Value::as_array).cloned().unwrap_or_default();
    let (shared, own) = (list(context.item), list(context.operation));
    if shared.len() + own.len() > MAX_PARAMETERS {
        return Err(DocumentFault(format!("it has more than {MAX_PARAMETERS} parameters")));
    }
    let mut found: Vec<(ParameterLocation, String, Value)> = Vec::new();
    for parameter in shared.iter().chain(&own) {
        let parameter = match parameter.get("$ref").and_then(Value::as_str) {
            Some(reference) => context.document.resolve(context.document.resolve_reference(reference)?)?,
            None => parameter,
        };
        let text = |key: &str| parameter.get(key).and_then(Value::as_str).unwrap_or_default();
        let at = match text("in") {
            "path" => ParameterLocation::Path,
            "query" => ParameterLocation::Query,
            "header" => ParameterLocation::Header,
            "cookie" => ParameterLocation::Cookie,
            other => {
                return Err(DocumentFault(format!(
                    "one of its parameters has the unknown location `{other}`"
                )));
            }
        };
        let name = text("name");
        if name.is_empty() {
            return Err(DocumentFault("one of its parameters has no name".to_owned()));
        }
        // A parameter of the operation overrides that of the path.
        found.retain(|(other, known, _)| (*other, known.as_str()) != (at, name));
        found.push((at, name.to_owned(), parameter.clone()));
    }
    let order = |at: &ParameterLocation| *at as u8;
    found.sort_by_key(|(at, ..)| order(at));
    let mut parameters = Vec::new();
    for (at, name, parameter) in &found {
        if let Some(why) = reserved_reason(context, credentials, *at, name) {
            if !why.is_empty() {
                operation_notes.push(format!("its parameter `{name}` is left out: {why}"));
            }
            continue;
        }
        let mut parsed = parse_parameter(context, *at, name, parameter, arguments)?;
        parsed.members.retain(|member| !credentials.has(CredentialLocation::Query, member));
        parameters.push(parsed);
    }
    check_distinct_names(&parameters)?;
    Ok(parameters)
}

/// The reason a parameter cannot be an argument. Empty if that is expected and needs no note.
fn reserved_reason(
    context: &OperationContext<'_>,
    credentials: &Credentials,
    at: ParameterLocation,
    name: &str,
) -> Option<&'static str> {
    let spot = match at {
        ParameterLocation::Path => return None,
        ParameterLocation::Query => CredentialLocation::Query,
        ParameterLocation::Header => CredentialLocation::Header,
        ParameterLocation::Cookie => CredentialLocation::Cookie,
    };
    if credentials.has(spot, name) {
        return Some("");
    }
    if at != ParameterLocation::Header {
        return None;
    }
    if context.spec.headers.keys().any(|header| header.eq_ignore_ascii_case(name)) {
        return Some("");
    }
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "accept" | "content-type" | "authorization" => Some(""),
        lower if RESERVED_HEADERS.contains(&lower) => Some("no argument may set this header"),
        _ => None,
    }
}

fn parse_parameter(
    context: &OperationContext<'_>,
    at: ParameterLocation,
    name: &str,
    parameter: &Value,
    arguments: &mut ArgumentSchemaBuilder<'_>,
) -> Result<Parameter, DocumentFault> {
    let fault = |why: &str| DocumentFault(format!("its parameter `{name}` {why}"));
    let header_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if matches!(at, ParameterLocation::Header | ParameterLocation::Cookie) && !name.bytes().all(header_name) {
        return Err(fault("has a name that no header allows"));
    }
    let (schema, json) = match parameter.get("content").and_then(Value::as_object) {
        Some(content) => {
            let (kind, media) = content.iter().next().ok_or_else(|| fault("has no content"))?;
            if !super::body::is_json(kind) {
                return Err(fault(&format!("uses `{kind}`, which is not supported")));
            }
            (media.get("schema"), true)
        }
        None => (parameter.get("schema"), false),
    };
    let style = match (at, parameter.get("style").and_then(Value::as_str)) {
        (ParameterLocation::Path | ParameterLocation::Header, None | Some("simple")) => {
            ParameterStyle::Simple
        }
        (ParameterLocation::Path, Some("label")) => ParameterStyle::Label,
        (ParameterLocation::Path, Some("matrix")) => ParameterStyle::Matrix,
        (ParameterLocation::Query | ParameterLocation::Cookie, None | Some("form")) => ParameterStyle::Form,
        (ParameterLocation::Query, Some("spaceDelimited")) => ParameterStyle::Space,
        (ParameterLocation::Query, Some("pipeDelimited")) => ParameterStyle::Pipe,
        (ParameterLocation::Query, Some("deepObject")) => ParameterStyle::Deep,
        (_, Some(style)) => {
            return Err(fault(&format!("has the style `{style}`, which is not allowed there")));
        }
    };
    let explode = parameter.get("explode").and_then(Value::as_bool).unwrap_or(style == ParameterStyle::Form);
    let empty = json!({});
    let schema = schema.unwrap_or(&empty);
    let mut translated = arguments.schemas.translate(schema)?;
    if let (Some(description), Value::Object(members)) = (parameter.get("description"), &mut translated)
        && description.is_string()
        && !members.contains_key("description")
        && !arguments.schemas.is_lean()
    {
        members.insert("description".to_owned(), description.clone());
    }
    let members = match context.document.resolve(schema)?.get("properties").and_then(Value::as_object) {
        Some(properties) if style == ParameterStyle::Form && explode && !json => {
            properties.keys().cloned().collect()
        }
        _ => Vec::new(),
    };
    let required = at == ParameterLocation::Path
        || parameter.get("required").and_then(Value::as_bool).unwrap_or_default();
    let label = match at {
        ParameterLocation::Path => "path",
        ParameterLocation::Query => "query",
        ParameterLocation::Header => "header",
        ParameterLocation::Cookie => "cookie",
    };
    let argument = arguments.add([name.to_owned(), format!("{label}_{name}")], translated, required)?;
    Ok(Parameter { argument, name: name.to_owned(), location: at, style, explode, json, members })
}

/// Rejects parameters whose object members would share a query name with another parameter.
fn check_distinct_names(parameters: &[Parameter]) -> Result<(), DocumentFault> {
    for parameter in parameters.iter().filter(|parameter| parameter.location == ParameterLocation::Query) {
        let others = parameters.iter().filter(|other| {
            other.location == ParameterLocation::Query && other.argument != parameter.argument
        });
        for other in others {
            if other.members.contains(&parameter.name) {
                return Err(DocumentFault(format!(
                    "its parameters `{}` and `{}` would share a name in the query",
                    parameter.name, other.name
                )));
            }
        }
    }
    Ok(())
}

impl RequestTemplate {
    pub(super) fn new(
        context: &OperationContext<'_>,
        parameters: Vec<Parameter>,
        body: Option<RequestBody>,
    ) -> Result<Self, DocumentFault> {
        let rest = context
            .path
            .strip_prefix('/')
            .ok_or_else(|| DocumentFault("its path does not start with `/`".to_owned()))?;
        let segments =
            rest.split('/').map(|segment| parse_segment(segment, &parameters)).collect::<Result<_, _>>()?;
        Ok(Self { method: context.method, path: context.path.to_owned(), segments, parameters, body })
    }
}

/// Splits a path segment into literals and parameters.
fn parse_segment(segment: &str, parameters: &[Parameter]) -> Result<Vec<PathPiece>, DocumentFault> {
    let mut pieces = Vec::new();
    let mut rest = segment;
    let literal = |text: &str, pieces: &mut Vec<PathPiece>| {
        if !text.is_empty() {
            pieces.push(PathPiece::Literal(super::encode::encode_literal(text)));
        }
    };
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) =
            after.split_once('}').ok_or_else(|| DocumentFault("its path has an unclosed `{`".to_owned()))?;
        literal(before, &mut pieces);
        let is =
            |parameter: &Parameter| parameter.location == ParameterLocation::Path && parameter.name == name;
        let at = parameters.iter().position(is).ok_or_else(|| {
            DocumentFault(format!("its path contains `{{{name}}}`, which no parameter defines"))
        })?;
        pieces.push(PathPiece::Parameter(at));
        rest = behind;
    }
    if rest.contains(['?', '#', '}']) {
        return Err(DocumentFault("its path contains a character that no path allows".to_owned()));
    }
    literal(rest, &mut pieces);
    if super::encode::is_dot_segment(segment) {
        return Err(DocumentFault("its path contains `.` or `..`".to_owned()));
    }
    Ok(pieces)
}
