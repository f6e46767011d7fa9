//! Keys of the agent: model, instructions, budgets.

use std::num::NonZeroU32;

use serde_json::{Map as JsonMap, Value as Json, json};
use toolgate_types::agent::Amount;
use toolgate_types::{ByteSize, ConfigString, HumanDuration};

use crate::context::Context;
use crate::keys::{ConfigValue, KeyTable, Spanned, choice, keys};
use crate::node::{Node, Value};

keys! {
    /// The agent of `toolgate run` and `toolgate chat`. See docs/agent.md.
    struct AgentSection as "agent" {
        /// Language model. Without this key the built-in planner is used: it finds a tool by keywords and asks for
        /// missing arguments.
        model: ModelFile,
        /// System instructions: a string, or `file` with a path relative to the project folder.
        instructions: InstructionsSource,
        /// Tools the agent may use; `*` matches any string, as in `files__*`. Default: every tool its caller may use.
        tools: Vec<Spanned<String>>,
        /// Prompts of MCP servers to include in the instructions, as `server/prompt`.
        prompts: Vec<Spanned<String>>,
        /// URIs of MCP resources to include from the start.
        resources: Vec<Spanned<String>>,
        /// Folders with skills, relative to the project folder. Each contains a `SKILL.md`, or subfolders that do.
        /// Default: `skills` if it exists.
        skills: Vec<Spanned<String>>,
        /// Limits of one run. The run ends when the first is reached.
        budgets: BudgetsFile,
        /// Sampling requests of MCP servers (requests for a model completion): `deny` declines them, `ask` lets a
        /// person answer, `model` the model.
        sampling: AnsweringName = "deny",
        /// Elicitation requests of MCP servers (requests for user input during a call): `deny` declines them, `ask`
        /// lets a person answer (at the terminal, with `toolgate questions` or over HTTP), `model` the model.
        elicitation: AnsweringName = "deny",
    }
}

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

keys! {
    /// Limits of one run.
    struct BudgetsFile as "budgets" {
        /// Maximum number of tool calls.
        calls: WholeNumber = "100",
        /// Maximum number of calls of tools not known to be read-only.
        writes: WholeNumber = "50",
        /// Maximum number of input and output tokens.
        tokens: NonZeroU32 = "1000000",
        /// Maximum cost, in the currency of `model.price`. Requires `model.price`.
        cost: Amount,
        /// Maximum duration.
        time: HumanDuration = "30m",
    }
}

choice! {
    /// Answers to requests of an MCP server.
    enum AnsweringName as "an answer mode" {
        /// Every request is declined.
        Deny = "deny",
        /// A person answers, at the terminal, with `toolgate questions` or over HTTP.
        Ask = "ask",
        /// The model answers.
        Model = "model",
    }
}

/// A whole number, zero included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholeNumber(pub(crate) u32);

impl ConfigValue for WholeNumber {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let text = crate::keys::read_scalar(node, "a whole number", cx)?;
        let number = text.parse().ok();
        if number.is_none() {
            let message = format!("`{text}` is not a whole number{}", cx.location_suffix());
            cx.error(node.span, message, "write a whole number from 0 on");
        }
        number.map(Self)
    }

    fn schema(_parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "type": ["integer", "string"], "minimum": 0 })
    }

    fn label() -> String {
        "a whole number".to_owned()
    }
}

/// Instructions of an agent: the string itself, or the path of a file.
#[derive(Debug, Clone)]
pub(crate) enum InstructionsSource {
    Inline(String),
    File(Spanned<String>),
}

keys! {
    /// Instructions of an agent.
    struct InstructionsFile as "instructions" {
        /// Text of the instructions.
        inline: String,
        /// File with the instructions.
        file: String,
    }
}

impl ConfigValue for InstructionsSource {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        if !matches!(node.value, Value::Map(_)) {
            return String::read(node, cx).map(Self::Inline);
        }
        let InstructionsFile { span, inline, file, .. } = InstructionsFile::read(node, cx)?;
        match (inline, file) {
            (Some(inline), None) => Some(Self::Inline(inline.value)),
            (None, Some(file)) => Some(Self::File(file)),
            _ => {
                let message = "`instructions` has either `inline` or `file`";
                cx.error(span, message, "keep one of the two, or write the instructions as a string");
                None
            }
        }
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "anyOf": [{ "type": "string" }, InstructionsFile::schema(parts)] })
    }

    fn label() -> String {
        format!("a string or {}", InstructionsFile::label())
    }

    fn tables(out: &mut Vec<KeyTable>) {
        InstructionsFile::tables(out);
    }
}
