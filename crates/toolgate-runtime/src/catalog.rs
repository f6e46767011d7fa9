//! The catalog: every tool under the name callers use, with its limits and its state.
//!
//! A pure function makes it from own tools, servers and settings. Invariant: who owns a bare name
//! depends on the configuration and never on which server answered first.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Serialize, Serializer};
use toolgate_audit::SecretFields;
use toolgate_policy::{Schema, Subject};
use toolgate_types::tool::{Category, Contract, Deprecation, FollowUp, Permission, RateLimit, ResponseTime};
use toolgate_types::{
    ApiSpec, HumanDuration, OnCollision, Profile, ServerName, ServerSpec, ToolDefinition, ToolLimits,
    ToolSettings,
};
use toolgate_upstream::invoke::Address;
use toolgate_upstream::offer::Offer;
use toolgate_upstream::openapi::{Found, Operation};
use toolgate_upstream::{Builtin, Raw};

use crate::pins::{DriftClass, NewPin, Pins};
use crate::results::READ_RESULT;
use crate::tally::Guard;

mod api;
mod build;
mod names;

use build::Builder;
pub(crate) use names::normalised;

/// What stands between a server's prefix and a tool's name.
pub const SEPARATOR: &str = "__";

/// All tools.
#[derive(Debug, Default)]
pub struct Catalog {
    /// By the name they are shown under, in the order of the configuration.
    tools: Vec<Arc<CatalogTool>>,
    names: HashMap<Box<str>, usize>,
    listing: OnceLock<Bytes>,
}

/// One tool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogTool {
    /// The name callers use.
    pub name: String,
    /// The server it comes from; `None` for one's own.
    pub server: Option<ServerName>,
    /// Its name on the server.
    #[serde(skip)]
    pub original: String,
    /// Its title for people.
    pub title: Option<String>,
    /// What it does.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: Raw,
    /// The schema of its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Raw>,
    /// What may be done with it beside calling it once.
    #[serde(flatten)]
    pub contract: Contract,
    /// What kind of tool it is, where somebody said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// Words to find it by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What it was made of, where it is one's own.
    #[serde(skip)]
    pub(crate) source: Option<Arc<ToolDefinition>>,
    /// Its definition as a server wrote it; `None` for one's own.
    #[serde(skip)]
    pub definition: Option<Raw>,
    /// The pin that its definition makes; `None` for one's own.
    #[serde(skip)]
    pub hash: Option<Box<str>>,
    /// Its limits.
    #[serde(skip)]
    pub limits: ToolLimits,
    /// What a caller must be allowed to do; never empty.
    #[serde(skip)]
    pub permissions: Vec<Permission>,
    /// How often one caller may call it.
    #[serde(skip)]
    pub rate_limit: Option<RateLimit>,
    /// How long a result may be served again.
    #[serde(skip)]
    pub cache_ttl: Option<HumanDuration>,
    /// How fast it usually answers.
    #[serde(skip)]
    pub response_time: Option<ResponseTime>,
    /// What follows it, where it is on its way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecation>,
    /// What often makes sense after it.
    #[serde(skip)]
    pub follow_ups: Vec<FollowUp>,
    /// Whether what it promises of itself counts.
    #[serde(skip)]
    pub trusted: bool,
    /// Whether a result that does not fit its schema is refused.
    #[serde(skip)]
    pub strict_output: bool,
    /// What runs it.
    #[serde(skip)]
    pub upstream: Upstream,
    /// What is made of all this when it is first called.
    #[serde(skip)]
    pub(crate) compiled: Arc<OnceLock<Compiled>>,
    /// What stands before it, found when it is first called.
    #[serde(skip)]
    pub(crate) guard: OnceLock<Arc<Guard>>,
    /// Whether it can be called.
    #[serde(flatten)]
    pub state: ToolState,
}

/// What runs a tool.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// A function of ours.
    Builtin(Arc<Builtin>),
    /// A program of one's own.
    Script(Arc<ToolDefinition>),
    /// A server.
    Server(Address),
    /// An operation of an API.
    OpenApi(Arc<Operation>),
}

/// Whether a tool can be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolState {
    /// It can.
    Ready,
    /// It cannot.
    Quarantined {
        /// What it takes to change that.
        why: Why,
        /// The reason, for people.
        reason: String,
    },
}

/// Why a tool is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its definition is of no use, whatever anyone says.
    Faulty,
    /// Its server is strict, and the configuration does not name it.
    NotConfigured,
    /// Nobody has approved it yet, and somebody should.
    NotApproved,
    /// It is not what it was when it was approved or first seen.
    Changed,
}

impl Serialize for ToolState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("ToolState", 2)?;
        let (state, reason) = match self {
            Self::Ready => ("ready", None),
            Self::Quarantined { reason, .. } => ("quarantined", Some(reason)),
        };
        fields.serialize_field("state", state)?;
        fields.serialize_field("reason", &reason)?;
        fields.end()
    }
}

