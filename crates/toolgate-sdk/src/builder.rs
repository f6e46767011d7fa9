//! The one way to a tool: everything is said, then everything is checked.
//!
//! The attribute `#[tool]` calls this and does nothing else. Invariant: what comes out keeps every rule of the
//! full contract; what does not keep them comes back with each rule that is not met.

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

use crate::definition::{Definition, Deprecated, Example, RateLimit};
use crate::error::ToolError;
use crate::hints::Answer;
use crate::schema::{self, Compiled};
use crate::tool::{Handler, Tool};

/// A tool does not keep the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// Its name.
    pub tool: String,
    /// The rules that it does not keep.
    pub rules: Vec<UnmetRule>,
}

/// A rule that is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmetRule {
    /// What it is about.
    pub rule: &'static str,
    /// What it asks for, and what is there in its place.
    pub detail: String,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tool `{}` does not keep the full contract", self.tool)?;
        self.rules.iter().try_for_each(|UnmetRule { rule, detail }| write!(f, "\n  {rule}: {detail}"))
    }
}

impl std::error::Error for Unmet {}

/// What a function that is a tool may return: `Result` of data, or of an [`Answer`] that has hints as well.
pub trait Output: Send + 'static {
    /// The data.
    type Data: Serialize + JsonSchema;

    /// The data with its hints, or the error.
    ///
    /// # Errors
    /// Where the tool came to nothing.
    fn answer(self) -> Result<Answer<Self::Data>, ToolError>;
}

impl<T: Serialize + JsonSchema + Send + 'static, E: Into<ToolError> + Send + 'static> Output
    for Result<T, E>
{
    type Data = T;

    fn answer(self) -> Result<Answer<T>, ToolError> {
        self.map(Answer::from).map_err(Into::into)
    }
}

impl<T: Serialize + JsonSchema + Send + 'static, E: Into<ToolError> + Send + 'static> Output
    for Result<Answer<T>, E>
{
    type Data = T;

    fn answer(self) -> Result<Answer<T>, ToolError> {
        self.map_err(Into::into)
    }
}

