//! Model specs for the scripted model server.

use toolgate_types::agent::{ModelProvider, ModelSpec, TokenPrices};
use toolgate_types::{ConfigString, HumanDuration, Secret};

pub(crate) use crate::scripted::ScriptedModel;

/// The key, which must not appear in any error.
pub(crate) const KEY: &str = "sk-a-key-that-nobody-may-see";

impl ScriptedModel {
    pub(crate) fn spec(&self, provider: ModelProvider, stream: bool) -> ModelSpec {
        let path = if matches!(provider, ModelProvider::Openai | ModelProvider::Ollama) { "/v1" } else { "" };
        ModelSpec {
            provider,
            name: "scripted".to_owned(),
            url: ConfigString::plain(format!("http://127.0.0.1:{}{path}", self.port)),
            key: Some(Secret::new(KEY)),
            temperature: Some(0.5),
            max_tokens: 1_000,
            timeout: HumanDuration::from_secs(60),
            retries: 3,
            stream,
            max_result: 32 << 10,
            prices: Some(TokenPrices { input: 3.0, cached_input: 0.3, output: 15.0 }),
        }
    }
}
