//! `agent`: its model, what it is told, what a run may use.

use std::num::NonZeroU32;
use std::path::PathBuf;

use toolgate_types::agent::{Answering, Budgets, ModelProvider, ModelSpec, Prices};
use toolgate_types::{HumanDuration, Secret, Text};

use crate::context::Context;
use crate::file::agent::{
    AgentSection, AnsweringName, BudgetsFile, Instructions, ModelFile, ModelProviderName, PriceFile,
};
use crate::keys::At;
use crate::node::Node;
use crate::settle::Draft;
use crate::settle::server::check_url;

/// The most tokens of an answer where nothing else is said.
const MOST_TOKENS: u32 = 8_192;
/// Where skills are where nothing else is said.
const SKILLS: &str = "skills";

/// Knows the key of a model before anything about the lines around it is told.
pub(crate) fn keep_secrets(agent: &Node, cx: &mut Context<'_>) {
    let Some(model) = agent.get("model") else { return };
    for key in ["key", "api_key"] {
        if let Some(key) = model.get(key) {
            cx.keep_values_secret("secret", key);
        }
    }
}

impl Draft {
    pub(crate) fn agent(&mut self, file: AgentSection, cx: &mut Context<'_>) {
        let mut written = file.written();
        written.retain(|(key, _)| !matches!(*key, "model" | "budgets"));
        self.origins("agent", written);
        let priced = file.model.as_ref().is_some_and(|model| model.value.price.is_some());
        self.agent.model = file.model.and_then(|model| self.model(model.value, cx));
        self.agent.instructions = file.instructions.and_then(|at| instructions(at, cx));
        let texts = |list: Option<At<Vec<At<String>>>>| {
            list.into_iter().flat_map(|at| at.value).map(|at| at.value).collect::<Vec<_>>()
        };
        self.agent.tools.extend(texts(file.tools));
        self.agent.prompts = prompts(file.prompts, cx);
        self.agent.resources = texts(file.resources);
        self.agent.skills = skills(file.skills, cx);
        if let Some(budgets) = file.budgets {
            self.budgets(budgets.value, priced, cx);
        }
        self.agent.sampling = file.sampling.map_or(Answering::Deny, |at| at.value.into());
        self.agent.elicitation = file.elicitation.map_or(Answering::Deny, |at| at.value.into());
    }

    /// One of the tools that the agent may use.
    pub(crate) fn agent_may_use(&mut self, pattern: &str) {
        self.agent.tools.push(pattern.to_owned());
    }

    fn model(&mut self, file: ModelFile, cx: &mut Context<'_>) -> Option<ModelSpec> {
        self.origins("agent.model", file.written());
        let span = file.provider.as_ref()?.span;
        let provider = ModelProvider::from(file.provider?.value);
        let url = match (file.url, provider.place()) {
            (Some(url), _) => {
                check_url(&url, &["https", "http"], cx)?;
                url.value
            }
            (None, Some(place)) => Text::plain(place),
            (None, None) => {
                let message = format!("`{}` needs `url` in model", provider.label());
                cx.error(
                    span,
                    message,
                    "give the address of the resource, such as `https://NAME.openai.azure.com`",
                );
                return None;
            }
        };
        if let Some(key) = &file.key {
            cx.hide(key.value.expose());
        }
        let usual = || {
            provider.key_variable().and_then(|name| cx.variable(name)).filter(|(value, _)| !value.is_empty())
        };
        let key = file
            .key
            .map(|key| Secret::new(key.value.expose()))
            .or_else(|| usual().map(|(value, _)| Secret::new(value)));
        if let Some(key) = &key {
            cx.hide(key.expose());
        }
        let prices = file.price.and_then(|at| prices(at.value));
        Some(ModelSpec {
            provider,
            name: file.name?.value,
            url,
            key,
            temperature: file.temperature.map(|at| at.value.get()),
            max_tokens: file.max_tokens.map_or(MOST_TOKENS, |at| at.value.get()),
            timeout: file.timeout.map_or(HumanDuration::from_secs(300), |at| at.value),
            retries: file.retries.map_or(3, |at| at.value.0),
            stream: file.stream.is_none_or(|at| at.value),
            max_result: file.max_result.map_or(32 << 10, |at| at.value.as_usize()),
            prices,
        })
    }

