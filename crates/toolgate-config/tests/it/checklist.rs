//! The verification checklist of the tool contract.

use toolgate_config::{Config, checklists, load};

use super::{environment, fixtures, loaded, project};

/// Returns the unmet rules, one per line.
fn unmet_rules(config: &Config) -> String {
    let lists = checklists(config);
    let rules = lists.iter().flat_map(|list| list.rules.iter().filter(|rule| !rule.met));
    rules.map(|rule| format!("{} {}: {}\n", rule.place, rule.rule, rule.detail)).collect()
}

#[test]
fn minimal_contract_tool_meets_every_rule() {
    let config = load(&fixtures("tool-contract"), None, &environment(&[])).config.unwrap();
    let lists = checklists(&config);
    assert!(lists[0].is_met(), "{}", unmet_rules(&config));
    let rules: Vec<_> = lists[0].rules.iter().map(|rule| format!("{} {}", rule.rule, rule.place)).collect();
    insta::assert_snapshot!(rules.join("\n"), @"
    name tools.json:4:15
    description tools.json:5:22
    input_schema tools.json:6:21
    permissions tools.json:11:22
    category tools.json:12:19
    response_time tools.json:13:23
    cacheable tools.json:14:20
    cache_ttl tools.json:15:19
    idempotent tools.json:16:21
    examples tools.json:17:19
    tags tools.json:18:15
    version tools.json:4:15
    script_path tools.json:4:15
    result tools.json:4:15
    deprecated tools.json:20:21
    ");
}

#[test]
fn reports_every_unmet_rule_with_location() {
    let tools = r#"{"tools": [{
        "name": "get_card",
        "description": "Gets a card.",
        "input_schema": {"type": "object", "properties": {"id": {"type": "string"}, "deck": {"description": "d"}}},
        "script_path": "none.py",
        "category": "query",
        "version": "1.0",
        "examples": [{"description": "One", "params": {"id": 5}}]
    }, {
        "name": "get-deck", "description": "d", "input_schema": {}
    }]}"#;
    let folder = project(&[("tools.json", tools), ("get-deck.py", "")]);
    let config = load(folder.path(), None, &environment(&[])).config.unwrap();
    insta::assert_snapshot!(unmet_rules(&config), @r#"
    tools.json:2:17 name: a verb and a noun in kebab-case, such as `create-card` – it is `get_card`
    tools.json:3:24 description: at least 50 characters: what it does, when to use it, what it returns – it has 12
    tools.json:4:25 input_schema: every argument has a description – `id` has none
    tools.json:2:17 permissions: written, if only as `[]` – it is not written
    tools.json:2:17 response_time: written – it is not written
    tools.json:2:17 cacheable: written, and false for a mutation – it is not written
    tools.json:2:17 idempotent: written, and true for a query – it is false
    tools.json:8:21 examples: at least one, and each fits the schemas – `One` does not: `id`: 5 is not of type "string"
    tools.json:2:17 tags: at least one – there is none
    tools.json:7:20 version: three numbers, such as `1.2.3` – it is `1.0`
    tools.json:5:24 script_path: the script exists – it does not
    tools.json:10:44 description: at least 50 characters: what it does, when to use it, what it returns – it has 1
    tools.json:10:17 permissions: written, if only as `[]` – it is not written
    tools.json:10:17 category: written – it is not written
    tools.json:10:17 response_time: written – it is not written
    tools.json:10:17 cacheable: written, and false for a mutation – it is not written
    tools.json:10:17 idempotent: written, and true for a query – it is not written
    tools.json:10:17 examples: at least one, and each fits the schemas – there is none
    tools.json:10:17 tags: at least one – there is none
    "#);
}

/// The operator's settings count for the checklist, too.
#[test]
fn tool_settings_can_satisfy_rules() {
    let tools = r#"{"tools": [{"name": "get-deck", "description": "d", "input_schema": {}}]}"#;
    let project = "registries: {tools: tools.json}\ntoolbox:\n  tools:\n    - {name: get-deck, permissions: [], category: query, idempotent: true, cacheable: false, tags: [decks]}\n";
    let files = [("toolgate.yaml", project), ("tools.json", tools), ("get-deck.py", "")];
    let messages = unmet_rules(&loaded(&files, &[]).config.unwrap());
    for met in ["permissions", "category", "idempotent", "cacheable", "tags"] {
        assert!(!messages.contains(&format!(" {met}:")), "{messages}");
    }
}

