//! `policy`: a file of Cedar rules, named or found by default.

use std::path::Path;

use serde::Serialize;
use toolgate_policy::rules::ProjectFacts;
use toolgate_policy::{RuleError, RuleSet};

use crate::context::{Context, Environment};
use crate::keys::Spanned;
use crate::problem::{Problem, Report};
use crate::resolve::ConfigBuilder;
use crate::source::{SourceId, Span};

/// Default policy file.
const DEFAULT_FILE: &str = "policy.cedar";

/// Policy rules of a project: parsed, and checked against the types of a call.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyFile {
    /// Path of the file, relative to the project folder if inside it.
    pub path: String,
    /// Version of the rules: changes with their content.
    pub version: String,
    #[serde(skip)]
    pub rules: RuleSet,
    #[serde(skip)]
    source: SourceId,
}

impl ConfigBuilder {
    /// Loads the policy file named in the project file.
    pub(crate) fn load_named_policy(&mut self, named: &Spanned<String>, cx: &mut Context<'_>) {
        self.origins.insert("policy".to_owned(), named.span);
        let path = cx.project.join(&named.value);
        self.policy = Some(None);
        if cx.has_file(&path) {
            self.policy = Some(read_rules(&path, cx));
        } else {
            let what = if path.is_dir() { "is a folder" } else { "does not exist" };
            let message = format!("the policy `{}` {what}", named.value);
            cx.error(named.span, message, "create it, or remove it here; paths start at the project folder");
        }
    }

    /// Loads the default policy file if the project file names none. Applies to every dialect: existing rules must
    /// not be ignored.
    pub(crate) fn load_default_policy(&mut self, cx: &mut Context<'_>) {
        let path = cx.project.join(DEFAULT_FILE);
        // A dangling symbolic link is an error: the policy existed and is now missing.
        if self.policy.is_none() && (cx.has_file(&path) || path.exists() || path.is_symlink()) {
            self.policy = Some(read_rules(&path, cx));
        }
    }
}

impl ConfigBuilder {
    /// Warns about rules that can never fire in this project.
    pub(crate) fn check_policy_reach(&self, cx: &mut Context<'_>) {
        let Some(policy) = self.policy.as_ref().and_then(Option::as_ref) else { return };
        let servers = self.servers.iter().map(|(server, _)| (server.name.to_string(), server.trusted));
        // Content of an API is never trusted.
        let apis = self.apis.iter().map(|(api, _)| (api.name.to_string(), false));
        let sources: Vec<_> = servers.chain(apis).collect();
        let builtins = BUILTIN_NAMES.iter().map(|name| (*name).to_owned());
        let own = self.tools.iter().map(|tool| tool.value.name.to_string());
        let facts = ProjectFacts {
            has_untrusted_content: sources.iter().any(|(_, trusted)| !trusted)
                || self.builtins.web_search.is_some(),
            servers: sources.into_iter().map(|(name, _)| name).collect(),
            tools: own.chain(builtins).collect(),
            groups: self.groups.iter().map(|group| group.name.to_string()).collect(),
        };
        let text = cx.sources.get(policy.source).text().to_owned();
        for RuleError { message, hint, at } in policy.rules.unreachable_rules(&text, &facts) {
            let place = rule_span(at, policy.source, cx);
            cx.push(Problem::warning(place, message).hint(hint.unwrap_or_default()));
        }
    }
}

/// Tools that are part of Toolgate. A rule may name one that is not enabled yet.
const BUILTIN_NAMES: [&str; 9] = [
    "code_execution",
    "list_resources",
    "load_skill",
    "read_resource",
    "read_result",
    "read_skill_file",
    "request_human_input",
    "search_tools",
    "web_search",
];

/// Loads rules from a file outside a project, with a report of their problems.
pub fn load_rules(path: &Path, environment: &Environment) -> (Option<RuleSet>, Report) {
    let path = crate::load::to_absolute(path, environment);
    let mut cx = Context::new(path.parent().map(Path::to_owned).unwrap_or_default(), environment);
    let rules = if path.is_file() {
        read_rules(&path, &mut cx).map(|file| file.rules)
    } else {
        let message = format!("the policy `{}` does not exist", path.display());
        cx.push(Problem::without_span(message).hint("name a file with rules in Cedar"));
        None
    };
    let report = Report::new(cx.sources, cx.problems, cx.secrets);
    (rules, report)
}

fn read_rules(path: &Path, cx: &mut Context<'_>) -> Option<PolicyFile> {
    let id = cx.open(path).map_err(|problem| cx.push(problem)).ok()?;
    let source = cx.sources.get(id);
    let (path, rules) = (source.name().to_owned(), RuleSet::new(source.text()));
    let rule_problems = match &rules {
        Ok(rules) => rules.warnings(),
        Err(errors) => errors.as_slice(),
    };
    for RuleError { message, hint, at } in rule_problems {
        let place = rule_span(at.clone(), id, cx);
        let hint = hint.as_deref().unwrap_or("see docs/policy.md");
        let problem = match &rules {
            Ok(_) => Problem::warning(place, message),
            Err(_) => Problem::error(place, message),
        };
        cx.push(problem.hint(hint));
    }
    let rules = rules.ok()?;
    Some(PolicyFile { path, version: rules.version().to_owned(), rules, source: id })
}

/// Converts a range to a span. Without a range, returns the start of the file.
fn rule_span(at: Option<std::ops::Range<usize>>, id: SourceId, cx: &Context<'_>) -> Span {
    let text = cx.sources.get(id).text();
    let range = at.filter(|range| text.get(range.clone()).is_some()).unwrap_or(0..0);
    Span::new(id, range.start, range.end)
}

#[cfg(test)]
mod tests;
