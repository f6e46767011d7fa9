//! `profiles`: views of what there is, and which of them callers use.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolgate_types::profile::{
    Choice, Exposure, HintsPlace, Profile, ProfileName, Profiles, Provider, Selection, ShownAs,
};
use toolgate_types::{CallerId, ToolName, wildcard};

use crate::context::Context;
use crate::file::profile::{
    ExposureName, HintsName, ProfileFile, ProviderPreset, SelectionEntry, SelectionFile,
};
use crate::keys::{At, Named, OneOrMany, closest, listed};
use crate::problem::Problem;
use crate::settle::{Draft, value};
use crate::source::Span;

/// What stands between a server's prefix and a tool's name.
const SEPARATOR: &str = "__";

/// Profiles on their way to being checked.
#[derive(Default)]
pub(super) struct Drafts {
    all: Vec<Arc<Profile>>,
    choices: BTreeMap<CallerId, Choice>,
    /// What callers name, and where.
    named: Vec<(CallerId, At<String>)>,
    /// Words for tools, and where they are.
    words: Vec<(ProfileName, String, Span)>,
}

impl Draft {
    pub(crate) fn profile(&mut self, name: &str, file: At<ProfileFile>, cx: &mut Context<'_>) {
        let name: ProfileName = match name.parse() {
            Ok(name) => name,
            Err(error) => {
                let message = format!("`{name}` is not a profile's name");
                return cx.error(file.key_span, message, format!("{error}"));
            }
        };
        let file = file.value;
        self.origins(&format!("profiles.{name}"), file.written());
        cx.labels.push(format!("profile `{name}`"));
        self.words_of(&name, file.tools.as_ref());
        let tools = file.tools.map(|at| at.value.0);
        if let Some(tools) = &tools {
            tool_names(tools, cx);
        }
        let profile = Profile {
            description: value(file.description),
            tools: selection(tools),
            prompts: selection(file.prompts.map(|at| at.value.0)),
            resources: selection(file.resources.map(|at| at.value.0)),
            exposure: file.exposure.map_or(Exposure::Full, |at| at.value.into()),
            provider: file.provider.map(|at| at.value.into()),
            hints: file.hints.map_or(HintsPlace::Meta, |at| at.value.into()),
            name,
        };
        cx.labels.pop();
        self.profiles.all.push(Arc::new(profile));
    }

    /// The profiles that a caller uses.
    pub(super) fn caller_profiles(
        &mut self,
        id: &CallerId,
        default: Option<At<String>>,
        only: Option<At<OneOrMany<String>>>,
        cx: &mut Context<'_>,
    ) {
        if default.is_none() && only.is_none() {
            return;
        }
        let known = |at: &At<String>| at.value.parse::<ProfileName>().ok();
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
        let choice = Choice { default: default.as_ref().and_then(known), only: allowed };
        self.profiles.choices.insert(id.clone(), choice);
        let named = default.into_iter().chain(only.into_iter().flat_map(|only| only.value.0));
        self.profiles.named.extend(named.map(|name| (id.clone(), name)));
    }

    fn words_of(&mut self, profile: &ProfileName, tools: Option<&At<SelectionEntry>>) {
        let Some(SelectionEntry(file)) = tools.map(|at| &at.value) else { return };
        let lists = [&file.include, &file.exclude].into_iter().flatten().flat_map(|at| &at.value.0);
        let words = lists.map(|at| (at.value.clone(), at.span));
        let shown = file.r#as.iter().flat_map(|at| &at.value.0).map(|(word, at)| (word.clone(), at.key_span));
        let all = words.chain(shown).map(|(word, span)| (profile.clone(), word, span));
        self.profiles.words.extend(all);
    }

