//! What an agent is made of: its model, its instructions, and what a run may cost.

use std::path::PathBuf;

use serde::Serialize;

use crate::{HumanDuration, Secret, Text};

/// How a model is spoken to, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelProvider {
    /// OpenAI, and whatever speaks its protocol at another address: vLLM, llama.cpp, LM Studio and many more.
    Openai,
    /// OpenAI's models at Azure.
    Azure,
    /// Ollama, on this machine unless another address is given.
    Ollama,
    /// Anthropic.
    Anthropic,
    /// Google Gemini.
    Gemini,
}

impl ModelProvider {
    /// Its name in files.
    pub fn label(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Azure => "azure",
            Self::Ollama => "ollama",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// Where it is, where nobody says; `None` where everybody has a place of one's own.
    pub fn place(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("https://api.openai.com/v1"),
            Self::Azure => None,
            Self::Ollama => Some("http://127.0.0.1:11434/v1"),
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com"),
        }
    }

    /// The variable that usually holds its key.
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

/// A model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelSpec {
    /// How it is spoken to.
    pub provider: ModelProvider,
    /// Its name there; at Azure that of the deployment.
    pub name: String,
    /// Where it is.
    pub url: Text,
    /// The key it wants, where it wants one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
    /// How freely it chooses its words; its own default where nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens of one answer.
    pub max_tokens: u32,
    /// How long one answer may take.
    pub timeout: HumanDuration,
    /// How often a request is made again that failed for a reason that passes.
    pub retries: u32,
    /// Whether answers come piece by piece.
    pub stream: bool,
    /// Bytes of one tool's result that it is given.
    pub max_result: usize,
    /// What its tokens cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
}

/// What a million tokens cost, in a currency that whoever writes it knows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prices {
    /// Of what it reads.
    pub input: f64,
    /// Of what it reads again and had kept.
    pub cached_input: f64,
    /// Of what it writes.
    pub output: f64,
}

/// What one run may use. Whatever is reached first ends it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Budgets {
    /// Calls of tools.
    pub calls: u32,
    /// Calls of tools that are not known to only read.
    pub writes: u32,
    /// Tokens that the model reads and writes.
    pub tokens: u64,
    /// Money, in the currency of the prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Time.
    pub time: HumanDuration,
}

impl Default for Budgets {
    fn default() -> Self {
        let time = HumanDuration::from_secs(30 * 60);
        Self { calls: 100, writes: 50, tokens: 1_000_000, cost: None, time }
    }
}

/// Who answers what a server asks for in the middle of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answering {
    /// Nobody.
    #[default]
    Deny,
    /// The person is asked.
    Ask,
    /// The model answers.
    Model,
}

/// An agent, as a project wants it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AgentRules {
    /// Its model; without one the planner that is built in serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSpec>,
    /// What it is told before everything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The tools it may use, `*` standing for any text; all that its caller may use where there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Prompts of servers whose texts are part of its instructions, as `server/prompt`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<String>,
    /// Resources of servers that it is given from the start, by their addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Folders with skills.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<PathBuf>,
    /// What one run may use.
    pub budgets: Budgets,
    /// Who answers when a server wants a text of a model.
    pub sampling: Answering,
    /// Who answers when a server asks a person.
    pub elicitation: Answering,
}

impl AgentRules {
    /// Whether nothing was said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A number from zero on: a price, a share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Amount(f64);

/// A text is not such a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a number from 0 on, such as `0.25`")]
pub struct AmountError;

impl Amount {
    /// The number.
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
fn amounts_are_not_below_zero() {
    assert_eq!("0.25".parse::<Amount>().unwrap().get(), 0.25);
    for wrong in ["-1", "NaN", "inf", "a lot", ""] {
        assert!(wrong.parse::<Amount>().is_err(), "{wrong}");
    }
}
