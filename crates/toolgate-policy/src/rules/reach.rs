//! Finds rules that can never fire in a project: they name a server, tool or group that it does not have, or need taint
//! where nothing can taint.
//!
//! Invariant: a rule is reported only if it certainly cannot fire. Callers can be created later, so a rule for an unknown
//! caller is not reported.

use std::ops::Range;

use cedar_policy::{Policy, PrincipalConstraint, ResourceConstraint};
use serde_json::Value;

use super::{RuleError, RuleSet};

/// The facts about a project that decide if a rule can fire.
#[derive(Debug, Default)]
pub struct ProjectFacts {
    /// Names of all MCP servers and APIs.
    pub servers: Vec<String>,
    /// Names of the project's own and built-in tools.
    pub tools: Vec<String>,
    /// Names of all groups.
    pub groups: Vec<String>,
    /// True if untrusted content can reach a caller: a server or API is not trusted, or a tool searches the web.
    pub has_untrusted_content: bool,
}

impl RuleSet {
    /// Rules that can never fire in a project.
    pub fn unreachable_rules(&self, text: &str, facts: &ProjectFacts) -> Vec<RuleError> {
        let mut errors = Vec::new();
        for policy in self.set.policies() {
            let name = policy.annotation("id").unwrap_or_default();
            let mut report = |why: String, hint: &str, needle: &str| {
                let rule = if name.is_empty() { "a rule".to_owned() } else { format!("rule `{name}`") };
                errors.push(RuleError {
                    message: format!("{rule} can never fire: {why}"),
                    hint: Some(hint.to_owned()),
                    at: find(text, name, needle),
                });
            };
            if let Some((kind, id)) = resource_scope(policy) {
                if kind == "Server" && !facts.servers.contains(&id) {
                    let needle = format!("Server::\"{id}\"");
                    report(
                        format!("there is no server `{id}`"),
                        "`toolgate servers` lists the servers",
                        &needle,
                    );
                }
                if kind == "Tool" && !may_exist(&id, facts) {
                    let needle = format!("Tool::\"{id}\"");
                    report(
                        format!("there is no tool `{id}`"),
                        "`toolgate tools list` lists the tools",
                        &needle,
                    );
                }
            }
            let group = principal_group(policy).filter(|group| !facts.groups.contains(group));
            if let Some(group) = group {
                let needle = format!("Group::\"{group}\"");
                let why = format!("there is no group `{group}`");
                report(why, "declare it in `groups` of toolgate.yaml", &needle);
            }
            if !facts.has_untrusted_content && needs_taint(policy) {
                let why = "every server is trusted, so nothing can taint a session".to_owned();
                report(why, "remove `trusted` from servers whose content others write", "context.tainted");
            }
        }
        errors
    }
}

/// The entity that the resource of a rule must be, or be in.
fn resource_scope(policy: &Policy) -> Option<(String, String)> {
    let uid = match policy.resource_constraint() {
        ResourceConstraint::Eq(uid) | ResourceConstraint::In(uid) | ResourceConstraint::IsIn(_, uid) => uid,
        ResourceConstraint::Any | ResourceConstraint::Is(_) => return None,
    };
    Some((uid.type_name().to_string(), uid.id().unescaped().to_owned()))
}

/// The group that the principal of a rule must be in.
fn principal_group(policy: &Policy) -> Option<String> {
    let uid = match policy.principal_constraint() {
        PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => uid,
        PrincipalConstraint::Any | PrincipalConstraint::Is(_) | PrincipalConstraint::Eq(_) => return None,
    };
    (uid.type_name().to_string() == "Group").then(|| uid.id().unescaped().to_owned())
}

/// Returns true unless the tool certainly does not exist: the tools of servers are known only when they run.
fn may_exist(tool: &str, facts: &ProjectFacts) -> bool {
    if facts.tools.iter().any(|known| known == tool) {
        return true;
    }
    match tool.split_once("__") {
        Some((server, _)) => facts.servers.iter().any(|known| known == server),
        None => !facts.servers.is_empty(),
    }
}

/// Returns true if a condition that must hold is `context.tainted`.
fn needs_taint(policy: &Policy) -> bool {
    fn requires(expression: &Value) -> bool {
        if let Some(both) = expression.get("&&") {
            return requires(&both["left"]) || requires(&both["right"]);
        }
        let access = &expression["."];
        access["attr"] == "tainted" && access["left"]["Var"] == "context"
    }
    let json = policy.to_json().unwrap_or_default();
    let conditions = json["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().any(|condition| condition["kind"] == "when" && requires(&condition["body"]))
}

/// The first place of a string, after the `@id` of its rule if it has one.
fn find(text: &str, rule: &str, needle: &str) -> Option<Range<usize>> {
    let from = if rule.is_empty() { 0 } else { text.find(&format!("@id(\"{rule}\")")).unwrap_or(0) };
    let at = from + text[from..].find(needle)?;
    Some(at..at + needle.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable(rules: &str, facts: &ProjectFacts) -> Vec<String> {
        let found = RuleSet::new(rules).unwrap().unreachable_rules(rules, facts);
        found.into_iter().map(|error| error.message).collect()
    }

    #[test]
    fn reports_rules_that_can_never_fire() {
        let facts = ProjectFacts { tools: vec!["pay".to_owned()], ..ProjectFacts::default() };
        let rule = |scope: &str| format!("@id(\"r\") forbid(principal, action, {scope});");
        let check = |scope: &str, facts: &ProjectFacts, due: &[&str]| {
            assert_eq!(unreachable(&rule(scope), facts), due, "{scope}");
        };
        check("resource == Tool::\"pay\"", &facts, &[]);
        check("resource", &facts, &[]);
        check("resource == Tool::\"play\"", &facts, &["rule `r` can never fire: there is no tool `play`"]);
        check(
            "resource in Server::\"mail\"",
            &facts,
            &["rule `r` can never fire: there is no server `mail`"],
        );
        let with_server = ProjectFacts { servers: vec!["mail".to_owned()], ..facts };
        check("resource == Tool::\"play\"", &with_server, &[]);
        check("resource == Tool::\"mail__send\"", &with_server, &[]);
        check(
            "resource == Tool::\"male__send\"",
            &with_server,
            &["rule `r` can never fire: there is no tool `male__send`"],
        );
    }

    #[test]
    fn reports_rules_for_a_group_that_does_not_exist() {
        let rule = "permit(principal in Group::\"opps\", action, resource);";
        let facts = |name: &str| ProjectFacts { groups: vec![name.to_owned()], ..ProjectFacts::default() };
        assert_eq!(unreachable(rule, &facts("opps")), Vec::<String>::new());
        assert_eq!(unreachable(rule, &facts("ops")), ["a rule can never fire: there is no group `opps`"]);
    }

    #[test]
    fn reports_rules_that_need_taint_where_nothing_taints() {
        let rule = |condition: &str| format!("forbid(principal, action, resource) when {{ {condition} }};");
        let check = |condition: &str, has_untrusted_content: bool, due: usize| {
            let facts = ProjectFacts { has_untrusted_content, ..ProjectFacts::default() };
            assert_eq!(unreachable(&rule(condition), &facts).len(), due, "{condition}");
        };
        check("context.tainted", false, 1);
        check("resource.risk == \"high\" && context.tainted", false, 1);
        check("context.tainted", true, 0);
        check("!context.tainted", false, 0);
        check("context.tainted || resource.trusted", false, 0);
    }
}
