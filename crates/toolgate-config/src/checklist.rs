//! The verification checklist of the tool contract, for each tool of one's own.
//!
//! What every project must keep is a rule of loading, and was kept by whatever is in a [`Config`]; this is
//! what the level `full` asks for beyond it. Invariant: it says what is so and changes nothing.

use serde::Serialize;
use serde_json::Value as Json;
use toolgate_policy::Schema;
use toolgate_types::contract::{SHORTEST_DESCRIPTION, is_semantic, is_verb_noun};
use toolgate_types::tool::Category;
use toolgate_types::{ToolDefinition, ToolName};

use crate::config::Config;

/// The checklist of one tool.
#[derive(Debug, Clone, Serialize)]
pub struct Checklist {
    /// The tool.
    pub tool: String,
    /// Its rules, in the order of the contract.
    pub rules: Vec<Rule>,
}

impl Checklist {
    /// Whether every rule is met.
    pub fn is_met(&self) -> bool {
        self.rules.iter().all(|rule| rule.met)
    }
}

/// A rule of the contract.
#[derive(Debug, Clone, Serialize)]
pub struct Rule {
    /// What it is about: mostly a key of the tool.
    pub rule: &'static str,
    /// Whether the tool keeps it.
    pub met: bool,
    /// What it asks for; where it is not met, also what is there in its place.
    pub detail: String,
    /// Where that is written, or the tool where nothing is.
    pub place: String,
}

/// The checklists of a project's own tools.
pub fn checklists(config: &Config) -> Vec<Checklist> {
    let checklist = |tool: &ToolDefinition| Checklist {
        tool: tool.name.to_string(),
        rules: Tool { tool, config }.rules(),
    };
    config.tools.iter().map(checklist).collect()
}

/// The checklist of one tool.
pub(crate) fn checklist(config: &Config, name: &ToolName) -> Vec<Rule> {
    let tool = config.tools.iter().find(|tool| tool.name == *name);
    tool.map(|tool| Tool { tool, config }.rules()).unwrap_or_default()
}

/// A tool with where its keys are written.
struct Tool<'a> {
    tool: &'a ToolDefinition,
    config: &'a Config,
}

impl Tool<'_> {
    fn rules(&self) -> Vec<Rule> {
        let tool = self.tool;
        let (arguments, examples) = (self.undocumented(), self.misfits());
        let length = tool.description.trim().chars().count();
        vec![
            self.rule(
                "name",
                (!is_verb_noun(tool.name.as_str())).then(|| format!("it is `{}`", tool.name)),
                "a verb and a noun in kebab-case, such as `create-card`",
            ),
            self.rule(
                "description",
                (length < SHORTEST_DESCRIPTION).then(|| format!("it has {length}")),
                &format!("at least {SHORTEST_DESCRIPTION} characters: what it does, when to use it, what it returns"),
            ),
            self.rule(
                "input_schema",
                (!arguments.is_empty()).then(|| format!("`{}` has none", arguments.join("`, `"))),
                "every argument has a description",
            ),
            self.written("permissions", "written, if only as `[]`"),
            self.written("category", "written"),
            self.written("response_time", "written"),
            self.written("cacheable", "written, and false for a mutation"),
            self.rule("cache_ttl", None, "written where it is cacheable"),
            match (tool.category, tool.idempotent) {
                (Some(Category::Query), false) => {
                    self.rule("idempotent", Some("it is false".to_owned()), "written, and true for a query")
                }
                _ => self.written("idempotent", "written, and true for a query"),
            },
            self.rule(
                "examples",
                if tool.examples.is_empty() { Some("there is none".to_owned()) } else { examples },
                "at least one, and each fits the schemas",
            ),
            self.rule("tags", tool.tags.is_empty().then(|| "there is none".to_owned()), "at least one"),
            self.rule(
                "version",
                (!is_semantic(&tool.version)).then(|| format!("it is `{}`", tool.version)),
                "three numbers, such as `1.2.3`",
            ),
            self.rule(
                "script_path",
                (!tool.script.script_path.is_file()).then(|| "it does not".to_owned()),
                "the script exists",
            ),
            // Not the author's to keep: the road of a call makes it of whatever a script answers.
            self.rule("result", None, "a ToolResult with whole agentHints and metadata, made by Toolgate"),
        ]
    }

    fn rule(&self, rule: &'static str, not_met: Option<String>, asks: &str) -> Rule {
        let met = not_met.is_none();
        let detail = not_met.map_or_else(|| asks.to_owned(), |but| format!("{asks} – {but}"));
        let origin = |key: &str| self.config.origins.get(&format!("tools.{}.{key}", self.tool.name));
        // A script stands under either key.
        let place = origin(rule).or_else(|| origin("config").filter(|_| rule == "script_path"));
        let place = place.or_else(|| origin("name")).cloned().unwrap_or_default();
        Rule { rule, met, detail, place }
    }

    /// A key that has a default, and is to be written all the same.
    fn written(&self, key: &'static str, asks: &str) -> Rule {
        let is_written = self.config.origins.contains_key(&format!("tools.{}.{key}", self.tool.name));
        self.rule(key, (!is_written).then(|| "it is not written".to_owned()), asks)
    }

    /// The arguments without a description.
    fn undocumented(&self) -> Vec<String> {
        let schema: Json = serde_json::from_str(self.tool.input_schema.get()).unwrap_or_default();
        let is_told =
            |argument: &Json| argument["description"].as_str().is_some_and(|text| !text.trim().is_empty());
        let arguments = schema["properties"].as_object().into_iter().flatten();
        arguments.filter(|(_, argument)| !is_told(argument)).map(|(name, _)| name.clone()).collect()
    }

    /// What is wrong with the examples, where something is.
    fn misfits(&self) -> Option<String> {
        let schema = |text: &str| Schema::new(&serde_json::from_str(text).ok()?).ok();
        let input = schema(self.tool.input_schema.get());
        let output = self.tool.output_schema.as_ref().and_then(|text| schema(text.get()));
        let misfit = |schema: &Option<Schema>, text: &str| {
            let value: Json = serde_json::from_str(text).ok()?;
            schema.as_ref()?.check(&value).err()
        };
        self.tool.examples.iter().find_map(|example| {
            let result = example.expected_result.as_ref().and_then(|result| misfit(&output, result.get()));
            let wrong = misfit(&input, example.params.get()).or(result)?;
            Some(format!("`{}` does not: {wrong}", example.description))
        })
    }
}
