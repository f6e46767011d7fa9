//! The definitions that a server offers: tools, prompts, resources and resource templates.
//!
//! Definitions are kept verbatim. Only the members that decisions depend on are parsed, and stripped of invisible
//! characters. Invariant: one malformed definition affects no other.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use toolgate_mcp::message::RpcError;
use toolgate_mcp::mirror::{HeaderMirror, find_mirrors};
use toolgate_mcp::{Forwarded, RawJson, RequestError};
use toolgate_policy::schema;
use toolgate_redact::sanitize::{first_hidden, sanitize};

use crate::connect::Connection;
use crate::poisoning;

/// The longest text in bytes that is shown without a person's approval.
const MAX_DESCRIPTION_BYTES: usize = 64 << 10;
/// Longer descriptions are reported, because a model has to read them with every request.
const LONG_DESCRIPTION_BYTES: usize = 4 << 10;
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Definitions of one kind from one server.
const MAX_DEFINITIONS: usize = 10_000;

/// Everything a server offers.
#[derive(Debug, Clone, Default)]
pub struct ServerOffer {
    /// The server's own version string.
    pub version: String,
    /// The server's instructions for a model, cleaned; `None` if they must not be shown.
    pub instructions: Option<String>,
    pub tools: Arc<[OfferedTool]>,
    /// False while the server has not answered the request for its tools.
    pub has_listed_tools: bool,
    pub prompts: Arc<[OfferedItem]>,
    pub resources: Arc<[OfferedItem]>,
    pub templates: Arc<[OfferedItem]>,
}

impl ServerOffer {
    /// Creates the offer of a server that is not connected, from definitions that it offered before.
    pub fn from_definitions(definitions: impl IntoIterator<Item = Value>) -> Self {
        let tools = definitions.into_iter().map(|definition| parse_tool(RawJson::from_value(&definition)));
        Self { tools: tools.collect(), has_listed_tools: true, ..Self::default() }
    }

    /// Replaces the definitions of these kinds by those of a newer offer.
    pub fn update(&mut self, newer: Self, kinds: OfferKinds) {
        (self.version, self.instructions) = (newer.version, newer.instructions);
        if kinds.tools {
            (self.tools, self.has_listed_tools) = (newer.tools, true);
        }
        if kinds.prompts {
            self.prompts = newer.prompts;
        }
        if kinds.resources {
            (self.resources, self.templates) = (newer.resources, newer.templates);
        }
    }

    /// The kinds of definitions that differ.
    pub fn changes_since(&self, before: &Self) -> OfferKinds {
        let tools = |offer: &Self| offer.tools.iter().map(|tool| tool.hash.clone()).collect::<Vec<_>>();
        let others = |all: &[OfferedItem]| all.iter().map(|one| one.definition.clone()).collect::<Vec<_>>();
        OfferKinds {
            tools: tools(self) != tools(before),
            prompts: others(&self.prompts) != others(&before.prompts),
            resources: others(&self.resources) != others(&before.resources)
                || others(&self.templates) != others(&before.templates),
        }
    }
}

#[derive(Debug, Clone)]
pub struct OfferedTool {
    /// The name exactly as the server spells it.
    pub name: String,
    pub title: Option<String>,
    /// The description, cleaned.
    pub description: String,
    pub input_schema: RawJson,
    pub output_schema: Option<RawJson>,
    /// The server's own claims about the tool.
    pub annotations: ToolAnnotations,
    /// The arguments that are mirrored in HTTP headers.
    pub mirrors: Vec<HeaderMirror>,
    /// The whole definition, verbatim.
    pub definition: RawJson,
    /// The hash that identifies this definition; see [`canonical_definition`].
    pub hash: Box<str>,
    /// The reason the tool must not be used without approval, if there is one.
    pub fault: Option<String>,
    /// True if the definition violates the protocol, so that no approval makes it usable.
    pub is_malformed: bool,
    /// Remarks for operators: parts of the definition that are not checked, a long description.
    pub notes: Vec<String>,
    /// The reason a person should review the tool before it is used, if there is one.
    pub suspicion: Option<&'static str>,
}

/// A tool's claims about itself. Not trustworthy: a server can claim anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolAnnotations {
    /// The tool changes nothing.
    pub read_only_hint: Option<bool>,
    /// The tool may destroy data.
    pub destructive_hint: Option<bool>,
    /// Calling it twice has the same effect as calling it once.
    pub idempotent_hint: Option<bool>,
    /// The tool reaches external systems.
    pub open_world_hint: Option<bool>,
}

