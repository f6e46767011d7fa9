//! An operation: which arguments it takes, and where in a request each of them goes.

use serde_json::{Map, Value, json};

use super::body::Body;
use super::document::{Fault, Place};
use super::schema::Schemas;
use super::security::{Credentials, Spot};

/// Parameters of one operation.
const MOST_PARAMETERS: usize = 500;

/// Headers that are not for arguments: those that the specification leaves out, those that say how the request is
/// read, and those that are ours.
const KEPT_HEADERS: [&str; 18] = [
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

/// How an operation is called.
#[derive(Debug, Clone)]
pub struct Shape {
    pub(super) method: &'static str,
    /// The path as the document writes it, for messages.
    pub(super) path: String,
    /// Its segments.
    pub(super) segments: Vec<Vec<Piece>>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
}

/// A part of a segment of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// As it is, encoded.
    Literal(String),
    /// A parameter, by its place.
    Parameter(usize),
}

/// Something that a request takes, beside its body.
#[derive(Debug, Clone)]
pub(super) struct Parameter {
    /// Its name among the arguments.
    pub(super) argument: String,
    /// Its name in the request.
    pub(super) name: String,
    pub(super) place: ParameterPlace,
    pub(super) style: Style,
    pub(super) explode: bool,
    /// Whether its value is written as JSON.
    pub(super) json: bool,
    /// The names that an object in it may have, where they become names of the query.
    pub(super) members: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterPlace {
    Path,
    Query,
    Header,
    Cookie,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    Space,
    Pipe,
    Deep,
}

/// The arguments that an operation takes, while they are gathered.
pub(super) struct Taken<'a> {
    properties: Map<String, Value>,
    required: Vec<Value>,
    pub(super) schemas: Schemas<'a>,
}

impl<'a> Taken<'a> {
    pub(super) fn new(schemas: Schemas<'a>) -> Self {
        Self { properties: Map::new(), required: Vec::new(), schemas }
    }

    /// Adds an argument under the first of these names that is free.
    pub(super) fn add(&mut self, names: [String; 2], schema: Value, required: bool) -> Result<String, Fault> {
        let free = names.into_iter().find(|name| !self.properties.contains_key(name));
        let name = free.ok_or_else(|| Fault("two of its parameters have one name".to_owned()))?;
        self.properties.insert(name.clone(), schema);
        if required {
            self.required.push(name.clone().into());
        }
        Ok(name)
    }

    /// The schema of all of them.
    pub(super) fn schema(self) -> Result<Value, Fault> {
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

/// The parameters of an operation, those of its path included.
pub(super) fn parameters(
    place: &Place<'_>,
    credentials: &Credentials,
    taken: &mut Taken<'_>,
    told: &mut Vec<String>,
) -> Result<Vec<Parameter>, Fault> {
    let list =
        |part: &'_ Value| part.get("parameters").and_then(Value::as_array).cloned().unwrap_or_default();
    let (shared, own) = (list(place.item), list(place.operation));
    if shared.len() + own.len() > MOST_PARAMETERS {
        return Err(Fault(format!("it has more than {MOST_PARAMETERS} parameters")));
    }
    let mut found: Vec<(ParameterPlace, String, Value)> = Vec::new();
    for parameter in shared.iter().chain(&own) {
        let parameter = match parameter.get("$ref").and_then(Value::as_str) {
            Some(reference) => place.document.follow(place.document.referred(reference)?)?,
            None => parameter,
        };
        let text = |key: &str| parameter.get(key).and_then(Value::as_str).unwrap_or_default();
        let at = match text("in") {
            "path" => ParameterPlace::Path,
            "query" => ParameterPlace::Query,
            "header" => ParameterPlace::Header,
            "cookie" => ParameterPlace::Cookie,
            other => return Err(Fault(format!("a parameter of it is in `{other}`"))),
        };
        let name = text("name");
        if name.is_empty() {
            return Err(Fault("a parameter of it has no name".to_owned()));
        }
        // What an operation says counts more than what its path says.
        found.retain(|(other, known, _)| (*other, known.as_str()) != (at, name));
        found.push((at, name.to_owned(), parameter.clone()));
    }
    let order = |at: &ParameterPlace| *at as u8;
    found.sort_by_key(|(at, ..)| order(at));
    let mut parameters = Vec::new();
    for (at, name, parameter) in &found {
        if let Some(why) = kept(place, credentials, *at, name) {
            if !why.is_empty() {
                told.push(format!("its parameter `{name}` is left out: {why}"));
            }
            continue;
        }
        let mut made = one(place, *at, name, parameter, taken)?;
        made.members.retain(|member| !credentials.has(Spot::Query, member));
        parameters.push(made);
    }
    apart(&parameters)?;
    Ok(parameters)
}

/// Why a parameter is not for arguments; without words where that is as it should be.
fn kept(
    place: &Place<'_>,
    credentials: &Credentials,
    at: ParameterPlace,
    name: &str,
) -> Option<&'static str> {
    let spot = match at {
        ParameterPlace::Path => return None,
        ParameterPlace::Query => Spot::Query,
        ParameterPlace::Header => Spot::Header,
        ParameterPlace::Cookie => Spot::Cookie,
    };
    if credentials.has(spot, name) {
        return Some("");
    }
    if at != ParameterPlace::Header {
        return None;
    }
    if place.spec.headers.keys().any(|header| header.eq_ignore_ascii_case(name)) {
        return Some("");
    }
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "accept" | "content-type" | "authorization" => Some(""),
        lower if KEPT_HEADERS.contains(&lower) => Some("no argument may set this header"),
        _ => None,
    }
}

