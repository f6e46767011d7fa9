//! The catalog: every tool under its caller-facing name, with its limits and state.
//!
//! A pure function builds it from own tools, servers and settings. Invariant: the owner of a bare name depends on the
//! configuration, never on the order in which servers answer.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Serialize, Serializer};
use toolgate_audit::SecretFields;
use toolgate_policy::{SchemaValidator, TargetKind, ToolAttributes, schema};
use toolgate_redact::printable;
use toolgate_types::tool::{
    Category, Deprecation, FollowUp, Permission, RateLimit, ResponseTime, ToolContract,
};
use toolgate_types::{
    ApiSpec, HumanDuration, OnCollision, Profile, ServerName, ServerSpec, ToolDefinition, ToolLimits,
    ToolSettings,
};
use toolgate_upstream::invoke::{RemoteTool, ServerRequest};
use toolgate_upstream::offer::{ServerOffer, visible};
use toolgate_upstream::openapi::{ApiOperation, LoadedApi};
use toolgate_upstream::{BuiltinTool, RawJson};

use crate::pins::{DriftClass, NewPin, PinSet};
use crate::results::READ_RESULT;
use crate::stage::hints::FollowUps;
use crate::tool_stats::SharedToolState;

mod api;
mod build;
mod names;
mod target;

use build::CatalogBuilder;
pub(crate) use names::normalize_name;
pub(crate) use target::server_item;

/// Separator between a server's prefix and a tool's name.
pub const SEPARATOR: &str = "__";

#[derive(Debug, Default)]
pub struct Catalog {
    /// In configuration order.
    tools: Vec<Arc<CatalogTool>>,
    names: HashMap<Box<str>, usize>,
    /// Hashes of the events of its build.
    reported: HashSet<u64>,
    listing: OnceLock<Bytes>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogTool {
    /// The caller-facing name.
    pub name: String,
    /// Its server or API; `None` for own and built-in tools.
    pub server: Option<ServerName>,
    /// Its name on the server.
    #[serde(skip)]
    pub original: String,
    /// Its normalized name with a suffix, if another tool of its server has the same normalized name.
    #[serde(skip)]
    pub(crate) distinct_name: Option<Box<str>>,
    pub title: Option<String>,
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: RawJson,
    /// JSON Schema of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<RawJson>,
    /// Version, risk, idempotency and cacheability.
    #[serde(flatten)]
    pub contract: ToolContract,
    /// Its category, if declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// Search keywords.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The definition of an own tool.
    #[serde(skip)]
    pub(crate) source: Option<Arc<ToolDefinition>>,
    /// The definition as the server wrote it; `None` for own and built-in tools.
    #[serde(skip)]
    pub definition: Option<RawJson>,
    /// Hash of the server's definition; `None` for own and built-in tools.
    #[serde(skip)]
    pub hash: Option<Box<str>>,
    #[serde(skip)]
    pub limits: ToolLimits,
    /// Permissions a caller needs. Empty: every caller may call it.
    #[serde(skip)]
    pub permissions: Vec<Permission>,
    /// Calls per caller and window.
    #[serde(skip)]
    pub rate_limit: Option<RateLimit>,
    /// Time that results are cached.
    #[serde(skip)]
    pub cache_ttl: Option<HumanDuration>,
    /// Usual response time.
    #[serde(skip)]
    pub response_time: Option<ResponseTime>,
    /// Its replacement and removal date, if deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecation>,
    /// Declared next steps.
    #[serde(skip)]
    pub(crate) follow_ups: FollowUps,
    /// True if its own claims and results are trusted.
    #[serde(skip)]
    pub trusted: bool,
    /// True if its server declares it read-only and the operator's settings do not contradict that. Decides the
    /// durability of its records and nothing else: the server may be untrusted.
    #[serde(skip)]
    pub(crate) declared_read_only: bool,
    /// True if results that do not match the output schema are rejected.
    #[serde(skip)]
    pub strict_output: bool,
    #[serde(skip)]
    pub upstream: Upstream,
    /// Compiled schemas, created by the first call.
    #[serde(skip)]
    pub(crate) compiled: Arc<OnceLock<CompiledTool>>,
    /// Shared state, looked up by the first call.
    #[serde(skip)]
    pub(crate) shared_state: OnceLock<Arc<SharedToolState>>,
    #[serde(flatten)]
    pub state: ToolState,
}

/// The implementation of a tool.
#[derive(Debug, Clone)]
pub enum Upstream {
    Builtin(Arc<BuiltinTool>),
    /// An executable or function of this project.
    Script(Arc<ToolDefinition>),
    /// A tool of an MCP server.
    Server(RemoteTool),
    /// The login of a caller to an MCP server.
    Login,
    /// An operation of an HTTP API.
    OpenApi(Arc<ApiOperation>),
    /// A request to an MCP server for a resource, a prompt or a completion.
    Request(TargetKind, ServerRequest),
    /// A subscription to updates of a resource.
    Subscription,
    /// A stored result of the caller.
    StoredResult,
}

/// Availability of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolState {
    /// The tool can be called.
    Ready,
    /// The tool cannot be called.
    Quarantined {
        cause: QuarantineCause,
        /// The reason, for people.
        reason: String,
    },
    /// The tool is past its removal date. Calls get its replacement.
    Removed {
        /// The reason, for people.
        reason: String,
    },
}

