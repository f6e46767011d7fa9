//! What a server offers: tools, prompts, resources, as it describes them.
//!
//! Definitions are kept as the text they came in; only what we decide by is read out of them, and
//! that is cleaned of characters that people cannot see. Invariant: one bad definition spoils itself
//! and no other.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate_mcp::message::RpcError;
use toolgate_mcp::mirror::{Mirror, mirrors};
use toolgate_mcp::{Raw, RequestError, Session};
use toolgate_types::clean::{clean, first_hidden};

use crate::schema::check;

/// The longest description that a model should have to read.
const LONGEST_DESCRIPTION: usize = 4 << 10;
/// The largest schema of one tool.
const LARGEST_SCHEMA: usize = 64 << 10;
/// Definitions of one kind from one server.
const MOST_DEFINITIONS: usize = 10_000;

/// Everything a server offers.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// Its tools.
    pub tools: Vec<OfferedTool>,
    /// Its prompts.
    pub prompts: Vec<Offered>,
    /// Its resources.
    pub resources: Vec<Offered>,
    /// Its templates for resources.
    pub templates: Vec<Offered>,
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
    /// The arguments that are mirrored in headers.
    pub mirrors: Vec<Mirror>,
    /// The whole definition, as it came.
    pub definition: Raw,
    /// Why it must not be used, if so.
    pub fault: Option<String>,
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
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Its tools.
    pub tools: bool,
    /// Its prompts.
    pub prompts: bool,
}

/// Asks a server for everything it says it has.
pub async fn discover(session: &Session, wanted: Wanted, within: Duration) -> Result<Offer, RequestError> {
    let has = |capability: &str| session.peer().is_some_and(|peer| peer.has(capability));
    let mut offer = Offer::default();
    if wanted.tools && has("tools") {
        offer.tools = session
            .list("tools/list", "tools", within)
            .await?
            .into_iter()
            .take(MOST_DEFINITIONS)
            .map(tool)
            .collect();
    }
    if wanted.prompts && has("prompts") {
        offer.prompts = others(session, "prompts/list", "prompts", within).await?;
    }
    if has("resources") {
        offer.resources = others(session, "resources/list", "resources", within).await?;
        offer.templates = others(session, "resources/templates/list", "resourceTemplates", within).await?;
    }
    Ok(offer)
}

/// A list that a server announces and then does not have is an empty one.
async fn others(
    session: &Session,
    method: &str,
    key: &str,
    within: Duration,
) -> Result<Vec<Offered>, RequestError> {
    match session.list(method, key, within).await {
        Ok(items) => Ok(items.into_iter().take(MOST_DEFINITIONS).filter_map(offered).collect()),
        Err(RequestError::Rpc(error)) if error.code == RpcError::METHOD_NOT_FOUND => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn tool(definition: Raw) -> OfferedTool {
    match definition.look::<ToolShape<'_>>() {
        Ok(shape) => {
            let description = shape.description.unwrap_or_default();
            let schema: Value = serde_json::from_str(shape.input_schema.get()).unwrap_or_default();
            let (mirrors, misused) = match mirrors(&schema) {
                Ok(mirrors) => (mirrors, None),
                Err(error) => (Vec::new(), Some(error.to_string())),
            };
            let unsafe_schema = check(&schema).err().map(|fault| fault.to_string());
            let fault = fault(&shape.name, &description, shape.input_schema).or(misused).or(unsafe_schema);
            OfferedTool {
                title: shape.title.map(|title| clean(&title).into_owned()),
                description: clean(&description).into_owned(),
                input_schema: definition.slice(shape.input_schema),
                output_schema: shape
                    .output_schema
                    .filter(|schema| schema.get() != "null")
                    .map(|schema| definition.slice(schema)),
                name: shape.name,
                mirrors,
                fault,
                definition,
            }
        }
        Err(error) => {
            #[derive(Deserialize)]
            struct Named {
                name: String,
            }
            let name =
                definition.parse::<Named>().map_or_else(|_| "(nameless)".to_owned(), |named| named.name);
            let fault = Some(format!("its definition is not what the protocol says: {error}"));
            let input_schema = Raw::of(&serde_json::json!({ "type": "object" }));
            OfferedTool {
                name,
                title: None,
                description: String::new(),
                input_schema,
                output_schema: None,
                mirrors: Vec::new(),
                definition,
                fault,
            }
        }
    }
}

/// Why a tool must not be shown to a model as it is.
fn fault(name: &str, description: &str, schema: &RawValue) -> Option<String> {
    if let Some(c) = first_hidden(name).or_else(|| first_hidden(description)) {
        return Some(format!("its description hides the character U+{:04X} from people", u32::from(c)));
    }
    if description.len() > LONGEST_DESCRIPTION {
        return Some(format!("its description is longer than {LONGEST_DESCRIPTION} bytes"));
    }
    if schema.get().len() > LARGEST_SCHEMA {
        return Some(format!("its schema is larger than {LARGEST_SCHEMA} bytes"));
    }
    if !schema.get().starts_with('{') {
        return Some("its schema is not an object".to_owned());
    }
    None
}

fn offered(definition: Raw) -> Option<Offered> {
    let shape: OtherShape = definition.parse().ok()?;
    let id = shape.uri.or(shape.uri_template).unwrap_or_else(|| shape.name.clone());
    let title = shape.title.unwrap_or(shape.name);
    let description = shape.description.unwrap_or_default();
    Some(Offered {
        id: clean(&id).into_owned(),
        title: clean(&title).into_owned(),
        description: clean(&description).into_owned(),
        definition,
    })
}
