//! Settings of an agent: its model, its instructions, and the budgets of a run.

use std::path::PathBuf;

use serde::Serialize;

use crate::{ConfigString, HumanDuration, Secret};

/// Vendor API of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelProvider {
    /// OpenAI, and servers with an OpenAI-compatible API: vLLM, llama.cpp, LM Studio and many more.
    Openai,
    /// OpenAI models hosted on Azure.
    Azure,
    /// Ollama, on this machine unless another URL is given.
    Ollama,
    Anthropic,
    /// Google Gemini.
    Gemini,
}

impl ModelProvider {
    /// Name in configuration files.
    pub fn label(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Azure => "azure",
            Self::Ollama => "ollama",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// Default URL of the API. `None` for Azure, where every deployment has its own.
    pub fn default_url(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("https://api.openai.com/v1"),
            Self::Azure => None,
            Self::Ollama => Some("http://127.0.0.1:11434/v1"),
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com"),
        }
    }

    /// Environment variable that usually holds the API key.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("OPENAI_API_KEY"),
            Self::Azure => Some("AZURE_OPENAI_API_KEY"),
            Self::Ollama => None,
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
        }
    }
}

/// Model of an agent, and how to call it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelSpec {
    pub provider: ModelProvider,
    /// Name of the model; on Azure, the name of the deployment.
    pub name: String,
    /// Base URL of the API.
    pub url: ConfigString,
    /// API key, if the provider requires one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
    /// Sampling temperature. `None` leaves it to the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Maximum tokens of one response.
    pub max_tokens: u32,
    /// Deadline of one response.
    pub timeout: HumanDuration,
    /// Retries of a request after a transient failure.
    pub retries: u32,
    /// True if responses are streamed.
    pub stream: bool,
    /// Bytes of one tool result passed to the model. Longer results are truncated.
    pub max_result: usize,
    /// Token prices, used to compute the cost of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<TokenPrices>,
}

/// Prices per million tokens, in any one currency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TokenPrices {
    /// Input tokens.
    pub input: f64,
    /// Input tokens served from the provider's cache.
    pub cached_input: f64,
    /// Output tokens.
    pub output: f64,
}

/// Limits of one run. The run ends as soon as any of them is reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RunBudgets {
    /// Tool calls.
    pub calls: u32,
    /// Calls of tools that are not known to be read-only.
    pub writes: u32,
    /// Input and output tokens of the model.
    pub tokens: u64,
    /// Cost, in the currency of the prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Duration.
    pub time: HumanDuration,
}

impl Default for RunBudgets {
    fn default() -> Self {
        let time = HumanDuration::from_secs(30 * 60);
        Self { calls: 100, writes: 50, tokens: 1_000_000, cost: None, time }
    }
}

/// Answer to a request that a server sends during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerPolicy {
    /// The request is rejected.
    #[default]
    Deny,
    /// A person answers.
    Ask,
    /// The model answers.
    Model,
}

/// `agent` of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AgentConfig {
    /// Model of the agent. Without one the built-in planner runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,
    /// System instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Tools the agent may use; `*` matches any characters. Empty: every tool its caller may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Presentation of the tools to the model.
    #[serde(skip_serializing_if = "AgentExposure::is_default")]
    pub exposure: AgentExposure,
    /// Prompts of servers that become part of the instructions, as `server/prompt`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<String>,
    /// URIs of resources that are part of the first message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Folders with skills.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<PathBuf>,
    /// Limits of one run.
    pub budgets: RunBudgets,
    /// Handling of sampling requests: a server asks for a model completion.
    pub sampling: AnswerPolicy,
    /// Handling of elicitation requests: a server asks a person.
    pub elicitation: AnswerPolicy,
}

/// Presentation of the tools to the model of an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentExposure {
    /// All tools if they are few; otherwise those that match the task, and a search for the others.
    #[default]
    Auto,
    /// All tools, however many they are.
    Full,
    /// A search, and the tools that it found.
    Search,
    /// A tool that runs programs, with the tools as functions.
    Code,
}

impl AgentExposure {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl AgentConfig {
    /// True if every setting has its default value.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Finite number that is not negative, such as a price.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Amount(f64);

/// The string is not such a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a number that is not negative is expected, such as `0.25`")]
pub struct AmountError;

impl Amount {
    pub fn get(self) -> f64 {
        self.0
    }
}

impl std::str::FromStr for Amount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        let number: f64 = text.trim().parse().map_err(|_| AmountError)?;
        if number.is_finite() && number >= 0.0 { Ok(Self(number)) } else { Err(AmountError) }
    }
}

#[test]
fn rejects_negative_amounts() {
    assert_eq!("0.25".parse::<Amount>().unwrap().get(), 0.25);
    for wrong in ["-1", "NaN", "inf", "a lot", ""] {
        assert!(wrong.parse::<Amount>().is_err(), "{wrong}");
    }
}
