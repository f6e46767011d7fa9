//! Adapts the tools of a request to the schema dialect of a provider, and the arguments of calls back.
//!
//! Profiles adapt the schemas of MCP clients in the same way. Invariant: a pure function of the tool and the provider;
//! arguments that cannot be mapped back stay as they are, and the schema of the tool rejects them.

use std::collections::HashMap;

use serde_json::Value as Json;
use toolgate_json::RawJson;
use toolgate_runtime::provider_schema::{ArgumentMapping, adapt_definition};
use toolgate_types::agent::ModelProvider;
use toolgate_types::profile::SchemaDialect;

use super::{CallArguments, ModelReply, ToolSpec};

/// Tools as the provider accepts them.
pub(super) struct AdaptedTools {
    pub(super) specs: Vec<ToolSpec>,
    /// Mappings by the name of the tool, for those that need one.
    mappings: HashMap<String, ArgumentMapping>,
}

impl AdaptedTools {
    pub(super) fn new(provider: ModelProvider, tools: &[ToolSpec]) -> Self {
        let dialect = match provider {
            ModelProvider::Openai | ModelProvider::Azure | ModelProvider::Ollama => SchemaDialect::Openai,
            ModelProvider::Anthropic => SchemaDialect::Anthropic,
            ModelProvider::Gemini => SchemaDialect::Gemini,
        };
        let (mut specs, mut mappings) = (Vec::with_capacity(tools.len()), HashMap::new());
        for tool in tools {
            let schema: Json = tool.schema.parse().unwrap_or_default();
            let adapted = adapt_definition(&tool.description, &schema, dialect);
            if !adapted.mapping.is_empty() {
                mappings.insert(tool.name.clone(), adapted.mapping);
            }
            let schema = RawJson::from_value(&adapted.schema);
            specs.push(ToolSpec { name: tool.name.clone(), description: adapted.description, schema });
        }
        Self { specs, mappings }
    }

    /// Maps the arguments of the calls back to the schemas of the tools.
    pub(super) fn restore(&self, mut reply: ModelReply) -> ModelReply {
        for call in &mut reply.calls {
            let Some(mapping) = self.mappings.get(&call.name) else { continue };
            if let CallArguments::Object(arguments) = &mut call.arguments
                && let Json::Object(restored) = mapping.restore(Json::Object(std::mem::take(arguments)))
            {
                *arguments = restored;
            }
        }
        reply
    }
}
