//! Resolves `agent`: model, instructions, budgets.

use std::num::NonZeroU32;
use std::path::PathBuf;

use toolgate_types::agent::{AnswerPolicy, ModelProvider, ModelSpec, RunBudgets, TokenPrices};
use toolgate_types::{ConfigString, HumanDuration, Secret};

use crate::context::Context;
use crate::file::agent::{
    AgentSection, AnsweringName, BudgetsFile, InstructionsSource, ModelFile, ModelProviderName, PriceFile,
};
use crate::keys::Spanned;
use crate::node::Node;
use crate::resolve::ConfigBuilder;
use crate::resolve::server::check_url;

/// Default of `max_tokens`.
const DEFAULT_MAX_TOKENS: u32 = 8_192;
/// Default folder of skills.
const DEFAULT_SKILLS_FOLDER: &str = "skills";

/// Registers the API key of a model before any problem in the lines around it is reported.
pub(crate) fn add_model_secrets(agent: &Node, cx: &mut Context<'_>) {
    let Some(model) = agent.get("model") else { return };
    for key in ["key", "api_key"] {
        if let Some(key) = model.get(key) {
            cx.add_secret_values("secret", key);
        }
    }
}

impl ConfigBuilder {
    pub(crate) fn set_agent(&mut self, file: AgentSection, cx: &mut Context<'_>) {
        let mut written = file.value_spans();
        written.retain(|(key, _)| !matches!(*key, "model" | "budgets"));
        self.record_origins("agent", written);
        let priced = file.model.as_ref().is_some_and(|model| model.value.price.is_some());
        self.agent.model = file.model.and_then(|model| self.resolve_model(model.value, cx));
        self.agent.instructions = file.instructions.and_then(|at| load_instructions(at, cx));
        let texts = |list: Option<Spanned<Vec<Spanned<String>>>>| {
            list.into_iter().flat_map(|at| at.value).map(|at| at.value).collect::<Vec<_>>()
        };
        self.agent.tools.extend(texts(file.tools));
        self.agent.prompts = check_prompts(file.prompts, cx);
        self.agent.resources = texts(file.resources);
        self.agent.skills = find_skills(file.skills, cx);
        if let Some(budgets) = file.budgets {
            self.set_budgets(budgets.value, priced, cx);
        }
        self.agent.sampling = file.sampling.map_or(AnswerPolicy::Deny, |at| at.value.into());
        self.agent.elicitation = file.elicitation.map_or(AnswerPolicy::Deny, |at| at.value.into());
    }

    /// Allows the agent to use tools that match a pattern.
    pub(crate) fn allow_agent_tool(&mut self, pattern: &str) {
        self.agent.tools.push(pattern.to_owned());
    }

    fn resolve_model(&mut self, file: ModelFile, cx: &mut Context<'_>) -> Option<ModelSpec> {
        self.record_origins("agent.model", file.value_spans());
        let span = file.provider.as_ref()?.span;
        let provider = ModelProvider::from(file.provider?.value);
        let url = match (file.url, provider.default_url()) {
            (Some(url), _) => {
                check_url(&url, &["https", "http"], cx)?;
                url.value
            }
            (None, Some(place)) => ConfigString::plain(place),
            (None, None) => {
                let message = format!("`{}` needs `url` in model", provider.label());
                cx.error(
                    span,
                    message,
                    "give the URL of the resource, such as `https://NAME.openai.azure.com`",
                );
                return None;
            }
        };
        if let Some(key) = &file.key {
            cx.hide(key.value.expose());
        }
        let default_key = || {
            provider.key_variable().and_then(|name| cx.variable(name)).filter(|(value, _)| !value.is_empty())
        };
        let key = file
            .key
            .map(|key| Secret::new(key.value.expose()))
            .or_else(|| default_key().map(|(value, _)| Secret::new(value)));
        if let Some(key) = &key {
            cx.hide(key.expose());
        }
        let prices = file.price.and_then(|at| resolve_prices(at.value));
        Some(ModelSpec {
            provider,
            name: file.name?.value,
            url,
            key,
            temperature: file.temperature.map(|at| at.value.get()),
            max_tokens: file.max_tokens.map_or(DEFAULT_MAX_TOKENS, |at| at.value.get()),
            timeout: file.timeout.map_or(HumanDuration::from_secs(300), |at| at.value),
            retries: file.retries.map_or(3, |at| at.value.0),
            stream: file.stream.is_none_or(|at| at.value),
            max_result: file.max_result.map_or(32 << 10, |at| at.value.as_usize()),
            prices,
        })
    }

    fn set_budgets(&mut self, file: BudgetsFile, priced: bool, cx: &mut Context<'_>) {
        self.record_origins("agent.budgets", file.value_spans());
        let defaults = RunBudgets::default();
        if let (Some(cost), false) = (&file.cost, priced) {
            let hint = "add `price` to `model`, with `input` and `output` for a million tokens";
            cx.error(cost.span, "`cost` in budgets needs the prices of the model", hint);
        }
        self.agent.budgets = RunBudgets {
            calls: file.calls.map_or(defaults.calls, |at| at.value.0),
            writes: file.writes.map_or(defaults.writes, |at| at.value.0),
            tokens: file.tokens.map_or(defaults.tokens, |at| NonZeroU32::get(at.value).into()),
            cost: file.cost.map(|at| at.value.get()),
            time: file.time.map_or(defaults.time, |at| at.value),
        };
    }
}

fn resolve_prices(file: PriceFile) -> Option<TokenPrices> {
    let (input, output) = (file.input?.value.get(), file.output?.value.get());
    Some(TokenPrices { input, cached_input: file.cached_input.map_or(input, |at| at.value.get()), output })
}

fn load_instructions(at: Spanned<InstructionsSource>, cx: &mut Context<'_>) -> Option<String> {
    let file = match at.value {
        InstructionsSource::Inline(text) => return Some(text),
        InstructionsSource::File(file) => file,
    };
    let path = cx.source_folder(file.span).join(&file.value);
    match cx.open(&path) {
        Ok(id) => Some(cx.sources.get(id).text().to_owned()),
        Err(_) => {
            let message = format!("the file `{}` with the instructions cannot be read", file.value);
            cx.error(file.span, message, "paths start at the folder of this file");
            None
        }
    }
}

fn check_prompts(list: Option<Spanned<Vec<Spanned<String>>>>, cx: &mut Context<'_>) -> Vec<String> {
    let mut prompts = Vec::new();
    for Spanned { value, span, .. } in list.into_iter().flat_map(|at| at.value) {
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

fn find_skills(list: Option<Spanned<Vec<Spanned<String>>>>, cx: &mut Context<'_>) -> Vec<PathBuf> {
    let Some(list) = list else {
        let default_folder = cx.project.join(DEFAULT_SKILLS_FOLDER);
        return if default_folder.is_dir() { vec![default_folder] } else { Vec::new() };
    };
    let mut folders = Vec::new();
    for Spanned { value, span, .. } in list.value {
        let folder = cx.project.join(&value);
        if !folder.is_dir() {
            let message = format!("the folder `{value}` with skills does not exist");
            cx.error(span, message, "create it, or remove it from the list");
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

impl From<AnsweringName> for AnswerPolicy {
    fn from(name: AnsweringName) -> Self {
        match name {
            AnsweringName::Deny => Self::Deny,
            AnsweringName::Ask => Self::Ask,
            AnsweringName::Model => Self::Model,
        }
    }
}
