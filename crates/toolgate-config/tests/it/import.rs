//! Imports of other programs' servers: the planned changes, and the handling of plain-text secrets.

use toolgate_config::{Environment, ImportPlan, ImportSource, add_servers, plan_import};

use super::{environment, fixtures, project};

fn plan(files: &[(&str, &str)]) -> ImportPlan {
    let folder = project(files);
    let paths: Vec<_> = files.iter().map(|(name, _)| folder.path().join(name)).collect();
    let sources: Vec<_> = paths.into_iter().map(|path| ImportSource { path, client: None }).collect();
    plan_import(folder.path(), &sources, &[], &Environment::default())
}

/// Returns the only server, and the lines for `.env`.
fn single_server(import: &ImportPlan) -> (String, Vec<String>) {
    let lines = import.secrets.iter().map(|(name, value)| format!("{name}={}", value.expose())).collect();
    (import.servers[0].entry.to_string(), lines)
}

fn check(entry: &str, expected: &str, env: &[&str]) {
    let import = plan(&[("mcp.json", &format!(r#"{{"mcpServers": {{"my-server": {entry}}}}}"#))]);
    let (entry, lines) = single_server(&import);
    assert_eq!((entry.as_str(), lines), (expected, env.iter().map(|line| (*line).to_owned()).collect()));
    let report = format!("{} {:?}", import.report.render(), import.secrets);
    assert!(env.iter().all(|line| !report.contains(line.split_once('=').unwrap().1)), "{report}");
}

#[test]
fn replaces_plain_secrets_by_references() {
    check(
        r#"{"command":"a","env":{"API_KEY":"abc","LEVEL":"info","DB":"postgres://u:hunter2@h/db"}}"#,
        r#"{"command":"a","env":{"API_KEY":"${API_KEY}","LEVEL":"info","DB":"${DB}"}}"#,
        &["API_KEY=abc", "DB=postgres://u:hunter2@h/db"],
    );
    check(
        r#"{"url":"https://h/mcp","headers":{"Authorization":"Bearer abcdefgh","X-Region":"eu"}}"#,
        r#"{"url":"https://h/mcp","headers":{"Authorization":"Bearer ${MY_SERVER_AUTHORIZATION}","X-Region":"eu"}}"#,
        &["MY_SERVER_AUTHORIZATION=abcdefgh"],
    );
    check(
        r#"{"url":"https://h/mcp?apiKey=hunter2&region=eu"}"#,
        r#"{"url":"https://h/mcp?apiKey=${MY_SERVER_APIKEY}&region=eu"}"#,
        &["MY_SERVER_APIKEY=hunter2"],
    );
    check(
        r#"{"command":"a","args":["--token","hunter2","--api-key=hunter3","--port","8080","sk-abcdefghijklmnop1234"]}"#,
        r#"{"command":"a","args":["--token","${MY_SERVER_TOKEN}","--api-key=${MY_SERVER_API_KEY}","--port","8080","${MY_SERVER_SECRET}"]}"#,
        &["MY_SERVER_TOKEN=hunter2", "MY_SERVER_API_KEY=hunter3", "MY_SERVER_SECRET=sk-abcdefghijklmnop1234"],
    );
}

#[test]
fn keeps_references() {
    let entry = r#"{"command":"a","args":["--token","${TOKEN}"],"env":{"API_KEY":"${API_KEY:-none}"}}"#;
    check(entry, entry, &[]);
}

#[test]
fn same_value_gets_same_variable() {
    let entry = |key: &str| format!(r#"{{"command": "a", "env": {{"API_KEY": "{key}"}}}}"#);
    let text = format!(
        r#"{{"mcpServers": {{"a": {}, "b": {}, "c": {}}}}}"#,
        entry("one"),
        entry("one"),
        entry("two")
    );
    let import = plan(&[("mcp.json", &text)]);
    let names: Vec<_> = import.secrets.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["API_KEY", "API_KEY_2"]);
    assert_eq!(import.servers[2].entry["env"]["API_KEY"], "${API_KEY_2}");
}

/// Imports the files of every client. The resulting `mcp.json` loads.
#[test]
fn imports_every_client() {
    let clients = [
        ("clients", "vscode-mcp.json"),
        ("clients", "claude_desktop_config.json"),
        ("clients", "cursor-mcp.json"),
        ("clients", "config.toml"),
        ("clients", "goose.yaml"),
        ("agent", "holodeck.yaml"),
    ];
    for (folder, file) in clients {
        let source = ImportSource { path: fixtures(folder).join(file), client: None };
        let import = plan_import(&fixtures(folder), &[source], &[], &environment(&[]));
        let (text, left) = add_servers("{}", &import, false).unwrap();
        assert_eq!(left, Vec::<String>::new());
        insta::assert_snapshot!(
            format!("import_{}", file.split('.').next().unwrap()),
            format!("{text}---\n{}", messages(&import))
        );
    }
}

fn messages(import: &ImportPlan) -> String {
    let entries = serde_json::to_value(import.report.entries()).unwrap();
    let line = |entry: &serde_json::Value| {
        format!("{} {}", entry["severity"].as_str().unwrap(), entry["message"].as_str().unwrap())
    };
    entries.as_array().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn keeps_existing_servers() {
    let before = "{\n  // mine\n  \"servers\": {\n    \"a\": { \"command\": \"mine\" } // too\n  }\n}\n";
    let import = plan(&[("mcp.json", r#"{"servers": {"a": {"command": "theirs"}, "b": {"command": "b"}}}"#)]);
    let (text, left) = add_servers(before, &import, false).unwrap();
    assert_eq!(left, ["a"]);
    assert!(
        text.contains("// mine") && text.contains("// too") && text.contains(r#""command": "mine""#),
        "{text}"
    );
    assert!(text.contains(r#""b": "#), "{text}");
    let (text, left) = add_servers(before, &import, true).unwrap();
    assert_eq!(left, Vec::<String>::new());
    assert!(text.contains(r#""command": "theirs""#), "{text}");
    assert!(add_servers("[]", &import, false).is_err());
    assert!(add_servers("{", &import, false).is_err());
}