/// A prompt, resource or resource template.
#[derive(Debug, Clone)]
pub struct OfferedItem {
    /// The name of a prompt, the URI of a resource, or the URI template.
    pub id: String,
    pub title: String,
    /// The description, cleaned.
    pub description: String,
    /// The whole definition, verbatim.
    pub definition: RawJson,
    /// The reason it must not be used, if there is one.
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
struct ItemShape {
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

/// A set of definition kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfferKinds {
    pub tools: bool,
    pub prompts: bool,
    /// Resources and their templates.
    pub resources: bool,
}

impl OfferKinds {
    pub const TOOLS: Self = Self { tools: true, prompts: false, resources: false };
    pub const PROMPTS: Self = Self { tools: false, prompts: true, resources: false };
    pub const RESOURCES: Self = Self { tools: false, prompts: false, resources: true };
    pub const ALL: Self = Self { tools: true, prompts: true, resources: true };

    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The kinds in both sets.
    pub fn intersection(self, other: Self) -> Self {
        Self {
            tools: self.tools && other.tools,
            prompts: self.prompts && other.prompts,
            resources: self.resources && other.resources,
        }
    }

    /// The kinds of this set that are not in the other.
    pub fn without(self, other: Self) -> Self {
        Self {
            tools: self.tools && !other.tools,
            prompts: self.prompts && !other.prompts,
            resources: self.resources && !other.resources,
        }
    }
}

/// Lists the definitions of these kinds, as the server lists them to a client, if there is one.
pub async fn discover(
    connection: &Connection,
    kinds: OfferKinds,
    along: &Forwarded,
    within: Duration,
) -> Result<ServerOffer, RequestError> {
    let Connection { session, peer, .. } = connection;
    let mut offer = ServerOffer { version: sanitize(&peer.version).into_owned(), ..ServerOffer::default() };
    offer.instructions = peer
        .instructions
        .as_ref()
        .filter(|text| text_fault(text).is_none() && poisoning::check_text(text).is_none())
        .cloned();
    if kinds.tools && peer.has_capability("tools") {
        let tools = session.list_all("tools/list", "tools", along, within).await?;
        offer.tools = tools.into_iter().take(MAX_DEFINITIONS).map(parse_tool).collect();
    }
    if kinds.prompts && peer.has_capability("prompts") {
        offer.prompts = list_items(connection, "prompts/list", "prompts", along, within).await?;
    }
    if kinds.resources && peer.has_capability("resources") {
        let (resources, templates) = futures_util::future::join(
            list_items(connection, "resources/list", "resources", along, within),
            list_items(connection, "resources/templates/list", "resourceTemplates", along, within),
        )
        .await;
        offer.resources = resources?;
        // Resources work without templates.
        match templates {
            Ok(templates) => offer.templates = templates,
            Err(error) => tracing::warn!("the resource templates of a server cannot be listed: {error}"),
        }
    }
    Ok(offer)
}

/// Lists prompts, resources or templates. Treats "method not found" as an empty list: some servers announce a
/// capability and do not implement it.
async fn list_items(
    connection: &Connection,
    method: &str,
    key: &str,
    along: &Forwarded,
    within: Duration,
) -> Result<Arc<[OfferedItem]>, RequestError> {
    match connection.session.list_all(method, key, along, within).await {
        Ok(items) => Ok(items.into_iter().take(MAX_DEFINITIONS).filter_map(parse_item).collect()),
        Err(RequestError::Rpc(error)) if error.code == RpcError::METHOD_NOT_FOUND => Ok(Arc::default()),
        Err(error) => Err(error),
    }
}

pub(crate) fn parse_tool(definition: RawJson) -> OfferedTool {
    let shape = match definition.parse_borrowed::<ToolShape<'_>>() {
        Ok(shape) => shape,
        Err(error) => return malformed_tool(&definition, &error),
    };
    let value = |raw: Option<&RawValue>| -> Value {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    };
    let description = shape.description.as_deref().unwrap_or_default();
    let (input, output) = (value(Some(shape.input_schema)), value(shape.output_schema));
    let annotations = value(shape.annotations);
    let (mirrors, mirror_fault) = match find_mirrors(&input) {
        Ok(mirrors) => (mirrors, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let title = shape.title.as_deref().unwrap_or_default();
    let (checked_input, unchecked_input) = schema::checkable(&input);
    let (checked_output, unchecked_output) = schema::checkable(&output);
    let unchecked = unchecked_input.into_iter().chain(unchecked_output);
    let mut notes: Vec<_> = unchecked.map(|patterns| sanitize(&patterns.to_string()).into_owned()).collect();
    if description.len() > LONG_DESCRIPTION_BYTES {
        notes.push(format!("its description has {} bytes", description.len()));
    }
    let schema_fault = |schema: &Value| schema::check(schema).err().map(|fault| fault.to_string());
    let fault = [shape.name.as_str(), title, description]
        .into_iter()
        .find_map(text_fault)
        .or_else(|| size_fault(shape.input_schema))
        .or_else(|| shape.output_schema.filter(|_| !output.is_null()).and_then(size_fault))
        .or_else(|| [&input, &output, &annotations].into_iter().find_map(find_hidden))
        .or(mirror_fault)
        .or_else(|| schema_fault(&checked_input))
        .or_else(|| schema_fault(&checked_output));
    let suspicion = [description, title]
        .into_iter()
        .find_map(poisoning::check_text)
        .or_else(|| [&input, &output, &annotations].into_iter().find_map(poisoning::check_value));
    OfferedTool {
        title: shape.title.as_deref().map(|title| sanitize(title).into_owned()),
        description: sanitize(description).into_owned(),
        input_schema: visible(&definition.slice(shape.input_schema.get())),
        output_schema: shape
            .output_schema
            .filter(|schema| schema.get() != "null")
            .map(|schema| visible(&definition.slice(schema.get()))),
        annotations: serde_json::from_value(annotations).unwrap_or_default(),
        name: shape.name,
        mirrors,
        fault,
        is_malformed: false,
        notes,
        suspicion,
        hash: hash(&canonical_definition(&definition)),
        definition,
    }
}

/// The members of a definition that can influence a model: name, title, description, schemas and annotations, with
/// sorted keys. Icons and `_meta` may change freely.
pub fn canonical_definition(definition: &RawJson) -> Value {
    const IDENTITY_MEMBERS: [&str; 6] =
        ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];
    let Ok(Value::Object(mut members)) = definition.parse() else { return Value::Null };
    members.retain(|name, _| IDENTITY_MEMBERS.contains(&name.as_str()));
    let mut value = Value::Object(members);
    value.sort_all_objects();
    value
}

fn hash(canonical: &Value) -> Box<str> {
    let digest = Sha256::digest(canonical.to_string());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}").into()
}

