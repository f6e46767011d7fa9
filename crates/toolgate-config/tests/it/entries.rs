//! Rules for single servers and tools: every mistake is reported once, at its location.

use std::os::unix::fs::symlink;

use toolgate_config::load;

use super::{config, environment, errors, loaded, messages, project};

/// Returns the messages about a server with these keys, in our own file and in another program's.
fn server(keys: &str) -> Vec<String> {
    let mode = if keys.contains("mode:") { "" } else { "mode: strict, " };
    let text = format!("toolbox:\n  mcps:\n    - {{name: a, {mode}{keys}}}");
    let loaded = loaded(&[("toolgate.yaml", &text)], &[]);
    messages(&loaded).lines().map(|line| line.replace("toolgate.yaml:3:", "")).collect()
}

fn good_server(keys: &str) {
    assert_eq!(server(keys), Vec::<String>::new(), "{keys}");
}

fn bad_server(keys: &str, expected: &str) {
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
    bad_server("command: a, encoding: utf-16", "`utf-16` is not an encoding in MCP server `a`");
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

#[test]
fn checks_oauth() {
    let login = |keys: &str| format!("url: 'http://h', oauth: {{{keys}}}");
    good_server(&login(""));
    good_server(&login("client_id: a, client_secret: b, scopes: [a, 'b:c'], redirect_port: 8080"));
    good_server(&login("grant: client_credentials, client_id: a, private_key: b"));
    good_server(&login("client_metadata_url: 'https://example.com/client.json'"));
    bad_server(&login("client_secret: b"), "`client_secret` without `client_id` in MCP server `a`");
    for keys in ["", ", client_id: a", ", private_key: b"] {
        bad_server(
            &login(&format!("grant: client_credentials{keys}")),
            "`grant: client_credentials` without credentials in MCP server `a`",
        );
    }
    for url in ["http://example.com/client.json", "https://example.com", "client.json"] {
        bad_server(
            &login(&format!("client_metadata_url: '{url}'")),
            &format!("`{url}` is not the URL of a client in MCP server `a`"),
        );
    }
    for port in ["0", "65536", "-1", "x"] {
        bad_server(&login(&format!("redirect_port: {port}")), &format!("`{port}` is not a port in oauth"));
    }
    bad_server(&login("grant: password"), "`password` is not a grant in oauth");
    bad_server("url: 'ws://h', oauth: {}", "`oauth` does not fit a `websocket` server in MCP server `a`");
}

#[test]
fn checks_tls() {
    let messages = |url: &str, keys: &str| {
        let text =
            format!("toolbox:\n  mcps:\n    - {{name: a, mode: strict, url: '{url}', tls: {{{keys}}}}}");
        let files = [("toolgate.yaml", text.as_str()), ("a.pem", ""), ("tls/b.pem", "")];
        messages(&loaded(&files, &[("DIR", "tls")])).replace("error toolgate.yaml:3:", "")
    };
    let secure = |keys: &str| messages("https://h", keys);
    for keys in ["", "ca: a.pem", "cert: a.pem, key: '${DIR}/b.pem'", "ca: a.pem, crl: tls/b.pem"] {
        assert_eq!(secure(keys), "", "{keys}");
        assert_eq!(messages("wss://h", keys), "", "{keys}");
    }
    let bad = ["cert: a.pem", "key: a.pem", "crl: a.pem", "ca: '${DIR}/gone.pem'", "ca: tls", "cer: a.pem"];
    let mut all: Vec<_> = bad.into_iter().map(secure).collect();
    all.push(messages("http://h", "ca: a.pem"));
    insta::assert_snapshot!(all.join("\n"), @"
    55 `cert` without `key` in MCP server `a` (a certificate and its key go together; they may be in one file)
    55 `key` without `cert` in MCP server `a` (a certificate and its key go together; they may be in one file)
    55 `crl` without `ca` in MCP server `a` (add the `ca` that issued the list)
    59 there is no file `${DIR}/gone.pem` for `ca` in MCP server `a` (create it, or correct the path; paths start at the project folder)
    59 there is no file `tls` for `ca` in MCP server `a` (create it, or correct the path; paths start at the project folder)
    55 unknown key `cer` in tls (did you mean `cert`?)
    48 `tls` with a URL that does not use TLS in MCP server `a` (make it `https://` or `wss://`, or remove `tls`)
    ");
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
fn reports_unknown_keys() {
    bad_server("command: a, comand: b", "unknown key `comand` in MCP server `a`");
    let messages = server("command: a, max_instances: 5");
    assert!(
        messages[0].ends_with("(it is a key of tool settings and of default_tool_config and of tool)"),
        "{messages:?}"
    );
    bad_server(
        "command: a, env_file: [], envFile: []",
        "`env_file` and `envFile` are the same key in MCP server `a`",
    );
    // A very long key is not compared with every known key.
    let messages = server(&format!("command: a, {}: b", "x".repeat(100_000)));
    assert!(!messages[0].contains("did you mean"));
    let theirs = loaded(&[("mcp.json", r#"{"servers": {"a": {"command": "b", "comand": "c"}}}"#)], &[]);
    assert_eq!(
        super::messages(&theirs),
        "note mcp.json:1:36 `comand` in MCP server `a` is not used (did you mean `command`?)"
    );
}

#[test]
fn truncates_long_messages() {
    let long = "x".repeat(10_000);
    for keys in [format!("{long}: 1"), format!("startup: {long}"), format!("description: '${{{long}.}}'")] {
        let messages = server(&format!("command: a, {keys}"));
        assert!(messages.len() == 1 && messages[0].len() < 1000, "{}", messages[0].len());
    }
}

/// A mistake in a shared anchor is reported once per use, at its location.
#[test]
fn mistakes_in_anchors_keep_their_location() {
    let text = "
x-shared: &shared
  mode: strict
  startup: lazzy
toolbox:
  mcps:
    - {<<: *shared, name: a, command: a}
    - {<<: *shared, name: b, command: b}
";
    assert_eq!(
        errors(&loaded(&[("toolgate.yaml", text)], &[])),
        [
            "toolgate.yaml:4:12 `lazzy` is not a startup mode in MCP server `a` (did you mean `lazy`?)",
            "toolgate.yaml:4:12 `lazzy` is not a startup mode in MCP server `b` (did you mean `lazy`?)",
        ]
    );
}

// Tools.

/// Returns the messages about a tool with these keys in addition to the three required ones.
fn tool(keys: &str) -> Vec<String> {
    let text = format!(
        r#"{{"tools": [{{"name": "t", "description": "d", "input_schema": {{"type": "object"}}{}{keys}}}]}}"#,
        if keys.is_empty() { "" } else { ", " }
    );
    let loaded = loaded(&[("tools/tools.json", &text), ("tools/t.py", ""), ("tools/sub/a.py", "")], &[]);
    messages(&loaded).lines().map(str::to_owned).collect()
}

fn good_tool(keys: &str) {
    assert_eq!(tool(keys), Vec::<String>::new(), "{keys}");
}

fn bad_tool(keys: &str, expected: &str) {
    let messages = tool(keys);
    let [only] = &messages[..] else { panic!("{keys}: {messages:#?}") };
    let (_, message) = only.strip_prefix("error tools/tools.json:").unwrap().split_once(' ').unwrap();
    assert_eq!(message.split(" (").next().unwrap(), expected, "{keys}");
}

#[test]
fn scripts_stay_in_registry_folder() {
    good_tool("");
    good_tool(r#""script_path": "sub/a.py""#);
    good_tool(r#""config": {"scriptPath": "t.py", "function": "main"}"#);
    let long = format!("{}.py", "x".repeat(300));
    for (path, why) in [
        ("../../bin/sh", "it points outside the folder"),
        ("a/../b", "it points outside the folder"),
        ("/bin/sh", "it points outside the folder"),
        ("./t.py", "it points outside the folder"),
        ("sub/./a.py", "it points outside the folder"),
        ("x\\u0000.py", "it is not the name of a file"),
        ("", "it is not the name of a file"),
        ("con.py ", "it has white space at an end"),
        ("sub /a.py", "it has white space at an end"),
        (&long, "it is too long"),
    ] {
        let messages = tool(&format!(r#""script_path": "{path}""#));
        assert_eq!(messages.len(), 1, "{path}: {messages:?}");
        assert!(
            messages[0].contains(&format!("cannot be the script in tool `t`: {why}")),
            "{path}: {messages:?}"
        );
    }
}

#[test]
fn rejects_symlinks_out_of_the_folder() {
    let text = |script: &str| {
        format!(
            r#"{{"tools": [{{"name": "t", "description": "d", "input_schema": {{}}, "script_path": "{script}"}}]}}"#
        )
    };
    let messages = |script: &str| {
        let folder =
            project(&[("tools/tools.json", &text(script)), ("tools/real.py", ""), ("outside/o.py", "")]);
        let tools = folder.path().join("tools");
        symlink("real.py", tools.join("inside.py")).unwrap();
        symlink("../outside/o.py", tools.join("out.py")).unwrap();
        symlink("../outside", tools.join("folder")).unwrap();
        symlink("nowhere.py", tools.join("dangling.py")).unwrap();
        super::messages(&load(folder.path(), None, &environment(&[])))
    };
    assert_eq!(messages("inside.py"), "");
    for script in ["out.py", "folder/o.py"] {
        let messages = messages(script);
        assert!(
            messages.contains("cannot be the script in tool `t`: a link in it points outside the folder"),
            "{messages}"
        );
    }
    assert!(messages("dangling.py").starts_with("warning"));
}

/// The registry itself may be behind a symbolic link.
#[test]
fn project_behind_a_symlink() {
    let tools = r#"{"tools": [{"name": "t", "description": "d", "input_schema": {}}]}"#;
    let folder = project(&[("real/tools/tools.json", tools), ("real/tools/t.py", "")]);
    symlink("real", folder.path().join("linked")).unwrap();
    let loaded = load(&folder.path().join("linked"), None, &environment(&[]));
    assert_eq!(super::messages(&loaded), "");
}

#[test]
fn warns_about_missing_script() {
    let messages = tool(r#""script_path": "none.py""#);
    assert_eq!(
        messages,
        ["warning tools/tools.json:1:97 the script `none.py` of tool `t` does not exist (create it, or \
          correct `script_path`; until then calls fail with `tool_execution_error`)"]
    );
}

#[test]
fn checks_rules_between_tool_keys() {
    good_tool(r#""cacheable": true, "cache_ttl": 60, "category": "query""#);
    bad_tool(r#""cacheable": true"#, "`cacheable` needs `cache_ttl` in tool `t`");
    bad_tool(r#""cacheable": true, "cache_ttl": 0"#, "`0` is not a duration in tool `t`");
    bad_tool(
        r#""cacheable": true, "cache_ttl": 60, "category": "mutation""#,
        "a mutation cannot be cached in tool `t`",
    );
    assert!(tool(r#""cache_ttl": 60"#)[0].starts_with("warning "));
    bad_tool(
        r#""script_path": "t.py", "config": {"script_path": "t.py"}"#,
        "`script_path` is given inside and outside of `config` in tool `t`",
    );
    bad_tool(r#""permissions": ["everything"]"#, "`everything` is not a permission in tool `t`");
    bad_tool(r#""rate_limit": {"max_calls": 5}"#, "missing key `window_ms` in rate_limit");
    let deprecated = |replacement: &str, day: &str| {
        format!(r#""deprecated": {{"since": "1", "replacement": "{replacement}", "removal_date": "{day}"}}"#)
    };
    good_tool(&deprecated("u", "2027-06-30T00:00:00Z"));
    bad_tool(&deprecated("t", "2027-06-30"), "tool `t` cannot replace itself");
    bad_tool(&deprecated("u", "2027-02-30"), "`2027-02-30` is not a date in tool `t`");
}

/// Loads a tool with these keys and settings.
fn set(tool: &str, settings: &str) -> toolgate_config::LoadOutcome {
    let tools = format!(r#"{{"tools": [{{"name": "t", "description": "d", "input_schema": {{}}{tool}}}]}}"#);
    let project =
        format!("registries: {{tools: tools.json}}\ntoolbox:\n  tools:\n    - {{name: t, {settings}}}\n");
    loaded(&[("toolgate.yaml", &project), ("tools.json", &tools), ("t.py", "")], &[])
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

#[test]
fn checks_tool_schemas() {
    bad_tool(r#""output_schema": {"type": "objct"}"#, "`objct` is not a type of JSON in tool `t`");
    good_tool(r#""output_schema": {"type": "array"}"#);
    bad_tool(r#""output_schema": []"#, "a list does not fit `output_schema` in tool `t`");
    bad_tool(
        r#""output_schema": {"$ref": "https://example.com/schema.json"}"#,
        "`https://example.com/schema.json` cannot be resolved in the JSON Schema in tool `t`",
    );
    let deep = format!("{}{}", r#"{"items": "#.repeat(70), "}".repeat(70)).replace(": }", ": {}}");
    assert!(tool(&format!(r#""output_schema": {deep}"#))[0].contains("more than 64 levels of nesting"));
}

/// Other mistakes of a tool without a description are reported as well.
#[test]
fn reports_every_mistake_of_a_tool() {
    let text = r#"{"tools": [{
        "name": "t",
        "input_schema": {"type": "array"},
        "script_path": "../t.py",
        "cacheable": true,
        "tages": []
    }, {
        "name": "t t",
        "description": "d",
        "inputs": {"type": "strng"}
    }]}"#;
    insta::assert_snapshot!(messages(&loaded(&[("tools.json", text)], &[])), @r#"
    error tools.json:2:9 missing key `description` in tool `t` (add `description`: a string)
    error tools.json:3:34 arguments are an object, not "array" in tool `t` (write `"type": "object"` and name the arguments in `properties`)
    error tools.json:4:24 `../t.py` cannot be the script in tool `t`: it points outside the folder (scripts are files in the folder of the registry, or in a folder there)
    error tools.json:5:22 `cacheable` needs `cache_ttl` in tool `t` (add `"cache_ttl": 3600`, in seconds)
    error tools.json:6:9 unknown key `tages` in tool `t` (did you mean `tags`?)
    error tools.json:8:17 `t t` is not a tool's name in tool `t t` (a tool's name is made of letters, digits, `_`, `.` and `-`)
    error tools.json:10:28 `strng` is not a type of JSON in tool (did you mean `string`?)
    "#);
}

#[test]
fn rejects_duplicate_tools() {
    let one = r#"{"name": "t", "description": "d", "input_schema": {}}"#;
    let text = format!("{{\"tools\": [\n{one},\n{one}]}}");
    let messages = errors(&loaded(&[("tools.json", &text), ("t.py", "")], &[]));
    assert_eq!(
        messages,
        ["tools.json:3:10 tool `t` is defined twice (the other is at tools.json:2:10; rename or remove one)"]
    );
}

// Files.

#[test]
fn named_registry_must_exist_and_be_valid() {
    let text = "registries: {tools: tools/tools.json, mcp: mcp.json}";
    insta::assert_snapshot!(messages(&loaded(&[("toolgate.yaml", text)], &[])), @"
    error toolgate.yaml:1:21 the registry `tools/tools.json` does not exist (create it, or let `toolgate init` write a project to start from)
    error toolgate.yaml:1:44 the registry `mcp.json` does not exist (create it, or let `toolgate init` write a project to start from)
    ");
    let files = [("toolgate.yaml", text), ("tools/tools.json", "{\"tools\": ["), ("mcp.json", "\u{feff}{}")];
    insta::assert_snapshot!(messages(&loaded(&files, &[])), @"
    error tools/tools.json:1:11 not valid JSON: unterminated array (this is never closed)
    error mcp.json:1:1 the file starts with a byte order mark (save it as UTF-8 without a byte order mark)
    ");
}

#[test]
fn reports_unreadable_files() {
    let folder = project(&[("toolgate.yaml", ""), ("folder.yaml/x", "")]);
    let load = |name: &str| super::messages(&load(folder.path(), Some(name.as_ref()), &environment(&[])));
    assert_eq!(
        load("none.yaml"),
        "error the file `none.yaml` does not exist (paths start at the project folder, which `-C` names)"
    );
    assert_eq!(load("folder.yaml"), "error `folder.yaml` cannot be read: it is a folder");
    fs_err::write(folder.path().join("latin.yaml"), b"a: caf\xe9").unwrap();
    assert_eq!(
        load("latin.yaml"),
        "error latin.yaml:1:7 the file is not UTF-8 from here on (save it as UTF-8)"
    );
    let large = fs_err::File::create(folder.path().join("large.yaml")).unwrap();
    large.set_len((64 << 20) + 1).unwrap();
    assert_eq!(load("large.yaml"), "error `large.yaml` cannot be read: it is larger than 64 MiB");
    // A device has no size and no end.
    assert_eq!(load("/dev/zero"), "error `/dev/zero` cannot be read: it is larger than 64 MiB");
}

#[test]
fn reports_missing_project() {
    let folder = project(&[]);
    let messages = super::messages(&load(folder.path(), None, &environment(&[])));
    assert!(messages.contains("there is no project in") && messages.contains("toolgate init"), "{messages}");
    let messages = super::messages(&load(&folder.path().join("none"), None, &environment(&[])));
    assert!(messages.contains("does not exist"), "{messages}");
}

/// A large registry loads fast: no rule compares each tool with every other.
#[test]
fn loads_ten_thousand_tools_fast() {
    let tool = |number: usize| {
        format!(
            r#"{{"name":"tool-{number}","description":"Tool number {number}.","input_schema":{{"type":"object","properties":{{"a":{{"type":"string"}}}}}},"script_path":"t.py","tags":["x"]}}"#
        )
    };
    let tools: Vec<_> = (0..10_000).map(tool).collect();
    let settings: String =
        (0..10_000).map(|number| format!("{{name: tool-{number}, timeout: 5s}}, ")).collect();
    let text = format!("{{\"tools\":[{}]}}", tools.join(","));
    let project = format!("registries: {{tools: tools.json}}\ntoolbox: {{tools: [{settings}]}}");
    let loaded = loaded(&[("toolgate.yaml", &project), ("tools.json", &text), ("t.py", "")], &[]);
    assert_eq!(loaded.config.unwrap().tools.len(), 10_000);
}
