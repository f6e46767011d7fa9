//! Environment variables that override the project file.

use serde_json::Value as Json;

use super::{config, errors, loaded, messages};

const PROJECT: &str = "
name: test
toolbox:
  max_concurrent: 5
  mcps:
    - {name: my-first, command: a, args: [x], mode: strict}
    - {name: second, command: b, mode: strict}
";

/// Returns the value at a JSON pointer after one override.
fn overridden(name: &str, value: &str, pointer: &str) -> Json {
    let loaded = loaded(&[("toolgate.yaml", PROJECT)], &[(name, value)]);
    config(&loaded).pointer(pointer).cloned().unwrap_or(Json::Null)
}

#[test]
fn overrides_by_key_index_and_name() {
    assert_eq!(overridden("TOOLGATE__TOOLBOX__MAX_CONCURRENT", "20", "/limits/max_concurrent"), 20);
    assert_eq!(overridden("TOOLGATE__toolbox__max_concurrent", "20", "/limits/max_concurrent"), 20);
    assert_eq!(overridden("TOOLGATE__TOOLBOX__MCPS__1__COMMAND", "c", "/servers/1/command"), "c");
    assert_eq!(overridden("TOOLGATE__TOOLBOX__MCPS__SECOND__COMMAND", "c", "/servers/1/command"), "c");
    assert_eq!(overridden("TOOLGATE__TOOLBOX__MCPS__MY_FIRST__COMMAND", "c", "/servers/0/command"), "c");
}

#[test]
fn adds_missing_keys() {
    assert_eq!(overridden("TOOLGATE__NAME", "here", "/name"), "here");
    assert_eq!(overridden("TOOLGATE__TOOLBOX__DEFAULT_TIMEOUT", "5s", "/limits/default_timeout"), "5s");
    assert_eq!(
        overridden("TOOLGATE__TOOLBOX__MCPS__0__ARGS__1", "y", "/servers/0/args"),
        serde_json::json!(["x", "y"])
    );
    assert_eq!(overridden("TOOLGATE__TOOLBOX__TOOLS__0__NAME", "t", "/tool_settings/0/name"), "t");
    let settings = r#"[{"name": "t", "timeout": "5s"}]"#;
    assert_eq!(overridden("TOOLGATE__TOOLBOX__TOOLS", settings, "/tool_settings/0/timeout"), "5s");
    let server = "{name: third, command: c, mode: strict}";
    assert_eq!(overridden("TOOLGATE__TOOLBOX__MCPS__2", server, "/servers/2/name"), "third");
}

#[test]
fn env_names_keep_their_case() {
    let env = overridden("TOOLGATE__TOOLBOX__MCPS__0__ENV__API_KEY", "x", "/servers/0/env");
    assert_eq!(env, serde_json::json!({"API_KEY": "***"}));
}

#[test]
fn overrides_server_mode_in_both_trees() {
    let variables = [
        ("TOOLGATE__TOOLBOX__MCPS__0__MODE", "dynamic"),
        ("TOOLGATE__TOOLBOX__MCPS__0__DEFAULT_TOOL_CONFIG", "{max_instances: 3}"),
    ];
    let ours = config(&loaded(&[("toolgate.yaml", PROJECT)], &variables));
    assert_eq!(ours["servers"][0]["default_tool_config"]["max_instances"], 3);
    assert_eq!(
        ours["origins"]["servers.my-first.mode"],
        "environment variable TOOLGATE__TOOLBOX__MCPS__0__MODE"
    );
    let myai = format!("myai:{}", PROJECT.replace('\n', "\n  "));
    let variables = [
        ("APP_MYAI__TOOLBOX__MCPS__0__MODE", "dynamic"),
        ("APP_MYAI__TOOLBOX__MCPS__0__DEFAULT_TOOL_CONFIG__MAX_INSTANCES", "3"),
        ("APP_NAME", "of another program"),
    ];
    let theirs = config(&loaded(&[("config.yaml", &myai)], &variables));
    assert_eq!(theirs["servers"][0]["default_tool_config"]["max_instances"], 3);
}

