//! The toolbox: strict and dynamic servers, their default limits, and overrides of single tools.

use toolgate_types::ToolLimits;
use toolgate_types::server::ToolMode;

use super::{config, errors, loaded, messages};

/// Loads a project with these servers.
fn mcps(mcps: &str) -> toolgate_config::LoadOutcome {
    loaded(&[("toolgate.yaml", &format!("toolbox:\n  mcps:\n{mcps}"))], &[])
}

fn only_mode(loaded: &toolgate_config::LoadOutcome) -> &ToolMode {
    let Some(config) = &loaded.config else { panic!("refused:\n{}", messages(loaded)) };
    &config.servers[0].mode
}

// Configuration validation.

#[test]
fn valid_strict_mode_without_default_tool_config() {
    let loaded = mcps("    - {name: a, url: http://localhost:1/mcp, mode: strict}");
    assert!(matches!(only_mode(&loaded), ToolMode::Strict));
    assert_eq!(messages(&loaded), "");
}

#[test]
fn valid_dynamic_mode_with_default_tool_config() {
    let loaded = mcps(
        "    - {name: a, url: http://localhost:1/mcp, mode: dynamic, default_tool_config: {max_instances: 10, timeout: PT30S}}",
    );
    let ToolMode::Dynamic { default_tool_config } = only_mode(&loaded) else { panic!() };
    assert_eq!(default_tool_config.max_instances.unwrap().get(), 10);
    assert_eq!(default_tool_config.timeout.unwrap().to_string(), "30s");
    assert_eq!(messages(&loaded), "");
}

#[test]
fn invalid_dynamic_mode_without_default_tool_config() {
    let loaded = mcps("    - name: customers\n      url: http://localhost:1/mcp\n      mode: dynamic\n");
    assert!(loaded.config.is_none());
    assert_eq!(
        messages(&loaded),
        "error toolgate.yaml:5:13 MCP server 'customers' is configured with mode='dynamic' but missing required \
         field 'default_tool_config' (add `default_tool_config: { max_instances: 10, timeout: 30s }`)"
    );
    // A key without a value is no default either.
    let empty = mcps("    - {name: a, url: http://localhost:1/mcp, mode: dynamic, default_tool_config: }");
    assert!(errors(&empty)[0].contains("missing required field 'default_tool_config'"));
}

#[test]
fn valid_strict_mode_with_default_tool_config_which_is_ignored() {
    let loaded = mcps(
        "    - {name: a, url: http://localhost:1/mcp, mode: strict, default_tool_config: {max_instances: 10}}",
    );
    assert!(matches!(only_mode(&loaded), ToolMode::Strict));
    assert_eq!(errors(&loaded), Vec::<String>::new());
    assert!(config(&loaded)["servers"][0].get("default_tool_config").is_none());
}

/// An unused `default_tool_config` must still be valid, since the mode may be switched later.
#[test]
fn checks_default_tool_config_in_strict_mode() {
    let loaded = mcps(
        "    - {name: a, url: http://localhost:1/mcp, mode: strict, default_tool_config: {max_instances: 0}}",
    );
    assert_eq!(errors(&loaded).len(), 1);
}

#[test]
fn mode_is_required() {
    let hint = "(write `mode: strict`, or `mode: dynamic` with `default_tool_config`)";
    for written in ["", ", mode: ", ", mode: ~"] {
        let loaded = mcps(&format!("    - {{name: a, url: http://localhost:1/mcp{written}}}"));
        assert_eq!(
            errors(&loaded),
            [format!("toolgate.yaml:3:14 missing key `mode` in MCP server `a` {hint}")]
        );
    }
}

#[test]
fn rejects_unknown_mode() {
    let loaded = mcps("    - {name: a, url: http://localhost:1/mcp, mode: dynamik}");
    assert_eq!(
        errors(&loaded),
        ["toolgate.yaml:3:52 `dynamik` is not a mode in MCP server `a` (did you mean `dynamic`?)"]
    );
    let loaded = mcps("    - {name: a, url: http://localhost:1/mcp, mode: open}");
    assert_eq!(
        errors(&loaded),
        ["toolgate.yaml:3:52 `open` is not a mode in MCP server `a` (`strict` or `dynamic` is expected)"]
    );
}

/// If `mode` is not required, it defaults to all tools with the built-in limits.
#[test]
fn registry_may_omit_mode() {
    let loaded = loaded(&[("mcp.json", r#"{"servers": {"a": {"command": "a"}}}"#)], &[]);
    let ToolMode::Dynamic { default_tool_config } = only_mode(&loaded) else { panic!() };
    assert_eq!(*default_tool_config, ToolLimits::default());
}

// Configuration merging: a tool's settings override its server's defaults, field by field.

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

// Local tools.

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

// Values.

#[test]
fn limits_must_be_positive() {
    let messages = |key: &str, value: &str| {
        errors(&loaded(&[("toolgate.yaml", &format!("toolbox: {{{key}: {value}}}"))], &[]))
    };
    for value in ["0", "-1", "1.5", "many", "4294967296", "[1]"] {
        assert_eq!(messages("max_concurrent", value).len(), 1, "{value}");
    }
    for value in ["0", "-5s", "soon", "P1Y", "[1]", "11 years"] {
        assert_eq!(messages("default_timeout", value).len(), 1, "{value}");
    }
    for value in ["0", "4k", "-1"] {
        assert_eq!(messages("max_output", value).len(), 1, "{value}");
    }
    assert_eq!(
        messages("default_timeout", "-5s"),
        ["toolgate.yaml:1:28 `-5s` is not a duration in toolbox (a duration cannot be negative)"]
    );
}

/// An empty value counts as absent, and never makes a server disappear.
#[test]
fn empty_value_counts_as_absent() {
    let messages = |entry: &str| errors(&mcps(&format!("    - {entry}\n")));
    assert_eq!(
        messages("{name: , command: a, mode: strict}"),
        ["toolgate.yaml:3:7 missing key `name` in MCP server (give the server a name)"]
    );
    assert_eq!(
        messages("{name: a, command: , mode: strict}"),
        [
            "toolgate.yaml:3:14 nothing to connect to in MCP server `a` (give it a `command`, a `server` package or a `url`)"
        ]
    );
    assert_eq!(
        messages("{name: a, transport: http, url: , mode: strict}"),
        ["toolgate.yaml:3:14 missing key `url` in MCP server `a` (an `http` server needs a `url`)"]
    );
    assert_eq!(messages("{name: a, command: a, mode: strict, startup: , args: }"), Vec::<String>::new());
}

#[test]
fn rejects_ambiguous_names() {
    let twice = "    - {name: a, command: a, mode: strict}\n    - {name: a, command: b, mode: strict}\n";
    assert_eq!(
        errors(&mcps(twice)),
        [
            "toolgate.yaml:4:14 MCP server `a` is configured twice (the other is at toolgate.yaml:3:14; rename one)"
        ]
    );
    let alike = "    - {name: a b, command: a, mode: strict}\n    - {name: a/b, command: b, mode: strict}\n";
    assert_eq!(
        errors(&mcps(alike)),
        [
            "toolgate.yaml:4:14 MCP servers `a b` and `a/b` would share the prefix of their tools (the other is at \
          toolgate.yaml:3:14; rename one)"
        ]
    );
    let settings = "toolbox: {tools: [{name: t}, {name: t}]}";
    assert_eq!(
        errors(&loaded(&[("toolgate.yaml", settings)], &[])),
        ["toolgate.yaml:1:37 tool `t` has settings already (the others are at toolgate.yaml:1:26; keep one)"]
    );
}
