//! Verification checklist of the tool contract, for the project's own tools.
//!
//! Loading enforces the rules that apply to every project; the checklist covers the additional rules of the
//! contract level `full`. Invariant: it reports and changes nothing.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value as Json;
use toolgate_policy::SchemaValidator;
use toolgate_types::contract::{MIN_DESCRIPTION_LENGTH, is_semantic_version, is_verb_noun};
use toolgate_types::tool::{Category, Deprecation};
use toolgate_types::{ServerName, ToolDefinition, ToolName};

use crate::config::Config;
use crate::feature::tools::days_since_epoch;
use crate::profile_patterns::BUILTIN_TOOLS;

/// Days from the announcement of a deprecation to the removal of the tool.
const NOTICE_DAYS: i64 = 90;

/// The current date, in days since 1970-01-01.
fn today() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_secs() / (24 * 60 * 60)).unwrap_or(i64::MAX)
}

#[derive(Debug, Clone, Serialize)]
pub struct Checklist {
    pub tool: String,
    /// Rules, in the order of the contract.
    pub rules: Vec<ContractRule>,
}

impl Checklist {
    /// True if every rule is met.
    pub fn is_met(&self) -> bool {
        self.rules.iter().all(|rule| rule.met)
    }
}

/// The result of checking one rule of the contract.
#[derive(Debug, Clone, Serialize)]
pub struct ContractRule {
    /// Subject of the rule: usually a key of the tool.
    pub rule: &'static str,
    /// True if the tool satisfies the rule.
    pub met: bool,
    /// Requirement; if it is not met, also the value found.
    pub detail: String,
    /// Location of the value, or of the tool if the key is missing.
    pub place: String,
}

/// Returns the checklists of the project's own tools.
pub fn checklists(config: &Config) -> Vec<Checklist> {
    let checklist = |tool: &ToolDefinition| Checklist {
        tool: tool.name.to_string(),
        rules: ToolChecker { tool, config }.rules(),
    };
    config.tools.iter().map(|tool| checklist(tool)).collect()
}

/// Checks one tool.
pub(crate) fn check_tool(config: &Config, name: &ToolName) -> Vec<ContractRule> {
    let tool = config.tools.iter().find(|tool| tool.name == *name);
    tool.map(|tool| ToolChecker { tool, config }.rules()).unwrap_or_default()
}

/// A tool, and the configuration with the origins of its keys.
struct ToolChecker<'a> {
    tool: &'a ToolDefinition,
    config: &'a Config,
}