impl ToolState {
    /// Name in listings.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Quarantined { .. } => "quarantined",
            Self::Removed { .. } => "removed",
        }
    }

    /// The reason why the tool cannot be called.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Ready => None,
            Self::Quarantined { reason, .. } | Self::Removed { reason } => Some(reason),
        }
    }
}

/// Causes of a quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineCause {
    /// The definition is invalid. Approval cannot fix it.
    Faulty,
    /// The server is strict, and the tool has no settings.
    NotConfigured,
    /// The tool needs approval and has none yet.
    NotApproved,
    /// The definition differs from its pin.
    Changed,
    /// A person rejected the definition.
    Rejected,
}

impl Serialize for ToolState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("ToolState", 2)?;
        fields.serialize_field("state", self.label())?;
        fields.serialize_field("reason", &self.reason())?;
        fields.end()
    }
}

/// A log message from the build of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CatalogEvent {
    /// The server that caused it.
    pub server: Option<ServerName>,
    pub level: EventLevel,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventLevel {
    Error,
    Warning,
    Info,
    Debug,
}

impl CatalogEvent {
    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Reasons why a catalog cannot be built. Startup fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// A strict server offers a tool that has no settings.
    #[error(
        "Tool '{shown}' from MCP server '{server}' is not configured in the toolbox.

MCP Server: {server}
Mode: strict
Missing Tool: {shown}

Configured tools: [{}]

To resolve:
1. Add the tool to myai.toolbox.tools in your configuration, OR
2. Change the MCP server mode to 'dynamic' and provide default_tool_config",
        configured.join(", "),
        shown = printable(tool)
    )]
    NotConfigured { tool: String, server: ServerName, configured: Vec<String> },
    /// Two tools have the same name, and `on_collision` is `error`.
    #[error("two tools are called `{}`: {} and {}", printable(name), printable(first), printable(second))]
    Collision {
        name: String,
        /// Source of the first tool.
        first: String,
        /// Source of the second tool.
        second: String,
    },
}

/// Everything a catalog is built from.
pub struct CatalogInputs<'a> {
    pub builtins: &'a [Arc<BuiltinTool>],
    pub own: &'a [Arc<ToolDefinition>],
    /// The operator's settings for individual tools.
    pub settings: &'a [ToolSettings],
    /// Servers in configuration order, with the offers of those that answered.
    pub servers: &'a [(&'a ServerSpec, Option<&'a ServerOffer>)],
    /// APIs in configuration order, with their operations.
    pub apis: &'a [(&'a ApiSpec, LoadedApi)],
    /// Pinned definitions.
    pub pins: &'a PinSet,
    /// True if definitions that are not pinned are held back.
    pub holds_new: bool,
    /// Policy for two tools with the same name.
    pub on_collision: OnCollision,
    /// The current date as `YYYY-MM-DD`, for removal dates.
    pub today: &'a str,
    /// The catalog before, to detect new and removed tools and to keep names stable. `None` at startup.
    pub previous: Option<&'a Catalog>,
}

