//! What `profiles` holds: views of what there is, each for a kind of client.

use serde_json::{Map as JsonMap, Value as Json, json};

use crate::context::Context;
use crate::keys::{At, Named, OneOrMany, Read, Table, choice, keys};
use crate::node::{Node, Value};

keys! {
    /// A view of what there is, for a kind of client: at `/mcp/NAME`, `/sse/NAME` and `/ws/NAME` of `toolgate serve`, and
    /// by `toolgate stdio --profile NAME`. It chooses and renames; it gives nobody anything. docs/profiles.md.
    struct ProfileFile as "profile" {
        /// What it is for. Models are told, before what servers say of themselves.
        description: String,
        /// The tools that are part of it, by the names that they are called by, or `{server}__{tool}`: a list of words
        /// in which `*` stands for any text, or a map that says more. Without it all are.
        tools: SelectionEntry,
        /// The prompts that are part of it, by their names. Without it all are.
        prompts: SelectionEntry,
        /// The resources and templates that are part of it, by their addresses. Without it all are.
        resources: SelectionEntry,
        /// How a client comes to the tools: `full` lists them, `search` gives it `search_tools`, `describe_tool` and
        /// `call_tool`.
        exposure: ExposureName = "full",
        /// Whose models read the definitions: names and schemas that they refuse are written in another way, which is
        /// undone when a tool is called. Without it definitions are shown as they are.
        provider: ProviderPreset,
        /// Where hints are: in `_meta` of a result, or as a text block, too.
        hints: HintsName = "meta",
    }
}

keys! {
    /// What of a kind is part of a profile.
    struct SelectionFile as "selection" {
        /// What is part of it. Without this key all is.
        include: OneOrMany<String>,
        /// What of that is not.
        exclude: OneOrMany<String>,
        /// What is shown as something else, by its own name, or its address for a resource.
        r#as: Named<ShownFile>,
    }
}

keys! {
    /// As what something is shown in a profile.
    struct ShownFile as "shown" {
        /// Under this name.
        name: String,
        /// With this description.
        description: String,
    }
}

choice! {
    /// How a client comes to the tools.
    enum ExposureName as "a way to show tools" {
        /// It is given all of them.
        Full = "full",
        /// It is given tools to find, describe and call them.
        Search = "search",
    }
}

choice! {
    /// Whose models read definitions.
    enum ProviderPreset as "a provider of models" {
        /// OpenAI, and those that speak its language.
        Openai = "openai",
        /// Anthropic.
        Anthropic = "anthropic",
        /// Google.
        Gemini = "gemini",
        /// Whoever it is.
        Any = "any",
    }
}

choice! {
    /// Where hints are.
    enum HintsName as "a place for hints" {
        /// In `_meta`.
        Meta = "meta",
        /// In `_meta`, and as text.
        Text = "text",
    }
}

/// A selection, which may be written as the list of what is part of it.
#[derive(Debug, Clone)]
pub(crate) struct SelectionEntry(pub(crate) SelectionFile);

impl Read for SelectionEntry {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        if matches!(node.value, Value::Map(_)) {
            return SelectionFile::read(node, cx).map(Self);
        }
        let value = OneOrMany::read(node, cx)?;
        let include = Some(At { value, span: node.span, key_span: node.span });
        Some(Self(SelectionFile { include, ..SelectionFile::empty(node.span) }))
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "anyOf": [OneOrMany::<String>::schema(parts), SelectionFile::schema(parts)] })
    }

    fn label() -> String {
        format!("{}, or a {}", OneOrMany::<String>::label(), SelectionFile::label())
    }

    fn tables(out: &mut Vec<Table>) {
        SelectionFile::tables(out);
    }
}