/// A tool in the making. What may be left out says so.
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

    /// What it does, when to use it, what it returns: models choose by this text.
    #[must_use]
    pub fn description(mut self, text: &str) -> Self {
        self.description = text.trim().to_owned();
        self
    }

    /// Its version, such as `1.2.3`.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        self.version = version.to_owned();
        self
    }

    /// What a caller must be allowed to do, such as `cards:create`; an empty list where it is nothing.
    #[must_use]
    pub fn permissions<'a>(mut self, permissions: impl IntoIterator<Item = &'a str>) -> Self {
        self.permissions = Some(permissions.into_iter().map(str::to_owned).collect());
        self
    }

    /// What kind of tool it is.
    #[must_use]
    pub fn category(mut self, category: Category) -> Self {
        self.category = Some(category);
        self
    }

    /// How fast it usually answers. A call may take 1 s, 10 s or 120 s then, where no timeout is said.
    #[must_use]
    pub fn response_time(mut self, response_time: ResponseTime) -> Self {
        self.response_time = Some(response_time);
        self
    }

    /// Whether a result may be served again; then [`cache_ttl`](Self::cache_ttl) says for how long.
    #[must_use]
    pub fn cacheable(mut self, cacheable: bool) -> Self {
        self.cacheable = Some(cacheable);
        self
    }

    /// How long a result may be served again, such as `1h`.
    #[must_use]
    pub fn cache_ttl(mut self, ttl: &str) -> Self {
        self.cache_ttl = Some(ttl.to_owned());
        self
    }

    /// Whether calling it twice is as good as calling it once.
    #[must_use]
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = Some(idempotent);
        self
    }

    /// How long one call may take, such as `5s`. May be left out.
    #[must_use]
    pub fn timeout(mut self, timeout: &str) -> Self {
        self.timeout = Some(timeout.to_owned());
        self
    }

    /// Calls that may run at the same time. May be left out: then it is any number.
    #[must_use]
    pub fn max_instances(mut self, most: NonZeroU32) -> Self {
        self.max_instances = Some(most);
        self
    }

    /// A call with its result; at least one is needed.
    #[must_use]
    pub fn example(mut self, description: &str, params: Value, expected_result: Value) -> Self {
        let (description, expected_result) = (description.to_owned(), Some(expected_result));
        self.examples.push(Example { description, params, expected_result });
        self
    }

    /// A call whose result is not the same every time.
    #[must_use]
    pub fn example_call(mut self, description: &str, params: Value) -> Self {
        self.examples.push(Example { description: description.to_owned(), params, expected_result: None });
        self
    }

    /// Words to find it by; at least one.
    #[must_use]
    pub fn tags<'a>(mut self, tags: impl IntoIterator<Item = &'a str>) -> Self {
        self.tags = tags.into_iter().map(str::to_owned).collect();
        self
    }

    /// How often one caller may call it, such as 60 times in `1m`. May be left out.
    #[must_use]
    pub fn rate_limit(mut self, max_calls: u32, window: &str) -> Self {
        self.rate_limit = Some((max_calls, window.to_owned()));
        self
    }

    /// It is on its way out: since which version, what replaces it, and the day after which it is refused.
    #[must_use]
    pub fn deprecated(mut self, since: &str, replacement: &str, removal_date: &str) -> Self {
        self.deprecated = Some((since.to_owned(), replacement.to_owned(), removal_date.to_owned()));
        self
    }

    /// What often makes sense after it. May be left out.
    #[must_use]
    pub fn follow_up(self, action: &str, priority: Severity, description: &str) -> Self {
        self.follow_up_after(action, priority, description, [])
    }

    /// What often makes sense after it, once other actions are done.
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

    /// The tool, with the function that it is.
    ///
    /// # Errors
    /// Every rule of the contract that is not kept.
    pub fn build<P, F, R>(self, run: impl Fn(P, Context) -> F + Send + Sync + 'static) -> Result<Tool, Unmet>
    where
        P: DeserializeOwned + JsonSchema + Send + 'static,
        F: Future<Output = R> + Send + 'static,
        R: Output,
    {
        let input = schema::of_input::<P>();
        let output = schema::of_output::<R::Data>();
        let (definition, input, output) = self.check(input, output)?;
        Ok(Tool::new(definition, input, output, Handler::of(run)))
    }

    fn check(self, input: Value, output: Value) -> Result<(Definition, Compiled, Compiled), Unmet> {
        let mut unmet = Rules(Vec::new());
        let name = unmet.name(&self.name);
        unmet.texts(&self);
        let category = unmet.written("category", "written", self.category);
        let response_time = unmet.written("response_time", "written", self.response_time);
        let idempotent = unmet.written("idempotent", "written, and true for a query", self.idempotent);
        if category == Some(Category::Query) && idempotent == Some(false) {
            unmet.add("idempotent", "written, and true for a query – it is false");
        }
        let cache_ttl = unmet.caching(self.cacheable, self.cache_ttl.as_deref(), category);
        let asks = "written, if only as `[]`, each as `resource:action`";
        let texts = unmet.written("permissions", asks, self.permissions).unwrap_or_default();
        let permissions = texts.iter().filter_map(|text| unmet.parsed("permissions", text)).collect();
        let timeout = self.timeout.as_deref().and_then(|text| unmet.parsed("timeout", text));
        let rate_limit = self.rate_limit.as_ref().and_then(|limit| unmet.rate_limit(limit));
        let deprecated = self.deprecated.as_ref().and_then(|told| unmet.deprecated(told, &self.name));
        let schemas = unmet.schemas(&input, &output, &self.examples);
        let whole = (name, category, response_time, idempotent, schemas);
        match whole {
            (Some(name), Some(category), Some(response_time), Some(idempotent), Some((accepts, gives)))
                if unmet.0.is_empty() =>
            {
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
                Ok((definition, accepts, gives))
            }
            _ => Err(Unmet { tool: self.name, rules: unmet.0 }),
        }
    }
}

/// The rules that were found not to be kept.
struct Rules(Vec<UnmetRule>);

impl Rules {
    fn add(&mut self, rule: &'static str, detail: impl Into<String>) {
        self.0.push(UnmetRule { rule, detail: detail.into() });
    }