impl ToolChecker<'_> {
    fn rules(&self) -> Vec<ContractRule> {
        let tool = self.tool;
        let (arguments, examples) = (self.undocumented_arguments(), self.example_mismatch());
        let length = tool.description.trim().chars().count();
        let mut rules = vec![
            self.rule(
                "name",
                (!is_verb_noun(tool.name.as_str())).then(|| format!("it is `{}`", tool.name)),
                "a verb and a noun in kebab-case, such as `create-card`",
            ),
            self.rule(
                "description",
                (length < MIN_DESCRIPTION_LENGTH).then(|| format!("it has {length}")),
                &format!("at least {MIN_DESCRIPTION_LENGTH} characters: what it does, when to use it, what it returns"),
            ),
            self.rule(
                "input_schema",
                (!arguments.is_empty()).then(|| format!("`{}` has none", arguments.join("`, `"))),
                "every argument has a description",
            ),
            self.require_key("permissions", "written, if only as `[]`"),
            self.require_key("category", "written"),
            self.require_key("response_time", "written"),
            self.require_key("cacheable", "written, and false for a mutation"),
            self.rule("cache_ttl", None, "written where it is cacheable"),
            match (tool.category, tool.idempotent) {
                (Some(Category::Query), false) => {
                    self.rule("idempotent", Some("it is false".to_owned()), "written, and true for a query")
                }
                _ => self.require_key("idempotent", "written, and true for a query"),
            },
            self.rule(
                "examples",
                if tool.examples.is_empty() { Some("there is none".to_owned()) } else { examples },
                "at least one, and each fits the schemas",
            ),
            self.rule("tags", tool.tags.is_empty().then(|| "there is none".to_owned()), "at least one"),
            self.rule(
                "version",
                (!is_semantic_version(&tool.version)).then(|| format!("it is `{}`", tool.version)),
                "three numbers, such as `1.2.3`",
            ),
            self.rule(
                "script_path",
                (!tool.script.script_path.is_file()).then(|| "it does not".to_owned()),
                "the script exists",
            ),
            // Always met: the pipeline builds the ToolResult from any script output.
            self.rule("result", None, "a ToolResult with complete agentHints and metadata, added by Toolgate"),
        ];
        rules.extend(tool.deprecated.as_ref().map(|deprecated| self.deprecation(deprecated)));
        rules
    }

    /// Checks that callers of a deprecated tool have time to change, and something to change to.
    fn deprecation(&self, deprecated: &Deprecation) -> ContractRule {
        let Deprecation { replacement, removal_date, announced, .. } = deprecated;
        let from = announced.as_deref().map_or_else(today, days_since_epoch);
        let days = days_since_epoch(removal_date) - from;
        let mut problems = Vec::new();
        if days < NOTICE_DAYS {
            let since = announced.as_deref().unwrap_or("today");
            problems.push(format!(
                "{removal_date} is {days} days after {since}; set a later `removal_date`, or `announced` to the day of the announcement"
            ));
        }
        if !self.is_known(replacement.as_str()) {
            problems
                .push(format!("there is no tool `{replacement}`; name a tool of a server as `server__tool`"));
        }
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        let asks = format!(
            "at least {NOTICE_DAYS} days from the announcement to the removal, and a replacement that exists"
        );
        self.rule("deprecated", problem, &asks)
    }

    /// Returns true if a tool of the project, of a configured server or of Toolgate has this name. The tools of a server
    /// are known by their prefix, or by their settings.
    fn is_known(&self, name: &str) -> bool {
        let Config { tools, servers, apis, tool_settings, .. } = self.config;
        let sources = servers.iter().map(|server| &server.name).chain(apis.iter().map(|api| &api.name));
        let has_prefix = |source: &ServerName| {
            name.strip_prefix(&source.prefix()).is_some_and(|rest| rest.starts_with("__"))
        };
        tools.iter().any(|tool| tool.name.as_str() == name)
            || tool_settings.iter().any(|settings| settings.name.as_str() == name)
            || BUILTIN_TOOLS.contains(&name)
            || sources.into_iter().any(has_prefix)
    }

    fn rule(&self, rule: &'static str, not_met: Option<String>, asks: &str) -> ContractRule {
        let met = not_met.is_none();
        let detail = not_met.map_or_else(|| asks.to_owned(), |but| format!("{asks} – {but}"));
        let origin = |key: &str| self.config.origins.get(&format!("tools.{}.{key}", self.tool.name));
        // The script is set by either key.
        let place = origin(rule).or_else(|| origin("config").filter(|_| rule == "script_path"));
        let place = place.or_else(|| origin("name")).cloned().unwrap_or_default();
        ContractRule { rule, met, detail, place }
    }

    /// Requires a key to be written although it has a default.
    fn require_key(&self, key: &'static str, asks: &str) -> ContractRule {
        let is_written = self.config.origins.contains_key(&format!("tools.{}.{key}", self.tool.name));
        self.rule(key, (!is_written).then(|| "it is not written".to_owned()), asks)
    }

    /// Returns the names of arguments without a description.
    fn undocumented_arguments(&self) -> Vec<String> {
        let schema: Json = serde_json::from_str(self.tool.input_schema.get()).unwrap_or_default();
        let is_told =
            |argument: &Json| argument["description"].as_str().is_some_and(|text| !text.trim().is_empty());
        let arguments = schema["properties"].as_object().into_iter().flatten();
        arguments.filter(|(_, argument)| !is_told(argument)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the first mismatch between an example and the schemas.
    fn example_mismatch(&self) -> Option<String> {
        let schema = |text: &str| SchemaValidator::new(&serde_json::from_str(text).ok()?).ok();
        let input = schema(self.tool.input_schema.get());
        let output = self.tool.output_schema.as_ref().and_then(|text| schema(text.get()));
        let misfit = |schema: &Option<SchemaValidator>, text: &str| {
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
