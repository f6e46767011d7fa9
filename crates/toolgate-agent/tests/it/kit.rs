//! What a test says of the model that follows its script.

use toolgate_types::agent::{ModelProvider, ModelSpec, Prices};
use toolgate_types::{HumanDuration, Secret, Text};

pub(crate) use crate::scripted::Scripted;

/// The key that no error may show.
pub(crate) const KEY: &str = "sk-a-key-that-nobody-may-see";

impl Scripted {
    pub(crate) fn spec(&self, provider: ModelProvider, stream: bool) -> ModelSpec {
        let path = if matches!(provider, ModelProvider::Openai | ModelProvider::Ollama) { "/v1" } else { "" };
        ModelSpec {
            provider,
            name: "scripted".to_owned(),
            url: Text::plain(format!("http://127.0.0.1:{}{path}", self.port)),
            key: Some(Secret::new(KEY)),
            temperature: Some(0.5),
            max_tokens: 1_000,
            timeout: HumanDuration::from_secs(60),
            retries: 3,
            stream,
            max_result: 32 << 10,
            prices: Some(Prices { input: 3.0, cached_input: 0.3, output: 15.0 }),
        }
    }
}
