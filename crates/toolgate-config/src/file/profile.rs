//! Keys of `profiles`: views of the catalog for different kinds of clients.

use serde_json::{Map as JsonMap, Value as Json, json};

use crate::context::Context;
use crate::keys::{ConfigValue, KeyTable, NamedMap, OneOrMany, Spanned, choice, keys};
use crate::node::{Node, Value};

keys! {
    /// A view of the catalog for one kind of client, served at `/mcp/NAME`, `/sse/NAME` and `/ws/NAME` of
    /// `toolgate serve` and by `toolgate stdio --profile NAME`. It selects and renames; it grants no permissions.
    /// See docs/profiles.md.
    struct ProfileFile as "profile" {
        /// Purpose of the profile. Models see it, before the instructions of servers.
        description: String,
        /// Tools of the profile, by listed name or `{server}__{tool}`: a list of patterns (`*` matches any string),
        /// or a map with more options. Default: all.
        tools: SelectionEntry,
        /// Prompts of the profile, by name. Default: all.
        prompts: SelectionEntry,
        /// Resources and resource templates of the profile, by URI. Default: all.
        resources: SelectionEntry,
        /// Presentation of the tools: `full` lists them, `search` lists `search_tools`, `describe_tool` and
        /// `call_tool` instead.
        exposure: ExposureName = "full",
        /// Model provider that reads the definitions. Names and schemas it would reject are rewritten, and mapped
        /// back when a tool is called. Default: definitions are not changed.
        provider: ProviderPreset,
        /// Location of hints: in `_meta` of a result only, or also as a text block.
        hints: HintsName = "meta",
    }
}

keys! {
    /// Selection of tools, prompts or resources for a profile.
    struct SelectionFile as "selection" {
        /// Patterns to include. Default: all.
        include: OneOrMany<String>,
        /// Patterns to exclude from the included ones.
        exclude: OneOrMany<String>,
        /// New names and descriptions, by original name (by URI for a resource).
        r#as: NamedMap<AliasFile>,
    }
}

keys! {
    /// Name and description shown in a profile in place of the original.
    struct AliasFile as "alias" {
        /// Name to show.
        name: String,
        /// Description to show.
        description: String,
    }
}

choice! {
    /// Presentation of tools to a client.
    enum ExposureName as "an exposure mode" {
        /// Every tool is listed.
        Full = "full",
        /// Tools to search, describe and call the others are listed.
        Search = "search",
    }
}

choice! {
    /// Model provider that reads the definitions.
    enum ProviderPreset as "a model provider" {
        /// OpenAI and compatible providers.
        Openai = "openai",
        /// Anthropic.
        Anthropic = "anthropic",
        /// Google.
        Gemini = "gemini",
        /// Restrictions of all providers combined.
        Any = "any",
    }
}

choice! {
    /// Location of hints.
    enum HintsName as "a hints mode" {
        /// In `_meta` only.
        Meta = "meta",
        /// In `_meta`, and as a text block.
        Text = "text",
    }
}

/// A selection. In a file, a plain list is short for its `include`.
#[derive(Debug, Clone)]
pub(crate) struct SelectionEntry(pub(crate) SelectionFile);

impl ConfigValue for SelectionEntry {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        if matches!(node.value, Value::Map(_)) {
            return SelectionFile::read(node, cx).map(Self);
        }
        let value = OneOrMany::read(node, cx)?;
        let include = Some(Spanned { value, span: node.span, key_span: node.span });
        Some(Self(SelectionFile { include, ..SelectionFile::empty(node.span) }))
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "anyOf": [OneOrMany::<String>::schema(parts), SelectionFile::schema(parts)] })
    }

    fn label() -> String {
        format!("{}, or a {}", OneOrMany::<String>::label(), SelectionFile::label())
    }

    fn tables(out: &mut Vec<KeyTable>) {
        SelectionFile::tables(out);
    }
}
