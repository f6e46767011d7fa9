//! MCP servers: every mistake is reported once, at its location.

use toolgate_types::ToolLimits;
use toolgate_types::server::ToolMode;

use crate::LoadOutcome;
use crate::test_support::{config, errors, loaded, messages};

/// Returns the messages about a server with these keys, in our own file and in another program's.
fn server(keys: &str) -> Vec<String> {
    let mode = if keys.contains("mode:") { "" } else { "mode: strict, " };
    let text = format!("toolbox:\n  mcps:\n    - {{name: a, {mode}{keys}}}");
    let loaded = loaded(&[("toolgate.yaml", &text)], &[]);
    messages(&loaded).lines().map(|line| line.replace("toolgate.yaml:3:", "")).collect()
}

pub(super) fn good_server(keys: &str) {
    assert_eq!(server(keys), Vec::<String>::new(), "{keys}");
}

pub(super) fn bad_server(keys: &str, expected: &str) {
    let messages = server(keys);
    let [only] = &messages[..] else { panic!("{keys}: {messages:#?}") };
    let (_, message) = only.strip_prefix("error ").unwrap().split_once(' ').unwrap();
    assert_eq!(message.split(" (").next().unwrap(), expected, "{keys}");
}

#[test]
fn checks_urls() {
    for (transport, url) in [
        ("http", "http://localhost:8080/mcp"),
        ("http", "https://example.com"),
        ("http", "http://[::1]:8080/mcp?a=b"),
        ("http", "http://external.com/mcp"),
        ("sse", "https://example.com/sse"),
        ("websocket", "ws://localhost:1"),
        ("websocket", "wss://example.com/mcp"),
    ] {
        good_server(&format!("transport: {transport}, url: '{url}'"));
    }
    let here = " in MCP server `a`";
    bad_server(
        "transport: http, url: 'ws://h'",
        &format!("`ws://h` does not start with `http://` or `https://`{here}"),
    );
    bad_server(
        "transport: sse, url: 'wss://h'",
        &format!("`wss://h` does not start with `http://` or `https://`{here}"),
    );
    bad_server(
        "transport: websocket, url: 'http://h'",
        &format!("`http://h` does not start with `ws://` or `wss://`{here}"),
    );
    bad_server(
        "url: 'file:///etc/passwd'",
        &format!("`file:///etc/passwd` does not start with `http://` or `https://`{here}"),
    );
    bad_server(
        "url: 'localhost:8080'",
        &format!("`localhost:8080` does not start with `http://` or `https://`{here}"),
    );
    bad_server(
        "url: example.com/mcp",
        &format!("`example.com/mcp` is not a URL{here}: relative URL without a base"),
    );
    bad_server("url: ''", &format!("`` is not a URL{here}: relative URL without a base"));
    bad_server("url: 'http://'", &format!("`http://` is not a URL{here}: empty host"));
    bad_server("url: 'http://h:99999'", &format!("`http://h:99999` is not a URL{here}: invalid port number"));
    bad_server("transport: http", &format!("missing key `url`{here}"));
    bad_server("transport: htp, url: 'http://h'", &format!("`htp` is not a transport{here}"));
}

/// Without `transport`, the URL or the program determines it.
#[test]
fn infers_transport() {
    let transport = |keys: &str| {
        let text = format!("toolbox: {{mcps: [{{name: a, mode: strict, {keys}}}]}}");
        config(&loaded(&[("toolgate.yaml", &text)], &[]))["servers"][0]["transport"].clone()
    };
    assert_eq!(transport("command: a"), "stdio");
    assert_eq!(transport("server: a"), "stdio");
    assert_eq!(transport("url: 'http://h'"), "http");
    assert_eq!(transport("url: 'wss://h'"), "websocket");
    for (word, expected) in [("streamable_http", "http"), ("streamable-http", "http"), ("ws", "websocket")] {
        let scheme = if expected == "http" { "http" } else { "ws" };
        assert_eq!(transport(&format!("type: {word}, url: '{scheme}://h'")), expected);
    }
}