/// Something worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// How important it is.
    pub level: Level,
    /// What happened.
    pub message: String,
}

/// How important an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Somebody has to act.
    Error,
    /// Somebody should look.
    Warning,
    /// Good to know.
    Info,
    /// For who looks closely.
    Debug,
}

/// Why there can be no catalog. The start fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// A strict server offers a tool that has no settings.
    #[error(
        "Tool '{tool}' from MCP server '{server}' is not configured in the toolbox.

MCP Server: {server}
Mode: strict
Missing Tool: {tool}

Configured tools: [{}]

To resolve:
1. Add the tool to myai.toolbox.tools in your configuration, OR
2. Change the MCP server mode to 'dynamic' and provide default_tool_config",
        configured.join(", ")
    )]
    NotConfigured {
        /// The tool.
        tool: String,
        /// Its server.
        server: ServerName,
        /// The tools that are configured.
        configured: Vec<String>,
    },
    /// Two tools want one name, and the configuration says that this is an error.
    #[error("two tools are called `{name}`: {first} and {second}")]
    Collision {
        /// The name.
        name: String,
        /// Who has it.
        first: String,
        /// Who wants it too.
        second: String,
    },
}

/// What a catalog is made of.
pub struct Parts<'a> {
    /// Functions of ours.
    pub builtins: &'a [Arc<Builtin>],
    /// Own tools.
    pub own: &'a [Arc<ToolDefinition>],
    /// What the operator says about single tools.
    pub settings: &'a [ToolSettings],
    /// The servers in the order of the configuration, with what those that answered offer.
    pub servers: &'a [(&'a ServerSpec, Option<&'a Offer>)],
    /// The APIs in the order of the configuration, with what was found of them.
    pub apis: &'a [(&'a ApiSpec, Found)],
    /// What servers said of their tools before.
    pub pins: &'a Pins,
    /// Who gets a name that two tools want.
    pub on_collision: OnCollision,
    /// The catalog before, to know what is new, what is gone and who has which name.
    pub previous: Option<&'a Catalog>,
}

/// A catalog, and what was noticed in making it.
#[derive(Debug)]
pub struct Built {
    /// The catalog.
    pub catalog: Catalog,
    /// Lines for the log.
    pub events: Vec<Event>,
    /// Definitions to remember.
    pub pins: Vec<NewPin>,
    /// Definitions that are not what they were.
    pub changed: Vec<Changed>,
}

/// A definition that is not what was approved or first seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Changed {
    /// The server.
    pub server: ServerName,
    /// The tool's name there.
    pub tool: String,
    /// What told the definition from every other.
    pub was: Box<str>,
    /// What does now.
    pub is: Box<str>,
    /// How bad the change is.
    pub class: DriftClass,
    /// Whether the tool is held back for it.
    pub held_back: bool,
}

impl Catalog {
    /// Makes the catalog. At the first time a strict server's unknown tool is an error; later it is
    /// quarantined, and the rest goes on.
    ///
    /// # Errors
    /// When the tools do not go together; all of the reasons.
    pub fn build(parts: &Parts<'_>) -> Result<Built, Vec<CatalogError>> {
        let mut builder = Builder::new(parts);
        for tool in parts.own {
            builder.own(tool);
        }
        for tool in parts.builtins {
            builder.builtin(tool);
        }
        for (spec, offer) in parts.servers {
            match offer {
                Some(offer) => builder.server(spec, offer),
                None => builder.absent(spec),
            }
        }
        for (spec, found) in parts.apis {
            builder.api(spec, found);
        }
        builder.unclaimed_settings();
        builder.finish()
    }

    /// The tools, in the order of the configuration.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<CatalogTool>> {
        self.tools.iter()
    }

    /// The tool that a name means: its shown name, or `{server}__{tool}`.
    pub fn resolve(&self, name: &str) -> Option<&Arc<CatalogTool>> {
        self.names.get(name).map(|at| &self.tools[*at])
    }

    /// The tools that can be called, as the result of `tools/list`. Written once for each catalog.
    pub fn listing(&self) -> &Bytes {
        self.listing.get_or_init(|| {
            let ready = self.tools.iter().filter(|tool| tool.state == ToolState::Ready);
            let mut text = String::from("{\"tools\":[");
            for (at, tool) in ready.enumerate() {
                text.push_str(if at > 0 { "," } else { "" });
                tool.list_into(&mut text, &Words::default());
            }
            text.push_str("]}");
            text.into()
        })
    }

    /// Those of the tools that can be called and are shown, as elements of a list.
    pub fn listed<'a>(
        &'a self,
        shown: impl Fn(&CatalogTool) -> bool + 'a,
    ) -> impl Iterator<Item = String> + 'a {
        let ready = self.tools.iter().filter(move |tool| tool.state == ToolState::Ready && shown(tool));
        ready.map(|tool| tool.listed_in(&Words::default()))
    }

    /// Whether callers would notice that this catalog took the place of another.
    pub fn differs_from(&self, other: &Self) -> bool {
        fn shown(tool: &Arc<CatalogTool>) -> impl PartialEq + use<'_> {
            let CatalogTool { name, server, hash, state, .. } = tool.as_ref();
            (name, server, hash, state)
        }
        !self.tools.iter().map(shown).eq(other.tools.iter().map(shown))
    }

    fn has_of(&self, server: &ServerName, original: &str) -> bool {
        self.tools.iter().any(|tool| tool.server.as_ref() == Some(server) && tool.original == original)
    }

    /// Who had a bare name.
    fn owner(&self, bare: &str) -> Option<&CatalogTool> {
        self.resolve(bare).map(Arc::as_ref).filter(|tool| tool.name == bare)
    }
}