fn one(
    place: &Place<'_>,
    at: ParameterPlace,
    name: &str,
    parameter: &Value,
    taken: &mut Taken<'_>,
) -> Result<Parameter, Fault> {
    let bad = |why: &str| Fault(format!("its parameter `{name}` {why}"));
    let header_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if matches!(at, ParameterPlace::Header | ParameterPlace::Cookie) && !name.bytes().all(header_name) {
        return Err(bad("has a name that cannot be sent"));
    }
    let (schema, json) = match parameter.get("content").and_then(Value::as_object) {
        Some(content) => {
            let (kind, media) = content.iter().next().ok_or_else(|| bad("has no content"))?;
            if !super::body::is_json(kind) {
                return Err(bad(&format!("is written as `{kind}`, which is not understood")));
            }
            (media.get("schema"), true)
        }
        None => (parameter.get("schema"), false),
    };
    let style = match (at, parameter.get("style").and_then(Value::as_str)) {
        (ParameterPlace::Path | ParameterPlace::Header, None | Some("simple")) => Style::Simple,
        (ParameterPlace::Path, Some("label")) => Style::Label,
        (ParameterPlace::Path, Some("matrix")) => Style::Matrix,
        (ParameterPlace::Query | ParameterPlace::Cookie, None | Some("form")) => Style::Form,
        (ParameterPlace::Query, Some("spaceDelimited")) => Style::Space,
        (ParameterPlace::Query, Some("pipeDelimited")) => Style::Pipe,
        (ParameterPlace::Query, Some("deepObject")) => Style::Deep,
        (_, Some(style)) => return Err(bad(&format!("has the style `{style}`, which does not go there"))),
    };
    let explode = parameter.get("explode").and_then(Value::as_bool).unwrap_or(style == Style::Form);
    let empty = json!({});
    let schema = schema.unwrap_or(&empty);
    let mut translated = taken.schemas.translate(schema)?;
    if let (Some(description), Value::Object(members)) = (parameter.get("description"), &mut translated)
        && description.is_string()
        && !members.contains_key("description")
        && !taken.schemas.is_lean()
    {
        members.insert("description".to_owned(), description.clone());
    }
    let members = match place.document.follow(schema)?.get("properties").and_then(Value::as_object) {
        Some(properties) if style == Style::Form && explode && !json => properties.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let required =
        at == ParameterPlace::Path || parameter.get("required").and_then(Value::as_bool).unwrap_or_default();
    let label = match at {
        ParameterPlace::Path => "path",
        ParameterPlace::Query => "query",
        ParameterPlace::Header => "header",
        ParameterPlace::Cookie => "cookie",
    };
    let argument = taken.add([name.to_owned(), format!("{label}_{name}")], translated, required)?;
    Ok(Parameter { argument, name: name.to_owned(), place: at, style, explode, json, members })
}

/// Names that members of an object get in the query are nobody else's.
fn apart(parameters: &[Parameter]) -> Result<(), Fault> {
    for parameter in parameters.iter().filter(|parameter| parameter.place == ParameterPlace::Query) {
        let others = parameters
            .iter()
            .filter(|other| other.place == ParameterPlace::Query && other.argument != parameter.argument);
        for other in others {
            if other.members.contains(&parameter.name) {
                return Err(Fault(format!(
                    "its parameters `{}` and `{}` would share a name in the query",
                    parameter.name, other.name
                )));
            }
        }
    }
    Ok(())
}

impl Shape {
    pub(super) fn new(
        place: &Place<'_>,
        parameters: Vec<Parameter>,
        body: Option<Body>,
    ) -> Result<Self, Fault> {
        let rest = place
            .path
            .strip_prefix('/')
            .ok_or_else(|| Fault("its path has no `/` at its start".to_owned()))?;
        let segments =
            rest.split('/').map(|segment| pieces(segment, &parameters)).collect::<Result<_, _>>()?;
        Ok(Self { method: place.method, path: place.path.to_owned(), segments, parameters, body })
    }
}

/// A segment of a path, with the parameters in it.
fn pieces(segment: &str, parameters: &[Parameter]) -> Result<Vec<Piece>, Fault> {
    let mut pieces = Vec::new();
    let mut rest = segment;
    let literal = |text: &str, pieces: &mut Vec<Piece>| {
        if !text.is_empty() {
            pieces.push(Piece::Literal(super::encode::literal(text)));
        }
    };
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) =
            after.split_once('}').ok_or_else(|| Fault("a `{` of its path has no `}`".to_owned()))?;
        literal(before, &mut pieces);
        let is = |parameter: &Parameter| parameter.place == ParameterPlace::Path && parameter.name == name;
        let at = parameters.iter().position(is).ok_or_else(|| {
            Fault(format!("its path holds `{{{name}}}`, and no parameter says what that is"))
        })?;
        pieces.push(Piece::Parameter(at));
        rest = behind;
    }
    if rest.contains(['?', '#', '}']) {
        return Err(Fault("its path holds a character that does not belong there".to_owned()));
    }
    literal(rest, &mut pieces);
    if super::encode::is_dots(segment) {
        return Err(Fault("its path holds `.` or `..`".to_owned()));
    }
    Ok(pieces)
}
