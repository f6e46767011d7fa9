//! `profiles`: views of the catalog for different kinds of clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map as JsonMap, Value as Json, json};
use toolgate_types::profile::{
    DisplayOverride, HintsMode, Profile, ProfileChoice, ProfileName, ProfileSelection, Profiles,
    SchemaDialect, ToolExposure,
};
use toolgate_types::{CallerId, ToolName, wildcard};

use crate::context::Context;
use crate::keys::{
    ConfigValue, KeyTable, NamedMap, OneOrMany, Spanned, choice, closest_match, into_value, join_quoted, keys,
};
use crate::node::{Node, Value};
use crate::problem::Problem;
use crate::resolve::ConfigBuilder;
use crate::source::Span;

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
        /// `call_tool` instead, and `code` lists `run_code`, for Python programs with the tools as functions,
        /// and `find_functions` (requires `code_execution`; see docs/code-mode.md).
        exposure: ExposureName = "full",
        /// Model provider that reads the definitions. Names and schemas it would reject are rewritten, and mapped
        /// back when a tool is called. Default: definitions are not changed.
        provider: ProviderPreset,
        /// Hints in results over MCP. Default: `toolbox.hints`.
        hints: HintsName,
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
        /// Tools to find functions, and to run programs that call them, are listed.
        Code = "code",
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
    /// Hints in results over MCP.
    enum HintsName as "a hints mode" {
        /// In `_meta`, and only hints that the client can act on.
        Brief = "brief",
        /// None.
        Off = "off",
        /// The hints of `brief`, as one line of text.
        Text = "text",
        /// All hints and metadata, in `_meta`.
        Full = "full" | "meta",
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

/// Separator between a server's prefix and a tool's name.
const SEPARATOR: &str = "__";

/// Collects profiles until they can be checked against the catalog.
#[derive(Default)]
pub(crate) struct ProfilesBuilder {
    all: Vec<Arc<Profile>>,
    choices: BTreeMap<CallerId, ProfileChoice>,
    /// Profiles that callers refer to, with their locations.
    references: Vec<(CallerId, Spanned<String>)>,
    /// `hints` of the toolbox.
    pub(crate) hints: HintsMode,
    /// Tool patterns of profiles, with their locations.
    patterns: Vec<(ProfileName, String, Span)>,
}

impl ConfigBuilder {
    /// Sets the default of `hints` in profiles. Must come before the profiles.
    pub(crate) fn set_hints(&mut self, hints: &Spanned<HintsName>) {
        self.origins.insert("profiles.hints".to_owned(), hints.span);
        self.profiles.hints = hints.value.into();
    }

    pub(crate) fn add_profile(&mut self, name: &str, file: Spanned<ProfileFile>, cx: &mut Context<'_>) {
        let name: ProfileName = match name.parse() {
            Ok(name) => name,
            Err(error) => {
                let message = format!("`{name}` is not a profile's name");
                return cx.error(file.key_span, message, format!("{error}"));
            }
        };
        let file = file.value;
        self.record_origins(&format!("profiles.{name}"), file.value_spans());
        cx.labels.push(format!("profile `{name}`"));
        self.collect_patterns(&name, file.tools.as_ref());
        let tools = file.tools.map(|at| at.value.0);
        if let Some(tools) = &tools {
            check_tool_names(tools, cx);
        }
        if let Some(exposure) = file.exposure.as_ref().filter(|at| matches!(at.value, ExposureName::Code)) {
            self.code_exposures.push(exposure.span);
        }
        let profile = Profile {
            description: into_value(file.description),
            tools: resolve_selection(tools),
            prompts: resolve_selection(file.prompts.map(|at| at.value.0)),
            resources: resolve_selection(file.resources.map(|at| at.value.0)),
            exposure: file.exposure.map_or(ToolExposure::Full, |at| at.value.into()),
            provider: file.provider.map(|at| at.value.into()),
            hints: file.hints.map_or(self.profiles.hints, |at| at.value.into()),
            name,
        };
        cx.labels.pop();
        self.profiles.all.push(Arc::new(profile));
    }

    pub(super) fn set_caller_profiles(
        &mut self,
        id: &CallerId,
        default: Option<Spanned<String>>,
        only: Option<Spanned<OneOrMany<String>>>,
        cx: &mut Context<'_>,
    ) {
        if default.is_none() && only.is_none() {
            return;
        }
        let known = |at: &Spanned<String>| at.value.parse::<ProfileName>().ok();
        let allowed = only.as_ref().map(|at| at.value.0.iter().filter_map(known).collect::<Vec<_>>());
        if let Some(only) = only.as_ref().filter(|only| only.value.0.is_empty()) {
            let message = format!("caller `{id}` may use no profile");
            cx.error(only.span, message, "name one, or leave `profiles` out");
        }
        if let (Some(default), Some(only)) = (&default, &only)
            && only.value.0.iter().all(|one| one.value != default.value)
        {
            let message = format!("`profile` of caller `{id}` is none of its `profiles`");
            cx.error(default.span, message, format!("add `{}` to `profiles`", default.value));
        }
        let choice = ProfileChoice { default: default.as_ref().and_then(known), only: allowed };
        self.profiles.choices.insert(id.clone(), choice);
        let named = default.into_iter().chain(only.into_iter().flat_map(|only| only.value.0));
        self.profiles.references.extend(named.map(|name| (id.clone(), name)));
    }

    fn collect_patterns(&mut self, profile: &ProfileName, tools: Option<&Spanned<SelectionEntry>>) {
        let Some(SelectionEntry(file)) = tools.map(|at| &at.value) else { return };
        let lists = [&file.include, &file.exclude].into_iter().flatten().flat_map(|at| &at.value.0);
        let words = lists.map(|at| (at.value.clone(), at.span));
        let shown = file.r#as.iter().flat_map(|at| &at.value.0).map(|(word, at)| (word.clone(), at.key_span));
        let all = words.chain(shown).map(|(word, span)| (profile.clone(), word, span));
        self.profiles.patterns.extend(all);
    }

    /// Checks references to profiles and tools, and builds the profiles.
    pub(crate) fn finish_profiles(&mut self, cx: &mut Context<'_>) -> Arc<Profiles> {
        let builder = std::mem::take(&mut self.profiles);
        let names: Vec<&str> = builder.all.iter().map(|profile| profile.name.as_str()).collect();
        for (id, Spanned { value, span, .. }) in &builder.references {
            if names.contains(&value.as_str()) {
                continue;
            }
            let hint = match closest_match(value, names.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None if names.is_empty() => "define it in `profiles` at the top of the file".to_owned(),
                None => format!("there is {}", join_quoted(&names, "and")),
            };
            cx.error(*span, format!("caller `{id}` uses an unknown profile: `{value}`"), hint);
        }
        for (profile, word, span) in &builder.patterns {
            if let Some(hint) = self.unmatched_hint(word) {
                let message = format!("`{word}` in profile `{profile}` matches no tool");
                cx.push(Problem::warning(*span, message).hint(hint));
            }
        }
        Arc::new(Profiles { all: builder.all, choices: builder.choices, hints: builder.hints })
    }

    /// Returns a hint if a pattern cannot match any tool; `None` if a server may offer a match.
    fn unmatched_hint(&self, word: &str) -> Option<String> {
        let own = self.tools.iter().map(|tool| tool.value.name.to_string());
        let builtins = [
            ("request_human_input", self.builtins.human_input.is_some()),
            ("web_search", self.builtins.web_search.is_some()),
            ("code_execution", self.builtins.code_execution.is_some()),
            ("read_result", self.results.is_some()),
        ];
        let builtins =
            builtins.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name.to_owned());
        let known: Vec<String> = own.chain(builtins).collect();
        if word == "*" || known.iter().any(|name| wildcard::matches(word, name)) {
            return None;
        }
        let servers = self.servers.iter().map(|(server, _)| server.name.prefix());
        let prefixes: Vec<String> =
            servers.chain(self.apis.iter().map(|(api, _)| api.name.prefix())).collect();
        let meant = match word.split_once(SEPARATOR) {
            Some((prefix, _)) if prefix.contains('*') || prefixes.iter().any(|one| one == prefix) => {
                return None;
            }
            Some((prefix, rest)) => closest_match(prefix, prefixes.iter().map(String::as_str))
                .map(|one| format!("{one}{SEPARATOR}{rest}")),
            None if !prefixes.is_empty() => return None,
            None => closest_match(word, known.iter().map(String::as_str)).map(str::to_owned),
        };
        Some(match meant {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`toolgate tools list` shows them all".to_owned(),
        })
    }
}