/// What a call needs that takes time to make.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) subject: Subject,
    pub(crate) input: Schema,
    pub(crate) output: Option<Schema>,
    /// What the schemas call secret, of the arguments and of the reply.
    pub(crate) secret: (SecretFields, SecretFields),
}

impl CatalogTool {
    /// What a call needs, made once for each definition.
    pub(crate) fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| {
            // Schemas were checked when the tool was discovered; one that cannot be used all the same
            // lets nothing through.
            let schema = |raw: &Raw| {
                let value: serde_json::Value = raw.parse().unwrap_or_default();
                Schema::new(&value).unwrap_or_else(|error| {
                    tracing::error!("Tool '{}' cannot be called: {error}", self.name);
                    Schema::new(&serde_json::Value::Bool(false)).expect("it is a schema")
                })
            };
            let reply = |raw: &Raw| SecretFields::of_reply(&raw.parse().unwrap_or_default());
            Compiled {
                secret: (self.secret_arguments(), self.output_schema.as_ref().map(reply).unwrap_or_default()),
                subject: self.subject(),
                input: schema(&self.input_schema),
                output: self.output_schema.as_ref().map(schema),
            }
        })
    }

    /// What its schema calls secret of the arguments.
    pub(crate) fn secret_arguments(&self) -> SecretFields {
        SecretFields::of(&self.input_schema.parse().unwrap_or_default())
    }

    /// Whether what is made of it is the same as what was made of another, so that it is not made again.
    fn compiles_as(&self, other: &Self) -> bool {
        let about = |tool: &Self| (tool.trusted, tool.category, tool.server.clone(), tool.hash.clone());
        self.input_schema == other.input_schema
            && self.output_schema == other.output_schema
            && (&self.name, &self.original) == (&other.name, &other.original)
            && (&self.permissions, &self.contract, &self.tags)
                == (&other.permissions, &other.contract, &other.tags)
            && about(self) == about(other)
    }

    /// What is known of it when it is decided on.
    pub fn subject(&self) -> Subject {
        Subject {
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

    /// Every name that means it: the one that callers use, and where it is of a server `{server}__{tool}`.
    pub fn names(&self) -> Vec<String> {
        let qualified = self
            .server
            .as_ref()
            .map(|server| format!("{}{SEPARATOR}{}", server.prefix(), normalised(&self.original)));
        std::iter::once(self.name.clone()).chain(qualified.filter(|name| *name != self.name)).collect()
    }

    /// Whether a profile has it.
    pub fn is_part_of(&self, profile: &Profile) -> bool {
        let names = self.names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // Who gets the beginning of a result can read all of it.
        let reads = self.name == READ_RESULT && self.server.is_none() && !profile.tools.excludes(&names);
        reads || profile.tools.has(&names)
    }

    /// Its definition as the element of a list, in other words where they are given.
    pub fn listed_in(&self, words: &Words<'_>) -> String {
        let mut text = String::new();
        self.list_into(&mut text, words);
        text
    }

    /// The definition under the name that callers use; the rest as the server wrote it.
    fn list_into(&self, out: &mut String, words: &Words<'_>) {
        let name = serde_json::Value::from(words.name.unwrap_or(&self.name));
        out.push_str(&format!(r#"{{"name":{name}"#));
        let description = words.description.map(|text| serde_json::Value::from(text).to_string());
        let Some(definition) = &self.definition else {
            let description =
                description.unwrap_or_else(|| serde_json::Value::from(self.description.as_str()).to_string());
            let schema = words.input_schema.unwrap_or(self.input_schema.get());
            out.push_str(&format!(r#","description":{description},"inputSchema":{schema}"#));
            if let Some(schema) = &self.output_schema {
                out.push_str(r#","outputSchema":"#);
                out.push_str(schema.get());
            }
            return out.push('}');
        };
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

/// What stands in a definition in the place of what the tool says itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Words<'a> {
    /// Its name.
    pub name: Option<&'a str>,
    /// What it does.
    pub description: Option<&'a str>,
    /// The schema of its arguments, as JSON.
    pub input_schema: Option<&'a str>,
}

#[cfg(test)]
pub(crate) mod tests;
