//! Builds a tool: first collects every field, then checks them all at once.
//!
//! The attribute `#[tool]` calls this builder and does nothing else. Invariant: a built tool fulfils every rule of the
//! full contract; otherwise the error lists each broken rule.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolgate_types::contract;
use toolgate_types::hints::Severity;
use toolgate_types::tool::{Category, FollowUp, ResponseTime};
use toolgate_types::{HumanDuration, ToolContext as Context};

use crate::definition::{Definition, Deprecation, Example, RateLimit};
use crate::error::ToolError;
use crate::hints::Answer;
use crate::schema::{self, CompiledSchema};
use crate::tool::{Handler, Tool};

/// The definition of a tool breaks rules of the full contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractError {
    /// Name of the tool.
    pub tool: String,
    /// Every broken rule.
    pub rules: Vec<BrokenRule>,
}

/// Rule of the contract that a definition breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenRule {
    /// Name of the rule, which is the key it concerns.
    pub rule: &'static str,
    /// Requirement, and the actual value.
    pub detail: String,
}

impl fmt::Display for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tool `{}` does not keep the full contract", self.tool)?;
        self.rules.iter().try_for_each(|BrokenRule { rule, detail }| write!(f, "\n  {rule}: {detail}"))
    }
}

impl std::error::Error for ContractError {}

/// Return type of a tool's function: `Result` of plain data, or of an [`Answer`] with data and hints.
pub trait ToolOutput: Send + 'static {
    /// Type of the data.
    type Data: Serialize + JsonSchema;

    /// Converts to data with hints, or the error.
    ///
    /// # Errors
    /// If the function returned an error.
    fn into_answer(self) -> Result<Answer<Self::Data>, ToolError>;
}

impl<T: Serialize + JsonSchema + Send + 'static, E: Into<ToolError> + Send + 'static> ToolOutput
    for Result<T, E>
{
    type Data = T;

    fn into_answer(self) -> Result<Answer<T>, ToolError> {
        self.map(Answer::from).map_err(Into::into)
    }
}

impl<T: Serialize + JsonSchema + Send + 'static, E: Into<ToolError> + Send + 'static> ToolOutput
    for Result<Answer<T>, E>
{
    type Data = T;

    fn into_answer(self) -> Result<Answer<T>, ToolError> {
        self.map_err(Into::into)
    }
}

/// Builder of a tool. Every field is required unless marked as optional.
#[derive(Debug, Clone, Default)]
pub struct ToolBuilder {
    name: String,
    description: String,
    version: String,
    permissions: Option<Vec<String>>,
    category: Option<Category>,
    response_time: Option<ResponseTime>,
    cacheable: Option<bool>,
    cache_ttl: Option<String>,
    idempotent: Option<bool>,
    timeout: Option<String>,
    max_instances: Option<NonZeroU32>,
    examples: Vec<Example>,
    tags: Vec<String>,
    rate_limit: Option<(u32, String)>,
    deprecated: Option<(String, String, String)>,
    follow_ups: Vec<FollowUp>,
}

impl ToolBuilder {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Sets the description: purpose, when to use it, what it returns. Models choose tools by it.
    #[must_use]
    pub fn description(mut self, text: &str) -> Self {
        self.description = text.trim().to_owned();
        self
    }

