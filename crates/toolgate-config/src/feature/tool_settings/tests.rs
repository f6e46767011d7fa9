//! Settings of single tools: they override the registry and the defaults of the server, key by key.

use toolgate_types::server::ToolMode;

use crate::LoadOutcome;
use crate::test_support::{config, errors, loaded, messages};

/// Loads a tool with these keys and settings.
fn set(tool: &str, settings: &str) -> LoadOutcome {
    let tools = format!(r#"{{"tools": [{{"name": "t", "description": "d", "input_schema": {{}}{tool}}}]}}"#);
    let project =
        format!("registries: {{tools: tools.json}}\ntoolbox:\n  tools:\n    - {{name: t, {settings}}}\n");
    loaded(&[("toolgate.yaml", &project), ("tools.json", &tools), ("t.py", "")], &[])
}

#[test]
fn settings_override_registry_field_by_field() {
    let registry = r#", "permissions": ["a:b"], "category": "query", "cacheable": true, "cache_ttl": 60,
        "idempotent": true, "tags": ["one"], "rate_limit": {"max_calls": 1, "window_ms": 1000}"#;
    let tool = |settings: &str| {
        let config = config(&set(registry, settings));
        let keys = ["permissions", "category", "cache_ttl", "idempotent", "tags", "rate_limit"];
        let value =
            |key: &str| format!("{key}={}", config["tools"][0].get(key).unwrap_or(&serde_json::Value::Null));
        keys.map(value).join(" ")
    };
    insta::assert_snapshot!(tool("timeout: 3s"), @r#"permissions=["a:b"] category="query" cache_ttl="1m" idempotent=true tags=["one"] rate_limit={"max_calls":1,"window":"1s"}"#);
    insta::assert_snapshot!(tool("permissions: [c:d], category: analysis, tags: []"), @r#"permissions=["c:d"] category="analysis" cache_ttl="1m" idempotent=true tags=[] rate_limit={"max_calls":1,"window":"1s"}"#);
    insta::assert_snapshot!(tool("cache_ttl: 5s, idempotent: false"), @r#"permissions=["a:b"] category="query" cache_ttl="5s" idempotent=false tags=["one"] rate_limit={"max_calls":1,"window":"1s"}"#);
    insta::assert_snapshot!(tool("cacheable: false, rate_limit: {max_calls: 9, window_ms: 9}"), @r#"permissions=["a:b"] category="query" cache_ttl=null idempotent=true tags=["one"] rate_limit={"max_calls":9,"window":"9ms"}"#);
    // For a mutation, the setting turns the cache off.
    insta::assert_snapshot!(tool("category: mutation, cacheable: false"), @r#"permissions=["a:b"] category="mutation" cache_ttl=null idempotent=true tags=["one"] rate_limit={"max_calls":1,"window":"1s"}"#);
}

#[test]
fn settings_follow_registry_rules() {
    let messages = |tool: &str, settings: &str| messages(&set(tool, settings));
    insta::assert_snapshot!(messages("", "cacheable: true"), @"error toolgate.yaml:4:28 `cacheable` needs `cache_ttl` in tool settings `t` (add `cache_ttl: 3600`, in seconds)");
    insta::assert_snapshot!(messages("", "cacheable: true, cache_ttl: 0"), @"error toolgate.yaml:4:45 `0` is not a duration in tool settings `t` (a duration must be more than zero)");
    insta::assert_snapshot!(messages("", "cache_ttl: 60"), @"warning toolgate.yaml:4:17 `cache_ttl` without `cacheable: true` does nothing in tool settings `t` (add `cacheable: true`, or remove it)");
    insta::assert_snapshot!(messages("", "cacheable: true, cache_ttl: 60, category: mutation"), @"error toolgate.yaml:4:28 a mutation cannot be cached in tool settings `t` (remove `cacheable`, or correct `category`)");
    // The other key of a rule may be in the registry.
    insta::assert_snapshot!(messages(r#", "category": "mutation""#, "cacheable: true, cache_ttl: 60"), @"error toolgate.yaml:4:28 a mutation cannot be cached in tool settings `t` (remove `cacheable`, or correct `category`)");
    insta::assert_snapshot!(messages(r#", "cacheable": true, "cache_ttl": 60"#, "category: mutation"), @"error tools.json:1:79 a mutation cannot be cached in tool settings `t` (remove `cacheable`, or correct `category`)");
    insta::assert_snapshot!(messages("", "permissions: [everything, \"a:*\"], rate_limit: {max_calls: 0}"), @"
    error toolgate.yaml:4:31 `everything` is not a permission in tool settings `t` (a permission is `resource:action`, such as `cards:create`)
    error toolgate.yaml:4:43 `a:*` is not a permission in tool settings `t` (a permission is `resource:action`, such as `cards:create`)
    error toolgate.yaml:4:64 missing key `window_ms` in rate_limit (add `window_ms`: a positive whole number)
    error toolgate.yaml:4:75 `0` is not a positive whole number in rate_limit (write a whole number from 1 on)
    ");
}

/// Returns the limits of a tool with these settings and these defaults.
fn merged(settings: &str, defaults: &str) -> String {
    let project = format!(
        "toolbox:\n  tools: [{{name: t{settings}}}]\n  mcps: [{{name: a, command: a, mode: dynamic, \
         default_tool_config: {{{defaults}}}}}]"
    );
    let loaded = loaded(&[("toolgate.yaml", &project)], &[]);
    let Some(config) = &loaded.config else { panic!("refused:\n{}", messages(&loaded)) };
    let ToolMode::Dynamic { default_tool_config } = &config.servers[0].mode else { panic!() };
    serde_json::to_string(&config.tool_settings[0].limits.or(*default_tool_config)).unwrap()
}

const DEFAULTS: &str = "max_instances: 10, timeout: 30s, parallel_capable: true";

#[test]
fn explicit_config_overrides_all_default_fields() {
    assert_eq!(
        merged(", max_instances: 20, timeout: 60s, parallel_capable: false", DEFAULTS),
        r#"{"max_instances":20,"timeout":"1m","parallel_capable":false}"#
    );
}

#[test]
fn explicit_config_overrides_some_default_fields() {
    assert_eq!(
        merged(", max_instances: 20", DEFAULTS),
        r#"{"max_instances":20,"timeout":"30s","parallel_capable":true}"#
    );
    assert_eq!(
        merged(", timeout: 60s", DEFAULTS),
        r#"{"max_instances":10,"timeout":"1m","parallel_capable":true}"#
    );
}

#[test]
fn no_explicit_config_uses_all_defaults() {
    assert_eq!(merged("", DEFAULTS), r#"{"max_instances":10,"timeout":"30s","parallel_capable":true}"#);
    // The built-in limits apply to everything else.
    assert_eq!(merged("", "max_instances: 10"), r#"{"max_instances":10}"#);
}

const LOCAL: &str =
    r#"{"tools": [{"name": "echo", "description": "Echoes.", "input_schema": {}, "timeout": 10}]}"#;

#[test]
fn local_tools_always_use_strict_mode() {
    let project = "registries: {tools: tools.json}\ntoolbox: {tools: [{name: echo, mode: dynamic}]}";
    let loaded = loaded(&[("toolgate.yaml", project), ("tools.json", LOCAL)], &[]);
    assert_eq!(
        errors(&loaded),
        [
            "toolgate.yaml:2:26 tool `echo` belongs to this project and cannot be `dynamic` (a project's own tools are always strict; \
          remove `mode`)"
        ]
    );
}

#[test]
fn settings_override_registry_of_local_tool() {
    let project =
        "registries: {tools: tools.json}\ntoolbox: {tools: [{name: echo, max_instances: 2, mode: strict}]}";
    let loaded = loaded(&[("toolgate.yaml", project), ("tools.json", LOCAL)], &[]);
    let config = config(&loaded);
    assert_eq!(config["tools"][0]["max_instances"], 2);
    assert_eq!(config["tools"][0]["timeout"], "10s");
    assert_eq!(config["origins"]["tools.echo.max_instances"], "toolgate.yaml:2:47");
    assert_eq!(config["origins"]["tools.echo.timeout"], "tools.json:1:86");
}

#[test]
fn rejects_settings_given_twice() {
    let settings = "toolbox: {tools: [{name: t}, {name: t}]}";
    assert_eq!(
        errors(&loaded(&[("toolgate.yaml", settings)], &[])),
        ["toolgate.yaml:1:37 tool `t` has settings already (the others are at toolgate.yaml:1:26; keep one)"]
    );
}
