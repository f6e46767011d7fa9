//! The keys of an agent: its model, what it is told, what a run may use.

use std::num::NonZeroU32;

use serde_json::{Map as JsonMap, Value as Json, json};
use toolgate_types::agent::Amount;
use toolgate_types::{ByteSize, HumanDuration, Text};

use crate::context::Context;
use crate::keys::{At, Read, Table, choice, keys};
use crate::node::{Node, Value};

keys! {
    /// The agent of `toolgate run` and `toolgate chat`. docs/agent.md.
    struct AgentSection as "agent" {
        /// Its model. Without one the planner that is built in serves: it finds the tool by its words, and asks for
        /// what is missing.
        model: ModelFile,
        /// What it is told before everything else: a text, or `file` with the name of one, seen from the project folder.
        instructions: Instructions,
        /// The tools it may use, `*` standing for any text, such as `files__*`; all that its caller may use where
        /// this is missing.
        tools: Vec<At<String>>,
        /// Prompts of MCP servers whose texts are part of its instructions, as `server/prompt`.
        prompts: Vec<At<String>>,
        /// Resources of MCP servers that it is given from the start, by their addresses.
        resources: Vec<At<String>>,
        /// Folders with skills, seen from the project folder: each has a `SKILL.md`, or folders that have one. Without
        /// this key `skills` is read where there is one.
        skills: Vec<At<String>>,
        /// What one run may use; whatever is reached first ends it.
        budgets: BudgetsFile,
        /// Who answers when an MCP server wants a text of a model (sampling).
        sampling: AnsweringName = "deny",
        /// Who answers when an MCP server asks a person in the middle of a call (elicitation). With `ask` a person
        /// does, at the terminal, by `toolgate questions` or over HTTP.
        elicitation: AnsweringName = "deny",
    }
}

keys! {
    /// A model, and how it is reached.
    struct ModelFile as "model" {
        /// Whose protocol it speaks.
        provider: ModelProviderName; required,
        /// Its name there; at Azure that of the deployment.
        name: String; required,
        /// Where it is. `openai` with another address is vLLM, llama.cpp, LM Studio or whatever speaks that protocol;
        /// `azure` needs the address of a resource.
        url ("endpoint", "base_url"): Text,
        /// Its key; best as `${NAME}`. Without it the usual variable counts: `OPENAI_API_KEY`, `AZURE_OPENAI_API_KEY`,
        /// `ANTHROPIC_API_KEY`, `GEMINI_API_KEY`.
        key ("api_key"): Text,
        /// How freely it chooses its words; its own default where this is missing.
        temperature: Amount,
        /// The most tokens of one answer.
        max_tokens: NonZeroU32 = "8192",
        /// How long one answer may take.
        timeout: HumanDuration = "5m",
        /// How often a request is made again that failed for a reason that passes: 429, 5xx, a broken connection.
        retries: Count = "3",
        /// Whether answers come piece by piece.
        stream: bool = "true",
        /// What it is given of one result; the whole is kept, and read with `read_result`.
        max_result: ByteSize = "32KiB",
        /// What its tokens cost. Nothing is reckoned in money without it.
        price: PriceFile,
    }
}

choice! {
    /// Whose protocol a model speaks.
    enum ModelProviderName as "a provider" {
        /// OpenAI, and whatever speaks its protocol.
        Openai = "openai",
        /// OpenAI's models at Azure.
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
    /// What a million tokens cost, in the currency of `budgets.cost`.
    struct PriceFile as "price" {
        /// Of what it reads.
        input: Amount; required,
        /// Of what it writes.
        output: Amount; required,
        /// Of what it reads again and had kept; that of `input` where this is missing.
        cached_input: Amount,
    }
}

keys! {
    /// What one run may use.
    struct BudgetsFile as "budgets" {
        /// Calls of tools.
        calls: Count = "100",
        /// Calls of tools that are not known to only read.
        writes: Count = "50",
        /// Tokens that the model reads and writes.
        tokens: NonZeroU32 = "1000000",
        /// Money, in the currency of `model.price`, which it needs.
        cost: Amount,
        /// Time.
        time: HumanDuration = "30m",
    }
}

choice! {
    /// Who answers a server.
    enum AnsweringName as "a way to answer" {
        /// Nobody.
        Deny = "deny",
        /// A person is asked, wherever questions are answered.
        Ask = "ask",
        /// The model answers.
        Model = "model",
    }
}

/// A whole number from zero on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count(pub(crate) u32);

impl Read for Count {
    fn read(node: &Node, cx: &mut Context<'_>) -> Option<Self> {
        let text = crate::keys::scalar(node, "a whole number", cx)?;
        let number = text.parse().ok();
        if number.is_none() {
            let message = format!("`{text}` is not a whole number{}", cx.whereabouts());
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

/// What an agent is told: a text, or where it is.
#[derive(Debug, Clone)]
pub(crate) enum Instructions {
    Inline(String),
    File(At<String>),
}

keys! {
    /// What an agent is told.
    struct InstructionsFile as "instructions" {
        /// The text itself.
        inline: String,
        /// The file it is in.
        file: String,
    }
}

impl Read for Instructions {
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
                cx.error(span, message, "keep one of the two, or write the text itself");
                None
            }
        }
    }

    fn schema(parts: &mut JsonMap<String, Json>) -> Json {
        json!({ "anyOf": [{ "type": "string" }, InstructionsFile::schema(parts)] })
    }

    fn label() -> String {
        format!("a text or {}", InstructionsFile::label())
    }

    fn tables(out: &mut Vec<Table>) {
        InstructionsFile::tables(out);
    }
}