    /// Sets the version, such as `1.2.3`.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        self.version = version.to_owned();
        self
    }

    /// Sets the permissions required of callers, such as `cards:create`. Empty if none are needed.
    #[must_use]
    pub fn permissions<'a>(mut self, permissions: impl IntoIterator<Item = &'a str>) -> Self {
        self.permissions = Some(permissions.into_iter().map(str::to_owned).collect());
        self
    }

    /// Sets the effect of the tool.
    #[must_use]
    pub fn category(mut self, category: Category) -> Self {
        self.category = Some(category);
        self
    }

    /// Sets the typical response time. It implies a deadline of 1 s, 10 s or 120 s, unless `timeout` is set.
    #[must_use]
    pub fn response_time(mut self, response_time: ResponseTime) -> Self {
        self.response_time = Some(response_time);
        self
    }

    /// Sets whether results may be cached. If so, [`cache_ttl`](Self::cache_ttl) is required.
    #[must_use]
    pub fn cacheable(mut self, cacheable: bool) -> Self {
        self.cacheable = Some(cacheable);
        self
    }

    /// Sets the time to live of cached results, such as `1h`.
    #[must_use]
    pub fn cache_ttl(mut self, ttl: &str) -> Self {
        self.cache_ttl = Some(ttl.to_owned());
        self
    }

    /// Sets whether a repeated call has the same effect as a single one.
    #[must_use]
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = Some(idempotent);
        self
    }

    /// Sets the deadline of one call, such as `5s`. Optional.
    #[must_use]
    pub fn timeout(mut self, timeout: &str) -> Self {
        self.timeout = Some(timeout.to_owned());
        self
    }

    /// Sets the maximum of concurrent calls. Optional; unlimited by default.
    #[must_use]
    pub fn max_instances(mut self, most: NonZeroU32) -> Self {
        self.max_instances = Some(most);
        self
    }

    /// Adds an example call with its result. At least one example is required.
    #[must_use]
    pub fn example(mut self, description: &str, params: Value, expected_result: Value) -> Self {
        let (description, expected_result) = (description.to_owned(), Some(expected_result));
        self.examples.push(Example { description, params, expected_result });
        self
    }

    /// Adds an example call whose result varies.
    #[must_use]
    pub fn example_call(mut self, description: &str, params: Value) -> Self {
        self.examples.push(Example { description: description.to_owned(), params, expected_result: None });
        self
    }

    /// Sets the search keywords; at least one.
    #[must_use]
    pub fn tags<'a>(mut self, tags: impl IntoIterator<Item = &'a str>) -> Self {
        self.tags = tags.into_iter().map(str::to_owned).collect();
        self
    }

    /// Sets the rate limit of one caller, such as 60 calls per `1m`. Optional.
    #[must_use]
    pub fn rate_limit(mut self, max_calls: u32, window: &str) -> Self {
        self.rate_limit = Some((max_calls, window.to_owned()));
        self
    }

    /// Marks the tool as deprecated: since a version, with a replacement, and with the last day of service
    /// (`YYYY-MM-DD`). Optional.
    #[must_use]
    pub fn deprecated(mut self, since: &str, replacement: &str, removal_date: &str) -> Self {
        self.deprecated = Some((since.to_owned(), replacement.to_owned(), removal_date.to_owned()));
        self
    }

    /// Adds a step that often makes sense after a call. Optional.
    #[must_use]
    pub fn follow_up(self, action: &str, priority: Severity, description: &str) -> Self {
        self.follow_up_after(action, priority, description, [])
    }

    /// Adds a step that often makes sense once other actions are done. Optional.
    #[must_use]
    pub fn follow_up_after<'a>(
        mut self,
        action: &str,
        priority: Severity,
        description: &str,
        after: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let after = after.into_iter().map(str::to_owned).collect();
        let (action, description) = (action.to_owned(), Some(description.to_owned()));
        self.follow_ups.push(FollowUp { action, priority, description, after });
        self
    }

    /// Builds the tool around the function that implements it.
    ///
    /// # Errors
    /// If the definition breaks rules of the contract; the error lists all of them.
    pub fn build<P, F, R>(
        self,
        run: impl Fn(P, Context) -> F + Send + Sync + 'static,
    ) -> Result<Tool, ContractError>
    where
        P: DeserializeOwned + JsonSchema + Send + 'static,
        F: Future<Output = R> + Send + 'static,
        R: ToolOutput,
    {
        let input = schema::input_schema::<P>();
        let output = schema::output_schema::<R::Data>();
        let (definition, input, output) = self.check(input, output)?;
        Ok(Tool::new(definition, input, output, Handler::new(run)))
    }

    fn check(
        self,
        input: Value,
        output: Value,
    ) -> Result<(Definition, CompiledSchema, CompiledSchema), ContractError> {
        let mut checker = RuleChecker(Vec::new());
        let name = checker.check_name(&self.name);
        checker.check_strings(&self);
        let category = checker.require("category", "written", self.category);
        let response_time = checker.require("response_time", "written", self.response_time);
        let idempotent = checker.require("idempotent", "written, and true for a query", self.idempotent);
        if category == Some(Category::Query) && idempotent == Some(false) {
            checker.add("idempotent", "written, and true for a query – it is false");
        }
        let cache_ttl = checker.check_caching(self.cacheable, self.cache_ttl.as_deref(), category);
        let asks = "written, if only as `[]`, each as `resource:action`";
        let texts = checker.require("permissions", asks, self.permissions).unwrap_or_default();
        let permissions = texts.iter().filter_map(|text| checker.parse("permissions", text)).collect();
        let timeout = self.timeout.as_deref().and_then(|text| checker.parse("timeout", text));
        let rate_limit = self.rate_limit.as_ref().and_then(|limit| checker.check_rate_limit(limit));
        let deprecated =
            self.deprecated.as_ref().and_then(|given| checker.check_deprecation(given, &self.name));
        let schemas = checker.check_schemas(&input, &output, &self.examples);
        let required = (name, category, response_time, idempotent, schemas);
        match required {
            (
                Some(name),
                Some(category),
                Some(response_time),
                Some(idempotent),
                Some((input_validator, output_validator)),
            ) if checker.0.is_empty() => {
                let definition = Definition {
                    name,
                    description: self.description,
                    version: self.version,
                    input_schema: input,
                    output_schema: output,
                    permissions,
                    category,
                    response_time,
                    cache_ttl,
                    idempotent,
                    timeout,
                    max_instances: self.max_instances,
                    examples: self.examples,
                    tags: self.tags,
                    rate_limit,
                    deprecated,
                    follow_ups: self.follow_ups,
                };
                Ok((definition, input_validator, output_validator))
            }
            _ => Err(ContractError { tool: self.name, rules: checker.0 }),
        }
    }
}

/// Collects broken rules.
struct RuleChecker(Vec<BrokenRule>);