/// A catalog and everything noticed while building it.
#[derive(Debug)]
pub struct CatalogBuild {
    pub catalog: Catalog,
    /// Log messages.
    pub events: Vec<CatalogEvent>,
    /// Definitions to pin.
    pub pins: Vec<NewPin>,
    /// Definitions that differ from their pins.
    pub changes: Vec<DefinitionChange>,
}

/// A definition that differs from its pin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DefinitionChange {
    pub server: ServerName,
    /// The server's own name of the tool.
    pub tool: String,
    /// Hash of the pinned definition.
    pub old_hash: Box<str>,
    /// Hash of the new definition.
    pub new_hash: Box<str>,
    pub class: DriftClass,
    /// True if the tool is quarantined because of it.
    pub quarantined: bool,
}

impl Catalog {
    /// Builds the catalog. An unknown tool of a strict server is an error at startup; later it is quarantined.
    ///
    /// # Errors
    /// All reasons why the catalog cannot be built.
    pub fn build(parts: &CatalogInputs<'_>) -> Result<CatalogBuild, Vec<CatalogError>> {
        let mut builder = CatalogBuilder::new(parts);
        for tool in parts.own {
            builder.add_own(tool);
        }
        for tool in parts.builtins {
            builder.add_builtin(tool);
        }
        for (spec, offer) in parts.servers {
            match offer {
                Some(offer) => builder.add_server(spec, offer),
                None => builder.reserve_names(spec),
            }
        }
        for (spec, found) in parts.apis {
            builder.add_api(spec, found);
        }
        builder.warn_unused_settings();
        builder.finish()
    }

    /// All tools, in configuration order.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<CatalogTool>> {
        self.tools.iter()
    }

    /// Resolves a name: the caller-facing name or `{server}__{tool}`.
    pub fn resolve(&self, name: &str) -> Option<&Arc<CatalogTool>> {
        self.names.get(name).map(|at| &self.tools[*at])
    }

    /// The result of `tools/list` with all callable tools. Serialized once per catalog.
    pub fn listing(&self) -> &Bytes {
        self.listing.get_or_init(|| {
            let ready = self.tools.iter().filter(|tool| tool.state == ToolState::Ready);
            let mut text = String::from("{\"tools\":[");
            for (at, tool) in ready.enumerate() {
                text.push_str(if at > 0 { "," } else { "" });
                tool.write_definition(&mut text, &ListingOverrides::default());
            }
            text.push_str("]}");
            text.into()
        })
    }

    /// Serialized definitions of the callable tools that pass the filter.
    pub fn ready_definitions<'a>(
        &'a self,
        filter: impl Fn(&CatalogTool) -> bool + 'a,
    ) -> impl Iterator<Item = String> + 'a {
        let ready = self.tools.iter().filter(move |tool| tool.state == ToolState::Ready && filter(tool));
        ready.map(|tool| tool.listed_definition(&ListingOverrides::default()))
    }

    /// Returns true if callers would notice the difference between two catalogs.
    pub fn differs_from(&self, other: &Self) -> bool {
        fn visible_fields(tool: &Arc<CatalogTool>) -> impl PartialEq + use<'_> {
            let CatalogTool { name, server, hash, state, .. } = tool.as_ref();
            (name, server, hash, state)
        }
        !self.tools.iter().map(visible_fields).eq(other.tools.iter().map(visible_fields))
    }

    /// Returns true if a tool that is still listed is past its removal date.
    pub(crate) fn has_expired(&self, today: &str) -> bool {
        let is_expired = |deprecated: &Deprecation| deprecated.is_removed(today);
        let mut listed = self.tools.iter().filter(|tool| tool.state == ToolState::Ready);
        listed.any(|tool| tool.deprecated.as_ref().is_some_and(is_expired))
    }

    /// Returns true if the build of this catalog had the same event, so that it is no news.
    pub(crate) fn has_reported(&self, event: &CatalogEvent) -> bool {
        self.reported.contains(&event.digest())
    }

    /// The tool of a server with this normalized name.
    fn server_tool(&self, server: &ServerName, name: &str) -> Option<&CatalogTool> {
        let found = self.resolve(&format!("{}{SEPARATOR}{name}", server.prefix()));
        found
            .map(Arc::as_ref)
            .filter(|tool| tool.server.as_ref() == Some(server) && *tool.bare_name() == *name)
    }

    /// The tool that had a name, as its caller-facing or as its qualified one.
    fn name_owner(&self, name: &str) -> Option<&CatalogTool> {
        let owner = self.resolve(name).map(Arc::as_ref);
        owner.filter(|tool| tool.name == name || names::qualified_name(tool) == name)
    }
}