/// Checks the names given to tools in a profile: they must be valid and unique.
fn check_tool_names(file: &SelectionFile, cx: &mut Context<'_>) {
    let mut taken: Vec<&str> = Vec::new();
    for (tool, shown) in file.r#as.iter().flat_map(|at| &at.value.0) {
        let Some(Spanned { value: name, span, .. }) = &shown.value.name else { continue };
        if let Err(error) = name.parse::<ToolName>() {
            let message = format!("`{name}` is not a tool's name{}", cx.location_suffix());
            cx.error(*span, message, format!("{error}"));
        } else if taken.contains(&name.as_str()) {
            let message = format!("two tools are shown as `{name}`{}", cx.location_suffix());
            cx.error(*span, message, format!("give `{tool}` another name"));
        }
        taken.push(name);
    }
}

fn resolve_selection(file: Option<SelectionFile>) -> ProfileSelection {
    let Some(file) = file else { return ProfileSelection::default() };
    let words = |at: Spanned<OneOrMany<String>>| at.value.0.into_iter().map(|at| at.value).collect();
    let shown = file.r#as.map_or_else(Vec::new, |Spanned { value: NamedMap(all), .. }| all);
    let shown_as = |(word, at): (String, Spanned<AliasFile>)| {
        (
            word,
            DisplayOverride {
                name: into_value(at.value.name),
                description: into_value(at.value.description),
            },
        )
    };
    ProfileSelection {
        include: file.include.map(words),
        exclude: file.exclude.map(words).unwrap_or_default(),
        overrides: shown.into_iter().map(shown_as).collect(),
    }
}

impl From<ExposureName> for ToolExposure {
    fn from(name: ExposureName) -> Self {
        match name {
            ExposureName::Full => Self::Full,
            ExposureName::Search => Self::Search,
            ExposureName::Code => Self::Code,
        }
    }
}

impl From<ProviderPreset> for SchemaDialect {
    fn from(name: ProviderPreset) -> Self {
        match name {
            ProviderPreset::Openai => Self::Openai,
            ProviderPreset::Anthropic => Self::Anthropic,
            ProviderPreset::Gemini => Self::Gemini,
            ProviderPreset::Any => Self::Any,
        }
    }
}

impl From<HintsName> for HintsMode {
    fn from(name: HintsName) -> Self {
        match name {
            HintsName::Brief => Self::Brief,
            HintsName::Off => Self::Off,
            HintsName::Text => Self::Text,
            HintsName::Full => Self::Full,
        }
    }
}

#[cfg(test)]
mod tests;