impl RuleChecker {
    fn add(&mut self, rule: &'static str, detail: impl Into<String>) {
        self.0.push(BrokenRule { rule, detail: detail.into() });
    }

    fn require<T>(&mut self, rule: &'static str, asks: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.add(rule, format!("{asks} – it is not written"));
        }
        value
    }

    fn parse<T: FromStr<Err: fmt::Display>>(&mut self, rule: &'static str, text: &str) -> Option<T> {
        text.parse().map_err(|error| self.add(rule, format!("{error} – it is `{text}`"))).ok()
    }

    fn check_name(&mut self, name: &str) -> Option<toolgate_types::ToolName> {
        if !contract::is_verb_noun(name) {
            self.add(
                "name",
                format!("a verb and a noun in kebab-case, such as `create-card` – it is `{name}`"),
            );
            return None;
        }
        self.parse("name", name)
    }

    fn check_strings(&mut self, tool: &ToolBuilder) {
        if !contract::is_sufficient_description(&tool.description) {
            let (least, length) =
                (contract::MIN_DESCRIPTION_LENGTH, contract::count_characters(&tool.description));
            let asks = "characters: what it does, when to use it, what it returns";
            self.add("description", format!("at least {least} {asks} – it has {length}"));
        }
        if !contract::is_semantic_version(&tool.version) {
            self.add("version", format!("three numbers, such as `1.2.3` – it is `{}`", tool.version));
        }
        if tool.tags.is_empty() {
            self.add("tags", "at least one – there is none");
        }
    }

    fn check_caching(
        &mut self,
        cacheable: Option<bool>,
        ttl: Option<&str>,
        category: Option<Category>,
    ) -> Option<HumanDuration> {
        let asks = "written, and false for a mutation";
        match (self.require("cacheable", asks, cacheable)?, ttl) {
            (true, _) if category == Some(Category::Mutation) => {
                self.add("cacheable", format!("{asks} – it is true"));
                None
            }
            (true, Some(ttl)) => self.parse("cache_ttl", ttl),
            (true, None) => {
                self.add("cache_ttl", "written where it is cacheable – it is not");
                None
            }
            (false, Some(_)) => {
                self.add("cache_ttl", "left out where it is not cacheable – it is written");
                None
            }
            (false, None) => None,
        }
    }

    fn check_rate_limit(&mut self, (max_calls, window): &(u32, String)) -> Option<RateLimit> {
        let window: Option<HumanDuration> = self.parse("rate_limit", window);
        let Some(max_calls) = NonZeroU32::new(*max_calls) else {
            self.add("rate_limit", "at least one call – it is 0");
            return None;
        };
        let window_ms = u64::try_from(window?.get().as_millis()).unwrap_or(u64::MAX).max(1);
        Some(RateLimit { max_calls, window_ms })
    }

    fn check_deprecation(&mut self, given: &(String, String, String), name: &str) -> Option<Deprecation> {
        let (since, replacement, date) = given;
        if replacement == name {
            self.add("deprecated", "another tool replaces it – it names itself");
        }
        let Ok(day) = date.parse::<jiff::civil::Date>() else {
            self.add("deprecated", format!("the day as `2027-03-31` – it is `{date}`"));
            return None;
        };
        let (since, removal_date) = (since.clone(), day.to_string());
        Some(Deprecation { since, replacement: self.parse("deprecated", replacement)?, removal_date })
    }

    fn check_schemas(
        &mut self,
        input: &Value,
        output: &Value,
        examples: &[Example],
    ) -> Option<(CompiledSchema, CompiledSchema)> {
        let is_described =
            |argument: &Value| argument["description"].as_str().is_some_and(|text| !text.trim().is_empty());
        let arguments = input["properties"].as_object().into_iter().flatten();
        let undescribed: Vec<_> = arguments
            .filter(|(_, argument)| !is_described(argument))
            .map(|(name, _)| name.as_str())
            .collect();
        if !undescribed.is_empty() {
            self.add(
                "input_schema",
                format!("every argument has a doc comment – `{}` has none", undescribed.join("`, `")),
            );
        }
        for (rule, schema) in [("input_schema", input), ("output_schema", output)] {
            if schema["type"] != "object" {
                self.add(rule, "a struct, so that it is an object in JSON – it is something else");
            }
        }
        if examples.is_empty() {
            self.add("examples", "at least one – there is none");
        }
        let compiled = |schema, rule, rules: &mut Self| {
            CompiledSchema::new(schema).map_err(|error| rules.add(rule, error)).ok()
        };
        let input_validator = compiled(input, "input_schema", self)?;
        let output_validator = compiled(output, "output_schema", self)?;
        for example in examples {
            let result =
                example.expected_result.as_ref().map_or(Ok(()), |result| output_validator.check(result));
            if let Err(wrong) = input_validator.check(&example.params).and(result) {
                let detail = format!("each fits the schemas – `{}` does not: {wrong}", example.description);
                self.add("examples", detail);
            }
        }
        Some((input_validator, output_validator))
    }
}
