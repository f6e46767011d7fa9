//! `agent.model`: the language model and its connection.

use std::num::NonZeroU32;

use toolgate_types::agent::{Amount, ModelProvider, ModelSpec, TokenPrices};
use toolgate_types::{ByteSize, ConfigString, HumanDuration, Secret};

use super::WholeNumber;
use crate::context::Context;
use crate::feature::checks::check_url;
use crate::keys::{choice, keys};
use crate::node::Node;
use crate::resolve::ConfigBuilder;

keys! {
    /// A language model and its connection.
    struct ModelFile as "model" {
        /// Provider of the model. Determines the protocol.
        provider: ModelProviderName; required,
        /// Name of the model; with `azure`, name of the deployment.
        name: String; required,
        /// Base URL. `openai` with another URL works with vLLM, llama.cpp, LM Studio and other compatible servers.
        /// `azure` requires the URL of a resource.
        url ("endpoint", "base_url"): ConfigString,
        /// API key, preferably as `${NAME}`. Default: the provider's usual variable (`OPENAI_API_KEY`,
        /// `AZURE_OPENAI_API_KEY`, `ANTHROPIC_API_KEY` or `GEMINI_API_KEY`).
        key ("api_key"): ConfigString,
        /// Sampling temperature. Default: that of the model.
        temperature: Amount,
        /// Maximum number of tokens per answer.
        max_tokens: NonZeroU32 = "8192",
        /// Timeout of one answer.
        timeout: HumanDuration = "5m",
        /// Number of retries after a transient failure: 429, 5xx, a broken connection.
        retries: WholeNumber = "3",
        /// Streams answers.
        stream: bool = "true",
        /// Bytes of one tool result passed to the model. Longer results are stored; `read_result` reads the rest.
        max_result: ByteSize = "32KiB",
        /// Price of tokens. Without it, cost is not calculated.
        price: PriceFile,
    }
}

choice! {
    /// Provider of a model. Determines the protocol.
    enum ModelProviderName as "a provider" {
        /// OpenAI and compatible servers.
        Openai = "openai",
        /// OpenAI models on Azure.
        Azure = "azure" | "azure_openai",
        /// Ollama.
        Ollama = "ollama",
        /// Anthropic.
        Anthropic = "anthropic",
        /// Google Gemini.
        Gemini = "gemini" | "google",
    }
}

keys! {
    /// Price per million tokens, in the currency of `budgets.cost`.
    struct PriceFile as "price" {
        /// Input tokens.
        input: Amount; required,
        /// Output tokens.
        output: Amount; required,
        /// Cached input tokens. Default: the price of `input`.
        cached_input: Amount,
    }
}

/// Default of `max_tokens`.
const DEFAULT_MAX_TOKENS: u32 = 8_192;

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
    pub(super) fn resolve_model(&mut self, file: ModelFile, cx: &mut Context<'_>) -> Option<ModelSpec> {
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
}

fn resolve_prices(file: PriceFile) -> Option<TokenPrices> {
    let (input, output) = (file.input?.value.get(), file.output?.value.get());
    Some(TokenPrices { input, cached_input: file.cached_input.map_or(input, |at| at.value.get()), output })
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