/// A file or tool that chooses the full contract must satisfy it, otherwise loading fails.
#[test]
fn full_contract_is_optional() {
    let tool = |contract: &str| {
        format!(r#"{{ {contract} "name": "get_card", "description": "Gets a card.", "input_schema": {{}} }}"#)
    };
    let messages = |file: &str, each: &str| {
        let tools = format!(r#"{{ {file} "tools": [{}] }}"#, tool(each));
        let folder = project(&[("tools.json", &tools), ("get_card.py", "")]);
        let loaded = load(folder.path(), None, &environment(&[]));
        loaded.report.render().matches("does not satisfy the contract").count()
    };
    let (standard, full) = (r#""contract": "standard","#, r#""contract": "full","#);
    assert_eq!((messages("", ""), messages(standard, ""), messages(full, standard)), (0, 0, 0));
    assert_eq!((messages(full, ""), messages("", full), messages(standard, full)), (9, 9, 9));
}

/// A deprecated tool gives its callers 90 days, and names a tool that exists.
#[test]
fn deprecation_needs_notice_and_replacement() {
    let check = |keys: &str| {
        let tool = |name: &str, more: &str| {
            format!(
                r#"{{ "name": "{name}", "description": "Gets a card by its id, for review. Returns the card.",
                "input_schema": {{}}, "permissions": [], "category": "query", "response_time": "fast", "cacheable": false,
                "idempotent": true, "version": "1.0.0", "tags": ["cards"], "script_path": "a.py",
                "examples": [{{ "description": "One", "params": {{}} }}]{more} }}"#
            )
        };
        let deprecated = format!(r#", "deprecated": {{ "since": "1.0.0", {keys} }}"#);
        let tools = format!(
            r#"{{ "contract": "full", "tools": [{}, {}] }}"#,
            tool("get-old", &deprecated),
            tool("get-new", "")
        );
        let yaml = "registries: {tools: tools.json}\ntoolbox: {tools: [{name: listed}], mcps: [{name: cards, command: x, mode: dynamic, default_tool_config: {}}]}";
        let folder = project(&[("toolgate.yaml", yaml), ("tools.json", &tools), ("a.py", "")]);
        let report = load(folder.path(), None, &environment(&[])).report.render();
        let hint = report.lines().find(|line| line.contains("required:")).unwrap_or_default();
        (
            report.contains("error"),
            hint.split(" – ").nth(1).unwrap_or_default().to_owned(),
            report.contains("warning"),
        )
    };
    let dates = |announced: &str, date: &str| {
        format!(r#""replacement": "get-new", {announced}"removal_date": "{date}""#)
    };
    let ok = |warned: bool| (false, String::new(), warned);
    assert_eq!(check(&dates(r#""announced": "2026-01-01", "#, "2026-04-01")), ok(false));
    let (failed, why, _) = check(&dates(r#""announced": "2026-01-01", "#, "2026-03-31"));
    assert!(failed && why.starts_with("2026-03-31 is 89 days after 2026-01-01; "), "{why}");
    // Without the day of the announcement, the notice counts from today, and a warning says so.
    assert_eq!(check(&dates("", "9999-01-01")), ok(true));
    let (failed, why, _) = check(&dates("", "2020-01-01"));
    assert!(failed && why.contains(" days after today; "), "{why}");
    let replacement = |name: &str| {
        check(&format!(r#""replacement": "{name}", "announced": "2026-01-01", "removal_date": "2026-12-31""#))
    };
    for known in ["get-new", "cards__get", "listed", "web_search"] {
        assert_eq!(replacement(known), ok(false), "{known}");
    }
    let (failed, why, _) = replacement("get-newer");
    assert!(failed && why.starts_with("there is no tool `get-newer`"), "{why}");
}