#[test]
fn checks_commands() {
    good_server("command: a, args: [1, true, x], env: {A: 1, B: true, C: ~, 'lower-case.dotted': x}");
    bad_server("transport: stdio", "missing key `command` in MCP server `a`");
    bad_server("command: ' '", "`command` is empty in MCP server `a`");
    bad_server("command: a, server: b", "`command` and `server` do not go together in MCP server `a`");
    bad_server(r#"command: "a\0b""#, "the command line holds a NUL character in MCP server `a`");
    bad_server(r#"command: a, args: ["\0"]"#, "the command line holds a NUL character in MCP server `a`");
    bad_server("command: a, args: x", "a string does not fit `args` in MCP server `a`");
    bad_server("command: [a]", "a list does not fit `command` in MCP server `a`");
    bad_server(
        "mode: dynamic, command: a, default_tool_config: [1]",
        "a list does not fit `default_tool_config` in MCP server `a`",
    );
    bad_server("command: a, encoding: klingon", "`klingon` is not an encoding in MCP server `a`");
}

#[test]
fn checks_variable_names() {
    bad_server("command: a, env: {A=B: x}", "`A=B` cannot name a variable in MCP server `a`");
    bad_server("command: a, env: {'': x}", "`` cannot name a variable in MCP server `a`");
    bad_server(r#"command: a, env: {"A\0": x}"#, "`A\0` cannot name a variable in MCP server `a`");
    bad_server(r#"command: a, env: {A: "x\0"}"#, "the variable `A` holds a NUL character in MCP server `a`");
    bad_server("command: a, env: [A]", "a list does not fit `env` in MCP server `a`");
}

#[test]
fn checks_header_names() {
    let url = "url: 'http://h'";
    good_server(&format!(r#"{url}, headers: {{Authorization: Bearer x, X-A.b_c~: "a\tb é"}}"#));
    for name in ["'a b'", "''", "'a:'", "é", "\"a\\t\""] {
        let messages = server(&format!("{url}, headers: {{{name}: x}}"));
        assert!(messages[0].contains("is not the name of a header in MCP server `a`"), "{messages:?}");
    }
    for value in [r#""a\r\nX-Other: b""#, r#""a\0""#, r#""\x01""#, r#""\x7f""#] {
        bad_server(
            &format!("{url}, headers: {{A: {value}}}"),
            "the header `A` holds a control character in MCP server `a`",
        );
    }
}

/// Keys that a transport does not support: an error in our own file, a warning in another program's.
#[test]
fn reports_keys_unsupported_by_transport() {
    for keys in [
        "url: 'http://h'",
        "headers: {}",
        "oauth: {}",
        "tls: {}",
        "sse_read_timeout: 1",
        "terminate_on_close: true",
    ] {
        let key = keys.split(':').next().unwrap();
        bad_server(
            &format!("transport: stdio, command: a, {keys}"),
            &format!("`{key}` does not fit a `stdio` server in MCP server `a`"),
        );
    }
    for keys in ["command: a", "server: a", "args: [a]", "env: {}", "cwd: a", "encoding: utf-8", "config: {}"]
    {
        let key = keys.split(':').next().unwrap();
        bad_server(
            &format!("transport: http, url: 'http://h', {keys}"),
            &format!("`{key}` does not fit an `http` server in MCP server `a`"),
        );
    }
    bad_server(
        "url: 'ws://h', sse_read_timeout: 1",
        "`sse_read_timeout` does not fit a `websocket` server in MCP server `a`",
    );
    bad_server(
        "transport: sse, url: 'http://h', terminate_on_close: true",
        "`terminate_on_close` does not fit an `sse` server in MCP server `a`",
    );
    let theirs = loaded(&[("mcp.json", r#"{"servers": {"a": {"url": "http://h", "env": {}}}}"#)], &[]);
    assert_eq!(
        messages(&theirs),
        "warning mcp.json:1:39 `env` does not fit an `http` server in MCP server `a` (it is not used)"
    );
}

#[test]
fn strict_output_if_configured_or_strict_mode() {
    let strict = |keys: &str| {
        let text = format!("toolbox:\n  mcps:\n    - {{name: a, url: http://localhost:1/mcp, {keys}}}");
        let loaded = loaded(&[("toolgate.yaml", &text)], &[]);
        format!("{} {}", config(&loaded)["servers"][0]["output_validation"], messages(&loaded))
    };
    insta::assert_snapshot!(strict("mode: dynamic, default_tool_config: {}"), @r#""warn""#);
    insta::assert_snapshot!(strict("mode: dynamic, default_tool_config: {}, output_validation: strict"), @r#""strict""#);
    insta::assert_snapshot!(strict("mode: strict"), @r#""strict""#);
    insta::assert_snapshot!(strict("mode: strict, output_validation: warn"), @r#""strict" warning toolgate.yaml:3:79 `output_validation: warn` does nothing with `mode: strict` in MCP server `a` (remove it, or use `mode: dynamic`)"#);
}

/// Loads a project with these servers.
fn mcps(mcps: &str) -> LoadOutcome {
    loaded(&[("toolgate.yaml", &format!("toolbox:\n  mcps:\n{mcps}"))], &[])
}

fn only_mode(loaded: &LoadOutcome) -> &ToolMode {
    let Some(config) = &loaded.config else { panic!("refused:\n{}", messages(loaded)) };
    &config.servers[0].mode
}

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
}