/// A placeholder for a definition that violates the protocol, with its name if it has one.
fn malformed_tool(definition: &RawJson, error: &serde_json::Error) -> OfferedTool {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    OfferedTool {
        name: definition.parse::<Named>().map_or_else(|_| "(nameless)".to_owned(), |named| named.name),
        title: None,
        description: String::new(),
        input_schema: RawJson::from_value(&serde_json::json!({ "type": "object" })),
        output_schema: None,
        annotations: ToolAnnotations::default(),
        mirrors: Vec::new(),
        definition: definition.clone(),
        hash: hash(&canonical_definition(definition)),
        fault: Some(format!("its definition violates the protocol: {error}")),
        is_malformed: true,
        notes: Vec::new(),
        suspicion: None,
    }
}

/// The reason a string must not be shown to a model, if there is one.
fn text_fault(text: &str) -> Option<String> {
    if let Some(c) = first_hidden(text) {
        return Some(hidden_character_fault(c));
    }
    (text.len() > MAX_DESCRIPTION_BYTES)
        .then(|| format!("its description is longer than {MAX_DESCRIPTION_BYTES} bytes"))
}

fn hidden_character_fault(c: char) -> String {
    format!("its description contains the invisible character U+{:04X}", u32::from(c))
}

fn size_fault(schema: &RawValue) -> Option<String> {
    if schema.get().len() > MAX_SCHEMA_BYTES {
        return Some(format!("its schema is larger than {MAX_SCHEMA_BYTES} bytes"));
    }
    (!schema.get().starts_with('{')).then(|| "its schema is not an object".to_owned())
}

/// Finds an invisible character in any string of a schema.
fn find_hidden(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => first_hidden(text).map(hidden_character_fault),
        Value::Array(items) => items.iter().find_map(find_hidden),
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            first_hidden(name).map(hidden_character_fault).or_else(|| find_hidden(member))
        }),
        _ => None,
    }
}

/// Returns JSON without hidden characters, written out or escaped. A person may approve a tool that has some; models see
/// it without them.
pub fn visible(json: &RawJson) -> RawJson {
    let may_hide = !json.as_str().is_ascii() || json.as_str().contains("\\u");
    match json.parse::<Value>() {
        Ok(value) if may_hide && find_hidden(&value).is_some() => RawJson::from_value(&without_hidden(value)),
        _ => json.clone(),
    }
}

fn without_hidden(value: Value) -> Value {
    match value {
        Value::String(text) => sanitize(&text).into(),
        Value::Array(items) => items.into_iter().map(without_hidden).collect(),
        Value::Object(members) => {
            let member =
                |(name, value): (String, Value)| (sanitize(&name).into_owned(), without_hidden(value));
            members.into_iter().map(member).collect()
        }
        other => other,
    }
}

fn parse_item(definition: RawJson) -> Option<OfferedItem> {
    let shape: ItemShape = definition.parse().ok()?;
    let id = shape.uri.or(shape.uri_template).unwrap_or_else(|| shape.name.clone());
    let title = shape.title.unwrap_or(shape.name);
    let description = shape.description.unwrap_or_default();
    let texts = [id.as_str(), title.as_str(), description.as_str()];
    let fault = texts
        .into_iter()
        .find_map(text_fault)
        .or_else(|| texts.into_iter().find_map(poisoning::check_text).map(|sign| format!("its text {sign}")));
    Some(OfferedItem {
        id: sanitize(&id).into_owned(),
        title: sanitize(&title).into_owned(),
        description: sanitize(&description).into_owned(),
        definition,
        fault,
    })
}