    fn written<T>(&mut self, rule: &'static str, asks: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.add(rule, format!("{asks} – it is not written"));
        }
        value
    }

    fn parsed<T: FromStr<Err: fmt::Display>>(&mut self, rule: &'static str, text: &str) -> Option<T> {
        text.parse().map_err(|error| self.add(rule, format!("{error} – it is `{text}`"))).ok()
    }

    fn name(&mut self, name: &str) -> Option<toolgate_types::ToolName> {
        if !contract::is_verb_noun(name) {
            self.add(
                "name",
                format!("a verb and a noun in kebab-case, such as `create-card` – it is `{name}`"),
            );
            return None;
        }
        self.parsed("name", name)
    }

    fn texts(&mut self, tool: &ToolBuilder) {
        if !contract::is_description(&tool.description) {
            let (least, length) = (contract::SHORTEST_DESCRIPTION, contract::characters(&tool.description));
            let asks = "characters: what it does, when to use it, what it returns";
            self.add("description", format!("at least {least} {asks} – it has {length}"));
        }
        if !contract::is_semantic(&tool.version) {
            self.add("version", format!("three numbers, such as `1.2.3` – it is `{}`", tool.version));
        }
        if tool.tags.is_empty() {
            self.add("tags", "at least one – there is none");
        }
    }

    fn caching(
        &mut self,
        cacheable: Option<bool>,
        ttl: Option<&str>,
        category: Option<Category>,
    ) -> Option<HumanDuration> {
        let asks = "written, and false for a mutation";
        match (self.written("cacheable", asks, cacheable)?, ttl) {
            (true, _) if category == Some(Category::Mutation) => {
                self.add("cacheable", format!("{asks} – it is true"));
                None
            }
            (true, Some(ttl)) => self.parsed("cache_ttl", ttl),
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

    fn rate_limit(&mut self, (max_calls, window): &(u32, String)) -> Option<RateLimit> {
        let window: Option<HumanDuration> = self.parsed("rate_limit", window);
        let Some(max_calls) = NonZeroU32::new(*max_calls) else {
            self.add("rate_limit", "at least one call – it is 0");
            return None;
        };
        let window_ms = u64::try_from(window?.get().as_millis()).unwrap_or(u64::MAX).max(1);
        Some(RateLimit { max_calls, window_ms })
    }

    fn deprecated(&mut self, told: &(String, String, String), name: &str) -> Option<Deprecated> {
        let (since, replacement, date) = told;
        if replacement == name {
            self.add("deprecated", "another tool replaces it – it names itself");
        }
        let Ok(day) = date.parse::<jiff::civil::Date>() else {
            self.add("deprecated", format!("the day as `2027-03-31` – it is `{date}`"));
            return None;
        };
        let (since, removal_date) = (since.clone(), day.to_string());
        Some(Deprecated { since, replacement: self.parsed("deprecated", replacement)?, removal_date })
    }

    fn schemas(
        &mut self,
        input: &Value,
        output: &Value,
        examples: &[Example],
    ) -> Option<(Compiled, Compiled)> {
        let is_told =
            |argument: &Value| argument["description"].as_str().is_some_and(|text| !text.trim().is_empty());
        let arguments = input["properties"].as_object().into_iter().flatten();
        let untold: Vec<_> =
            arguments.filter(|(_, argument)| !is_told(argument)).map(|(name, _)| name.as_str()).collect();
        if !untold.is_empty() {
            self.add(
                "input_schema",
                format!("every argument has a doc comment – `{}` has none", untold.join("`, `")),
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
            Compiled::new(schema).map_err(|error| rules.add(rule, error)).ok()
        };
        let accepts = compiled(input, "input_schema", self)?;
        let gives = compiled(output, "output_schema", self)?;
        for example in examples {
            let result = example.expected_result.as_ref().map_or(Ok(()), |result| gives.check(result));
            if let Err(wrong) = accepts.check(&example.params).and(result) {
                let detail = format!("each fits the schemas – `{}` does not: {wrong}", example.description);
                self.add("examples", detail);
            }
        }
        Some((accepts, gives))
    }
}
