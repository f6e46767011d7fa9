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

#[cfg(test)]
mod tests {
    use crate::LoadOutcome;
    use crate::test_support::{config, loaded, messages};

    fn model(keys: &str, variables: &[(&str, &str)]) -> LoadOutcome {
        loaded(&[("toolgate.yaml", &format!("agent: {{model: {{{keys}}}}}"))], variables)
    }

    #[test]
    fn values_and_defaults() {
        let keys = "provider: azure, name: m, url: 'https://h', key: the-azure-key, temperature: 0.5, max_tokens: 100, \
                    timeout: 9s, retries: 0, stream: false, max_result: 3KiB, price: {input: 1.5, output: 2.5}";
        insta::assert_snapshot!(config(&model(keys, &[]))["agent"]["model"], @r#"{"provider":"azure","name":"m","url":"https://h","key":"***","temperature":0.5,"max_tokens":100,"timeout":"9s","retries":0,"stream":false,"max_result":3072,"prices":{"input":1.5,"cached_input":1.5,"output":2.5}}"#);
        insta::assert_snapshot!(config(&model("provider: ollama, name: m", &[]))["agent"]["model"], @r#"{"provider":"ollama","name":"m","url":"http://127.0.0.1:11434/v1","max_tokens":8192,"timeout":"5m","retries":3,"stream":true,"max_result":32768}"#);
    }

    /// Without `key`, the usual variable of the provider applies.
    #[test]
    fn key_from_usual_variable() {
        let loaded = model("provider: openai, name: m", &[("OPENAI_API_KEY", "the-usual-key")]);
        let config = loaded.config.unwrap();
        let key = config.agent.model.unwrap().key.unwrap();
        assert_eq!(key.expose(), "the-usual-key");
        assert!(
            config.secrets.iter().any(|secret| secret.expose() == "the-usual-key"),
            "it is masked elsewhere"
        );
    }

    #[test]
    fn reports_mistakes() {
        let mistakes = [
            "provider: openai",
            "provider: opnai, name: m",
            "provider: azure, name: m",
            "provider: openai, name: m, url: 'ftp://h'",
            "provider: openai, name: m, temperature: warm, retries: -1, key: the-first-key, api_key: the-second-key",
            "provider: openai, name: m, price: {input: 1}",
        ];
        let mistakes = mistakes.map(|keys| messages(&model(keys, &[]))).join("\n");
        assert!(!mistakes.contains("-key"), "{mistakes}");
        insta::assert_snapshot!(mistakes, @"
        error toolgate.yaml:1:17 missing key `name` in model (add `name`: a string)
        error toolgate.yaml:1:27 `opnai` is not a provider in model `m` (did you mean `openai`?)
        error toolgate.yaml:1:27 `azure` needs `url` in model (give the URL of the resource, such as `https://NAME.openai.azure.com`)
        error toolgate.yaml:1:49 `ftp://h` does not start with `https://` or `http://` (write a complete URL, such as `https://localhost:8080/mcp`)
        error toolgate.yaml:1:57 `warm` is not an amount in model `m` (a number that is not negative is expected, such as `0.25`)
        error toolgate.yaml:1:72 `-1` is not a whole number in model `m` (write a whole number from 0 on)
        error toolgate.yaml:1:96 `key` and `api_key` are the same key in model `m` (keep one of the two)
        error toolgate.yaml:1:52 missing key `output` in price (add `output`: an amount)
        ");
    }
}