#[test]
fn reports_invalid_value_with_its_variable() {
    let messages = |name: &str, value: &str| errors(&loaded(&[("toolgate.yaml", PROJECT)], &[(name, value)]));
    assert_eq!(
        messages("TOOLGATE__TOOLBOX__MAX_CONCURRENT", "none"),
        [
            "environment variable TOOLGATE__TOOLBOX__MAX_CONCURRENT `none` is not a positive whole number in toolbox (write a whole number from 1 on)"
        ]
    );
    assert!(
        messages("TOOLGATE__TOOLBOX__MAX_CONCURENT", "5")[0].ends_with("(did you mean `max_concurrent`?)")
    );
    assert!(messages("TOOLGATE__TOOLBOX__MCPS", "[")[0].contains("not valid YAML"));
}

#[test]
fn reports_unmatched_path() {
    let messages = |name: &str| errors(&loaded(&[("toolgate.yaml", PROJECT)], &[(name, "5")]));
    let nowhere = |name: &str, why: &str| {
        let hint = "(its parts are the keys of the project file, joined by `__`)";
        let expected = format!("environment variable {name} this variable has no target: {why} {hint}");
        assert_eq!(messages(name), [expected]);
    };
    nowhere("TOOLGATE__TOOLBOX__MCPS__7__MODE", "the list has 2 entries and none is called `7`");
    nowhere("TOOLGATE__TOOLBOX__MCPS__THIRD__MODE", "the list has 2 entries and none is called `THIRD`");
    nowhere("TOOLGATE__TOOLBOX__MAX_CONCURRENT__X", "`X` would be below a single value");
    nowhere("TOOLGATE__TOOLBOX____MODE", "a part of it is empty");
    nowhere("TOOLGATE__", "a part of it is empty");
    // Enough parts to overflow the stack if the path were followed.
    let deep = format!("TOOLGATE{}", "__A".repeat(40_000));
    assert_eq!(messages(&deep).len(), 1);
}

/// Values are hidden even if the path is invalid.
#[test]
fn never_shows_secret_overrides() {
    let variables = [
        ("TOOLGATE__TOOLBOX__MCPS__9__ENV__DB", "first-secret"),
        ("TOOLGATE__TOOLBOX__MCPS__9__API_TOKEN", "second-secret"),
    ];
    let loaded = loaded(&[("toolgate.yaml", PROJECT)], &variables);
    assert_eq!(errors(&loaded).len(), 2);
    assert!(!loaded.report.render().contains("secret"), "{}", loaded.report.render());
}

#[test]
fn registries_are_not_overridden() {
    let loaded = loaded(&[("mcp.json", r#"{"servers": {}}"#)], &[("TOOLGATE__TOOLBOX__MAX_CONCURRENT", "5")]);
    assert_eq!(
        messages(&loaded),
        "warning environment variable TOOLGATE__TOOLBOX__MAX_CONCURRENT environment variable \
         `TOOLGATE__TOOLBOX__MAX_CONCURRENT` overrides nothing (only a project file can be overridden; for a `myai` tree write `APP_MYAI__…`)"
    );
}

#[test]
fn origins_list_every_written_value() {
    let json = config(&loaded(&[("toolgate.yaml", PROJECT)], &[]));
    insta::assert_snapshot!(serde_json::to_string_pretty(&json["origins"]).unwrap(), @r#"
    {
      "limits.max_concurrent": "toolgate.yaml:4:19",
      "name": "toolgate.yaml:2:7",
      "servers.my-first.args": "toolgate.yaml:6:42",
      "servers.my-first.command": "toolgate.yaml:6:33",
      "servers.my-first.mode": "toolgate.yaml:6:53",
      "servers.second.command": "toolgate.yaml:7:31",
      "servers.second.mode": "toolgate.yaml:7:40"
    }
    "#);
}