    /// The rules between profiles and all the rest.
    pub(super) fn profiles_fit(&mut self, cx: &mut Context<'_>) -> Arc<Profiles> {
        let drafts = std::mem::take(&mut self.profiles);
        let names: Vec<&str> = drafts.all.iter().map(|profile| profile.name.as_str()).collect();
        for (id, At { value, span, .. }) in &drafts.named {
            if names.contains(&value.as_str()) {
                continue;
            }
            let hint = match closest(value, names.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None if names.is_empty() => "`profiles` at the top of the file names them".to_owned(),
                None => format!("there is {}", listed(&names, "and")),
            };
            cx.error(*span, format!("caller `{id}` uses a profile that is not there: `{value}`"), hint);
        }
        for (profile, word, span) in &drafts.words {
            if let Some(hint) = self.unknown(word) {
                let message = format!("`{word}` in profile `{profile}` fits no tool");
                cx.push(Problem::warning(*span, message).hint(hint));
            }
        }
        Arc::new(Profiles { all: drafts.all, choices: drafts.choices })
    }

    /// What to do about a word that can fit no tool; `None` where only servers know.
    fn unknown(&self, word: &str) -> Option<String> {
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
        if word == "*" || known.iter().any(|name| wildcard::fits(word, name)) {
            return None;
        }
        let servers = self.servers.iter().map(|(server, _)| server.name.prefix());
        let prefixes: Vec<String> =
            servers.chain(self.apis.iter().map(|(api, _)| api.name.prefix())).collect();
        let meant = match word.split_once(SEPARATOR) {
            Some((prefix, _)) if prefix.contains('*') || prefixes.iter().any(|one| one == prefix) => {
                return None;
            }
            Some((prefix, rest)) => closest(prefix, prefixes.iter().map(String::as_str))
                .map(|one| format!("{one}{SEPARATOR}{rest}")),
            None if !prefixes.is_empty() => return None,
            None => closest(word, known.iter().map(String::as_str)).map(str::to_owned),
        };
        Some(match meant {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`toolgate tools list` shows them all".to_owned(),
        })
    }
}

/// Names that tools are given in a profile: good ones, each once.
fn tool_names(file: &SelectionFile, cx: &mut Context<'_>) {
    let mut taken: Vec<&str> = Vec::new();
    for (tool, shown) in file.r#as.iter().flat_map(|at| &at.value.0) {
        let Some(At { value: name, span, .. }) = &shown.value.name else { continue };
        if let Err(error) = name.parse::<ToolName>() {
            let message = format!("`{name}` is not a tool's name{}", cx.whereabouts());
            cx.error(*span, message, format!("{error}"));
        } else if taken.contains(&name.as_str()) {
            let message = format!("two tools are shown as `{name}`{}", cx.whereabouts());
            cx.error(*span, message, format!("give `{tool}` another name"));
        }
        taken.push(name);
    }
}

fn selection(file: Option<SelectionFile>) -> Selection {
    let Some(file) = file else { return Selection::default() };
    let words = |at: At<OneOrMany<String>>| at.value.0.into_iter().map(|at| at.value).collect();
    let shown = file.r#as.map_or_else(Vec::new, |At { value: Named(all), .. }| all);
    let shown_as = |(word, at): (String, At<crate::file::profile::ShownFile>)| {
        (word, ShownAs { name: value(at.value.name), description: value(at.value.description) })
    };
    Selection {
        include: file.include.map(words),
        exclude: file.exclude.map(words).unwrap_or_default(),
        shown: shown.into_iter().map(shown_as).collect(),
    }
}

impl From<ExposureName> for Exposure {
    fn from(name: ExposureName) -> Self {
        match name {
            ExposureName::Full => Self::Full,
            ExposureName::Search => Self::Search,
        }
    }
}

impl From<ProviderPreset> for Provider {
    fn from(name: ProviderPreset) -> Self {
        match name {
            ProviderPreset::Openai => Self::Openai,
            ProviderPreset::Anthropic => Self::Anthropic,
            ProviderPreset::Gemini => Self::Gemini,
            ProviderPreset::Any => Self::Any,
        }
    }
}

impl From<HintsName> for HintsPlace {
    fn from(name: HintsName) -> Self {
        match name {
            HintsName::Meta => Self::Meta,
            HintsName::Text => Self::Text,
        }
    }
}
