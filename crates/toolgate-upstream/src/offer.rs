//! What a server offers: tools, prompts, resources, as it describes them.
//!
//! Definitions are kept as the text they came in; only what we decide by is read out of them, and
//! that is cleaned of characters that people cannot see. Invariant: one bad definition spoils itself
//! and no other.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use toolgate_mcp::message::RpcError;
use toolgate_mcp::mirror::{Mirror, mirrors};
use toolgate_mcp::{Raw, RequestError};
use toolgate_types::clean::{clean, first_hidden};

use crate::connect::Connection;
use crate::schema::check;
use crate::suspicion;

/// The longest description that a model should have to read.
const LONGEST_DESCRIPTION: usize = 4 << 10;
/// The largest schema of one tool.
const LARGEST_SCHEMA: usize = 64 << 10;
/// Definitions of one kind from one server.
const MOST_DEFINITIONS: usize = 10_000;

/// Everything a server offers.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// The version that the server gives itself.
    pub version: String,
    /// What it says about itself to a model, cleaned; `None` where that must not be shown.
    pub instructions: Option<String>,
    /// Its tools.
    pub tools: Arc<[OfferedTool]>,
    /// Its prompts.
    pub prompts: Arc<[Offered]>,
    /// Its resources.
    pub resources: Arc<[Offered]>,
    /// Its templates for resources.
    pub templates: Arc<[Offered]>,
}

impl Offer {
    /// What of it is not as it was.
    pub fn changes_since(&self, before: &Self) -> Kinds {
        let tools = |offer: &Self| offer.tools.iter().map(|tool| tool.hash.clone()).collect::<Vec<_>>();
        let others = |all: &[Offered]| all.iter().map(|one| one.definition.clone()).collect::<Vec<_>>();
        Kinds {
            tools: tools(self) != tools(before),
            prompts: others(&self.prompts) != others(&before.prompts),
            resources: others(&self.resources) != others(&before.resources)
                || others(&self.templates) != others(&before.templates),
        }
    }
}

/// A tool of a server.
#[derive(Debug, Clone)]
pub struct OfferedTool {
    /// Its name on the server, as the server spells it.
    pub name: String,
    /// Its title for people.
    pub title: Option<String>,
    /// What it does, cleaned.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: Raw,
    /// The schema of its result.
    pub output_schema: Option<Raw>,
    /// What it promises of itself.
    pub annotations: Annotations,
    /// The arguments that are mirrored in headers.
    pub mirrors: Vec<Mirror>,
    /// The whole definition, as it came.
    pub definition: Raw,
    /// What tells this definition from every other; see [`canonical`].
    pub hash: Box<str>,
    /// Why it must not be used, if so.
    pub fault: Option<String>,
    /// Why a person should read it before it is used, if so.
    pub suspicion: Option<&'static str>,
}

/// What a tool promises of itself. A server can promise anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only_hint: Option<bool>,
    /// It may destroy something.
    pub destructive_hint: Option<bool>,
    /// Twice is as good as once.
    pub idempotent_hint: Option<bool>,
    /// It reaches beyond its own world.
    pub open_world_hint: Option<bool>,
}

/// A prompt, resource or template.
#[derive(Debug, Clone)]
pub struct Offered {
    /// Its name; for a resource its URI, for a template its pattern.
    pub id: String,
    /// Its name for people.
    pub title: String,
    /// What it is, cleaned.
    pub description: String,
    /// The whole definition, as it came.
    pub definition: Raw,
    /// Why it must not be used, if so.
    pub fault: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolShape<'a> {
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(borrow)]
    input_schema: &'a RawValue,
    #[serde(borrow, default)]
    output_schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OtherShape {
    #[serde(default)]
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    uri: Option<String>,
    #[serde(default)]
    uri_template: Option<String>,
}

/// What to ask a server for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Its tools.
    pub tools: bool,
    /// Its prompts.
    pub prompts: bool,
    /// Its resources and their templates.
    pub resources: bool,
}

impl Kinds {
    /// Everything.
    pub const ALL: Self = Self { tools: true, prompts: true, resources: true };

