//! `agent`: instructions, tools and budgets of the agent.

pub(crate) mod model;

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde_json::{Map as JsonMap, Value as Json, json};
use toolgate_types::HumanDuration;
use toolgate_types::agent::{AgentExposure, Amount, AnswerPolicy, RunBudgets};

use self::model::ModelFile;
use crate::context::Context;
use crate::keys::{ConfigValue, KeyTable, Spanned, choice, keys, read_by_parsing};
use crate::node::{Node, Value};
use crate::resolve::ConfigBuilder;

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
        /// Presentation of the tools to the model: `auto` offers all if they are few, and otherwise those that match the
        /// task and a search; `full` offers all, `search` only those that a search has found, and `code` offers a tool
        /// for Python programs with the tools as functions (requires `code_execution`; see docs/code-mode.md).
        exposure: AgentExposureName = "auto",
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

choice! {
    /// Presentation of tools to the model of the agent.
    enum AgentExposureName as "an exposure mode" {
        /// All tools if they are few, otherwise those that match the task, and a search.
        Auto = "auto",
        /// All tools.
        Full = "full",
        /// A search, and the tools that it found.
        Search = "search",
        /// Programs that call the tools as functions.
        Code = "code",
    }
}

impl From<AgentExposureName> for AgentExposure {
    fn from(name: AgentExposureName) -> Self {
        match name {
            AgentExposureName::Auto => Self::Auto,
            AgentExposureName::Full => Self::Full,
            AgentExposureName::Search => Self::Search,
            AgentExposureName::Code => Self::Code,
        }
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

keys! {
    /// Instructions of an agent.
    struct InstructionsFile as "instructions" {
        /// Text of the instructions.
        inline: String,
        /// File with the instructions.
        file: String,
    }
}

/// Instructions of an agent: the string itself, or the path of a file.
#[derive(Debug, Clone)]
pub(crate) enum InstructionsSource {
    Inline(String),
    File(Spanned<String>),
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

read_by_parsing! {
    Amount: "an amount", { "type": ["number", "string"], "minimum": 0 };
}

/// Default folder of skills.
const DEFAULT_SKILLS_FOLDER: &str = "skills";

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
        if let Some(exposure) =
            file.exposure.as_ref().filter(|name| matches!(name.value, AgentExposureName::Code))
        {
            self.code_exposures.push(exposure.span);
        }
        self.agent.exposure = file.exposure.map_or_else(Default::default, |name| name.value.into());
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

impl From<AnsweringName> for AnswerPolicy {
    fn from(name: AnsweringName) -> Self {
        match name {
            AnsweringName::Deny => Self::Deny,
            AnsweringName::Ask => Self::Ask,
            AnsweringName::Model => Self::Model,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::LoadOutcome;
    use crate::test_support::{config, loaded, messages};

    fn agent(keys: &str) -> LoadOutcome {
        let text = format!("agent: {{{keys}}}");
        let files = [
            ("toolgate.yaml", text.as_str()),
            ("rules.md", "Be kind."),
            ("skills/a/SKILL.md", ""),
            ("more/SKILL.md", ""),
        ];
        loaded(&files, &[])
    }

    #[test]
    fn values_and_defaults() {
        let keys = "instructions: {file: rules.md}, tools: ['a*'], prompts: [s/p], resources: ['a://b'], skills: [more], \
                    budgets: {calls: 3, writes: 0, tokens: 1000, time: 1m}, sampling: model, elicitation: ask";
        let full = agent(keys);
        let project = full.config.as_ref().unwrap().project.display().to_string();
        insta::assert_snapshot!(config(&full)["agent"].to_string().replace(&project, "[project]"), @r#"{"instructions":"Be kind.","tools":["a*"],"prompts":["s/p"],"resources":["a://b"],"skills":["[project]/more"],"budgets":{"calls":3,"writes":0,"tokens":1000,"time":"1m"},"sampling":"model","elicitation":"ask"}"#);
        let empty = agent("");
        let project = empty.config.as_ref().unwrap().project.display().to_string();
        insta::assert_snapshot!(config(&empty)["agent"].to_string().replace(&project, "[project]"), @r#"{"skills":["[project]/skills"],"budgets":{"calls":100,"writes":50,"tokens":1000000,"time":"30m"},"sampling":"deny","elicitation":"deny"}"#);
        assert!(config(&loaded(&[("toolgate.yaml", "name: x")], &[])).get("agent").is_none());
    }

    #[test]
    fn reports_mistakes() {
        let mistakes = [
            "instructions: {file: gone.md}",
            "instructions: {inline: a, file: rules.md}",
            "prompts: [p, /p]",
            "skills: [gone]",
            "budgets: {calls: -1, tokens: 0, cost: 5}",
            "sampling: always",
        ];
        insta::assert_snapshot!(mistakes.map(|keys| messages(&agent(keys))).join("\n"), @"
        error toolgate.yaml:1:30 the file `gone.md` with the instructions cannot be read (paths start at the folder of this file)
        error toolgate.yaml:1:23 `instructions` has either `inline` or `file` (keep one of the two, or write the instructions as a string)
        error toolgate.yaml:1:19 `p` is not a prompt of a server (write it as `server/prompt`)
        error toolgate.yaml:1:22 `/p` is not a prompt of a server (write it as `server/prompt`)
        error toolgate.yaml:1:18 the folder `gone` with skills does not exist (create it, or remove it from the list)
        error toolgate.yaml:1:26 `-1` is not a whole number in budgets (write a whole number from 0 on)
        error toolgate.yaml:1:38 `0` is not a positive whole number in budgets (write a whole number from 1 on)
        error toolgate.yaml:1:47 `cost` in budgets needs the prices of the model (add `price` to `model`, with `input` and `output` for a million tokens)
        error toolgate.yaml:1:19 `always` is not an answer mode in agent (`deny`, `ask` or `model` is expected)
        ");
    }
}