/// Parts of a tool that are expensive to create.
#[derive(Debug)]
pub(crate) struct CompiledTool {
    pub(crate) subject: ToolAttributes,
    pub(crate) input: SchemaValidator,
    pub(crate) output: Option<SchemaValidator>,
    /// Secret fields of the arguments and of the reply, according to the schemas.
    pub(crate) secret: (SecretFields, SecretFields),
}

impl CatalogTool {
    /// Returns true if an earlier call has compiled the schemas.
    pub(crate) fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }

    /// Names the parts of its values that reach its server, or a caller, without a check. Empty for own tools.
    pub fn unchecked(&self) -> Vec<String> {
        let schemas = std::iter::once(&self.input_schema).chain(&self.output_schema);
        let note = |raw: &RawJson| {
            let value: serde_json::Value = raw.parse().unwrap_or_default();
            let (checked, patterns) = schema::checkable(&value);
            match schema::check(&checked) {
                Ok(()) => patterns.map(|patterns| patterns.to_string()),
                Err(fault) => Some(format!("values are not checked at all: {fault}")),
            }
        };
        schemas.filter(|_| self.server.is_some()).filter_map(note).collect()
    }

    /// Compiled schemas and policy subject, created once per definition, by the first call.
    pub(crate) fn compiled(&self) -> &CompiledTool {
        self.compiled.get_or_init(|| {
            // Schemas were checked at discovery. With a schema that fails to compile anyway, own tools reject all calls;
            // servers check their values themselves.
            let schema = |raw: &RawJson| {
                let value: serde_json::Value = raw.parse().unwrap_or_default();
                let (value, _) = match self.server {
                    Some(_) => schema::checkable(&value),
                    None => (Cow::Borrowed(&value), None),
                };
                SchemaValidator::new(&value).unwrap_or_else(|error| {
                    let is_unchecked = self.server.is_some();
                    if is_unchecked {
                        tracing::warn!("Values of tool '{}' are not checked: {error}", self.name);
                    } else {
                        tracing::error!("Tool '{}' cannot be called: {error}", self.name);
                    }
                    SchemaValidator::new(&serde_json::Value::Bool(is_unchecked)).expect("a valid schema")
                })
            };
            let reply = |raw: &RawJson| SecretFields::from_output_schema(&raw.parse().unwrap_or_default());
            CompiledTool {
                secret: (self.secret_arguments(), self.output_schema.as_ref().map(reply).unwrap_or_default()),
                subject: self.subject(),
                input: schema(&self.input_schema),
                output: self.output_schema.as_ref().map(schema),
            }
        })
    }

    /// Secret fields of the arguments.
    pub(crate) fn secret_arguments(&self) -> SecretFields {
        SecretFields::from_schema(&self.input_schema.parse().unwrap_or_default())
    }

    /// Returns true if both tools compile to the same parts, so that they can be reused.
    fn has_same_compiled(&self, other: &Self) -> bool {
        let about = |tool: &Self| (tool.trusted, tool.category, tool.server.clone(), tool.hash.clone());
        self.input_schema == other.input_schema
            && self.output_schema == other.output_schema
            && (&self.name, &self.original) == (&other.name, &other.original)
            && (&self.permissions, &self.contract, &self.tags)
                == (&other.permissions, &other.contract, &other.tags)
            && about(self) == about(other)
    }

    /// The definition of an own tool, as it is configured.
    pub fn own_definition(&self) -> Option<&Arc<ToolDefinition>> {
        self.source.as_ref()
    }

    /// Declared next steps.
    pub fn declared_steps(&self) -> &[FollowUp] {
        self.follow_ups.steps()
    }

    /// The tool as the policy sees it.
    pub fn subject(&self) -> ToolAttributes {
        ToolAttributes {
            kind: self.target_kind(),
            name: self.name.clone(),
            original: self.original.clone(),
            server: self.server.as_ref().map(ToString::to_string),
            permissions: self.permissions.clone(),
            contract: self.contract.clone(),
            category: self.category,
            tags: self.tags.clone(),
            trusted: self.trusted,
            definition: self.hash.clone(),
        }
    }

    /// Its name without the prefix of its server.
    pub(crate) fn bare_name(&self) -> Cow<'_, str> {
        match &self.distinct_name {
            Some(name) => Cow::Borrowed(name),
            None => normalize_name(&self.original),
        }
    }

    /// All names of the tool: the caller-facing one, and `{server}__{tool}` if it has a server.
    pub fn names(&self) -> Vec<String> {
        let qualified =
            self.server.as_ref().map(|server| format!("{}{SEPARATOR}{}", server.prefix(), self.bare_name()));
        std::iter::once(self.name.clone()).chain(qualified.filter(|name| *name != self.name)).collect()
    }

    /// Returns true if the profile includes the tool.
    pub fn is_in_profile(&self, profile: &Profile) -> bool {
        let names = self.names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // Truncated results must stay readable, so every profile has `read_result` unless it excludes it.
        let reads = self.name == READ_RESULT && self.server.is_none() && !profile.tools.excludes(&names);
        reads || profile.tools.contains(&names)
    }

    /// Its serialized definition, with overrides.
    pub fn listed_definition(&self, words: &ListingOverrides<'_>) -> String {
        let mut text = String::new();
        self.write_definition(&mut text, words);
        text
    }

    /// Writes the definition under the caller-facing name, otherwise as the server wrote it, without hidden characters.
    fn write_definition(&self, out: &mut String, words: &ListingOverrides<'_>) {
        let name = serde_json::Value::from(words.name.unwrap_or(&self.name));
        out.push_str(&format!(r#"{{"name":{name}"#));
        let description = words.description.map(|text| serde_json::Value::from(text).to_string());
        let Some(definition) = &self.definition else {
            let description =
                description.unwrap_or_else(|| serde_json::Value::from(self.description.as_str()).to_string());
            let schema = words.input_schema.unwrap_or(self.input_schema.as_str());
            out.push_str(&format!(r#","description":{description},"inputSchema":{schema}"#));
            if let Some(schema) = &self.output_schema {
                out.push_str(r#","outputSchema":"#);
                out.push_str(schema.as_str());
            }
            return out.push('}');
        };
        let definition = visible(definition);
        let members = definition.members();
        if let Some(description) =
            description.as_ref().filter(|_| members.iter().all(|(name, _)| name != "description"))
        {
            out.push_str(&format!(r#","description":{description}"#));
        }
        for (member, value) in members.iter().filter(|(member, _)| member != "name") {
            out.push(',');
            out.push_str(&serde_json::Value::from(&**member).to_string());
            out.push(':');
            out.push_str(match (&**member, &description, words.input_schema) {
                ("description", Some(description), _) => description,
                ("inputSchema", _, Some(schema)) => schema,
                _ => value,
            });
        }
        out.push('}');
    }
}

/// Replacements for parts of a listed definition.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListingOverrides<'a> {
    pub name: Option<&'a str>,
    pub description: Option<&'a str>,
    /// JSON Schema of the arguments, serialized.
    pub input_schema: Option<&'a str>,
}

#[cfg(test)]
pub(crate) mod tests;