    /// Whether there is nothing to ask for.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Asks a server for what it has of these kinds; the others stay as they were before.
pub async fn discover(
    connection: &Connection,
    kinds: Kinds,
    before: Option<&Offer>,
    within: Duration,
) -> Result<Offer, RequestError> {
    let Connection { session, peer, .. } = connection;
    let mut offer = before.cloned().unwrap_or_default();
    offer.version = clean(&peer.version).into_owned();
    offer.instructions = peer
        .instructions
        .as_ref()
        .filter(|text| text_fault(text).is_none() && suspicion::of_text(text).is_none())
        .cloned();
    if kinds.tools && peer.has("tools") {
        let tools = session.list("tools/list", "tools", within).await?;
        offer.tools = tools.into_iter().take(MOST_DEFINITIONS).map(tool).collect();
    }
    if kinds.prompts && peer.has("prompts") {
        offer.prompts = others(connection, "prompts/list", "prompts", within).await?;
    }
    if kinds.resources && peer.has("resources") {
        offer.resources = others(connection, "resources/list", "resources", within).await?;
        offer.templates = others(connection, "resources/templates/list", "resourceTemplates", within).await?;
    }
    Ok(offer)
}

/// A list that a server announces and then does not have is an empty one.
async fn others(
    connection: &Connection,
    method: &str,
    key: &str,
    within: Duration,
) -> Result<Arc<[Offered]>, RequestError> {
    match connection.session.list(method, key, within).await {
        Ok(items) => Ok(items.into_iter().take(MOST_DEFINITIONS).filter_map(offered).collect()),
        Err(RequestError::Rpc(error)) if error.code == RpcError::METHOD_NOT_FOUND => Ok(Arc::default()),
        Err(error) => Err(error),
    }
}

pub(crate) fn tool(definition: Raw) -> OfferedTool {
    let shape = match definition.look::<ToolShape<'_>>() {
        Ok(shape) => shape,
        Err(error) => return misshapen(&definition, &error),
    };
    let value = |raw: Option<&RawValue>| -> Value {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    };
    let description = shape.description.as_deref().unwrap_or_default();
    let (input, output) = (value(Some(shape.input_schema)), value(shape.output_schema));
    let annotations = value(shape.annotations);
    let (mirrors, misused) = match mirrors(&input) {
        Ok(mirrors) => (mirrors, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let title = shape.title.as_deref().unwrap_or_default();
    let schema_fault = |schema: &Value| check(schema).err().map(|fault| fault.to_string());
    let fault = [shape.name.as_str(), title, description]
        .into_iter()
        .find_map(text_fault)
        .or_else(|| size_fault(shape.input_schema))
        .or_else(|| shape.output_schema.filter(|_| !output.is_null()).and_then(size_fault))
        .or_else(|| [&input, &output, &annotations].into_iter().find_map(hidden_within))
        .or(misused)
        .or_else(|| schema_fault(&input))
        .or_else(|| schema_fault(&output));
    let suspicion = [description, title]
        .into_iter()
        .find_map(suspicion::of_text)
        .or_else(|| [&input, &output, &annotations].into_iter().find_map(suspicion::of_value));
    OfferedTool {
        title: shape.title.as_deref().map(|title| clean(title).into_owned()),
        description: clean(description).into_owned(),
        input_schema: definition.slice(shape.input_schema.get()),
        output_schema: shape
            .output_schema
            .filter(|schema| schema.get() != "null")
            .map(|schema| definition.slice(schema.get())),
        annotations: serde_json::from_value(annotations).unwrap_or_default(),
        name: shape.name,
        mirrors,
        fault,
        suspicion,
        hash: hash(&canonical(&definition)),
        definition,
    }
}

/// What a definition says that anyone could be led by: name, title, description, schemas and
/// annotations, with members in one order. Icons and `_meta` may change as they like.
pub fn canonical(definition: &Raw) -> Value {
    const SAYS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];
    let Ok(Value::Object(mut members)) = definition.parse() else { return Value::Null };
    members.retain(|name, _| SAYS.contains(&name.as_str()));
    let mut value = Value::Object(members);
    value.sort_all_objects();
    value
}

fn hash(canonical: &Value) -> Box<str> {
    let digest = Sha256::digest(canonical.to_string());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}").into()
}

/// A definition that is not what the protocol says, under as much of a name as it has.
fn misshapen(definition: &Raw, error: &serde_json::Error) -> OfferedTool {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    OfferedTool {
        name: definition.parse::<Named>().map_or_else(|_| "(nameless)".to_owned(), |named| named.name),
        title: None,
        description: String::new(),
        input_schema: Raw::of(&serde_json::json!({ "type": "object" })),
        output_schema: None,
        annotations: Annotations::default(),
        mirrors: Vec::new(),
        definition: definition.clone(),
        hash: hash(&canonical(definition)),
        fault: Some(format!("its definition is not what the protocol says: {error}")),
        suspicion: None,
    }
}

/// Why a text must not be shown to a model as it is.
fn text_fault(text: &str) -> Option<String> {
    if let Some(c) = first_hidden(text) {
        return Some(hides(c));
    }
    (text.len() > LONGEST_DESCRIPTION)
        .then(|| format!("its description is longer than {LONGEST_DESCRIPTION} bytes"))
}

fn hides(c: char) -> String {
    format!("its description hides the character U+{:04X} from people", u32::from(c))
}

fn size_fault(schema: &RawValue) -> Option<String> {
    if schema.get().len() > LARGEST_SCHEMA {
        return Some(format!("its schema is larger than {LARGEST_SCHEMA} bytes"));
    }
    (!schema.get().starts_with('{')).then(|| "its schema is not an object".to_owned())
}

/// A character that people cannot see, in any text of a schema.
fn hidden_within(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => first_hidden(text).map(hides),
        Value::Array(items) => items.iter().find_map(hidden_within),
        Value::Object(members) => members
            .iter()
            .find_map(|(name, member)| first_hidden(name).map(hides).or_else(|| hidden_within(member))),
        _ => None,
    }
}

fn offered(definition: Raw) -> Option<Offered> {
    let shape: OtherShape = definition.parse().ok()?;
    let id = shape.uri.or(shape.uri_template).unwrap_or_else(|| shape.name.clone());
    let title = shape.title.unwrap_or(shape.name);
    let description = shape.description.unwrap_or_default();
    let texts = [id.as_str(), title.as_str(), description.as_str()];
    let fault = texts
        .into_iter()
        .find_map(text_fault)
        .or_else(|| texts.into_iter().find_map(suspicion::of_text).map(|sign| format!("its text {sign}")));
    Some(Offered {
        id: clean(&id).into_owned(),
        title: clean(&title).into_owned(),
        description: clean(&description).into_owned(),
        definition,
        fault,
    })
}