    fn budgets(&mut self, file: BudgetsFile, priced: bool, cx: &mut Context<'_>) {
        self.origins("agent.budgets", file.written());
        let usual = Budgets::default();
        if let (Some(cost), false) = (&file.cost, priced) {
            let hint = "add `price` to `model`, with `input` and `output` for a million tokens";
            cx.error(cost.span, "`cost` in budgets needs the prices of the model", hint);
        }
        self.agent.budgets = Budgets {
            calls: file.calls.map_or(usual.calls, |at| at.value.0),
            writes: file.writes.map_or(usual.writes, |at| at.value.0),
            tokens: file.tokens.map_or(usual.tokens, |at| NonZeroU32::get(at.value).into()),
            cost: file.cost.map(|at| at.value.get()),
            time: file.time.map_or(usual.time, |at| at.value),
        };
    }
}

fn prices(file: PriceFile) -> Option<Prices> {
    let (input, output) = (file.input?.value.get(), file.output?.value.get());
    Some(Prices { input, cached_input: file.cached_input.map_or(input, |at| at.value.get()), output })
}

fn instructions(at: At<Instructions>, cx: &mut Context<'_>) -> Option<String> {
    let file = match at.value {
        Instructions::Inline(text) => return Some(text),
        Instructions::File(file) => file,
    };
    let path = cx.folder(file.span).join(&file.value);
    match cx.open(&path) {
        Ok(id) => Some(cx.sources.get(id).text().to_owned()),
        Err(_) => {
            let message = format!("the file `{}` with the instructions cannot be read", file.value);
            cx.error(file.span, message, "paths start at the folder of this file");
            None
        }
    }
}

fn prompts(list: Option<At<Vec<At<String>>>>, cx: &mut Context<'_>) -> Vec<String> {
    let mut prompts = Vec::new();
    for At { value, span, .. } in list.into_iter().flat_map(|at| at.value) {
        match value.split_once('/') {
            Some((server, prompt)) if !server.is_empty() && !prompt.is_empty() => prompts.push(value),
            _ => cx.error(
                span,
                format!("`{value}` is not a prompt of a server"),
                "write it as `server/prompt`",
            ),
        }
    }
    prompts
}

fn skills(list: Option<At<Vec<At<String>>>>, cx: &mut Context<'_>) -> Vec<PathBuf> {
    let Some(list) = list else {
        let usual = cx.project.join(SKILLS);
        return if usual.is_dir() { vec![usual] } else { Vec::new() };
    };
    let mut folders = Vec::new();
    for At { value, span, .. } in list.value {
        let folder = cx.project.join(&value);
        if !folder.is_dir() {
            let message = format!("the folder `{value}` with skills does not exist");
            cx.error(span, message, "make it, or take it off the list");
            continue;
        }
        folders.push(folder);
    }
    folders
}

impl From<ModelProviderName> for ModelProvider {
    fn from(name: ModelProviderName) -> Self {
        match name {
            ModelProviderName::Openai => Self::Openai,
            ModelProviderName::Azure => Self::Azure,
            ModelProviderName::Ollama => Self::Ollama,
            ModelProviderName::Anthropic => Self::Anthropic,
            ModelProviderName::Gemini => Self::Gemini,
        }
    }
}

impl From<AnsweringName> for Answering {
    fn from(name: AnsweringName) -> Self {
        match name {
            AnsweringName::Deny => Self::Deny,
            AnsweringName::Ask => Self::Ask,
            AnsweringName::Model => Self::Model,
        }
    }
}
