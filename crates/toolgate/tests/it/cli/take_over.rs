//! `connect CLIENT --take-over` and `--undo`: the servers of a client move behind Toolgate, and back.

use insta::assert_snapshot;
use serde_json::{Value as Json, json};

use crate::support::program::Program;
use crate::support::test_server::testkit;

/// Text of a config file with a server, and a secret in plain text.
fn servers(root: &str) -> String {
    format!(
        "{{\n  // Mine.\n  \"{root}\": {{\n    \"kit\": {{ \"command\": \"{}\", \"args\": [\"good\"], \"env\": {{ \"API_KEY\": \"hunter2hunter2\" }} }},\n    \"web\": {{ \"url\": \"http://127.0.0.1:9/mcp\", \"enabled\": false }}\n  }}\n}}\n",
        testkit().display()
    )
}

fn neutral(program: &Program, text: &str) -> String {
    text.replace(&program.project.display().to_string(), "[project]")
        .replace(&program.home.display().to_string(), "[home]")
        .replace(env!("CARGO_BIN_EXE_toolgate"), "[toolgate]")
        .replace(&testkit().display().to_string(), "testkit")
}

#[test]
fn servers_move_behind_toolgate_and_back() {
    let config = servers("mcpServers");
    let program = Program::new(&[("~/.cursor/mcp.json", &config)]);
    let looked = program.run("connect cursor --take-over --dry-run");
    assert_eq!((looked.code, program.read("~/.cursor/mcp.json")), (0, config.clone()), "{looked}");
    assert!(!program.path("mcp.json").exists() && !program.path(".toolgate").exists());
    let done = program.run("connect cursor --take-over");
    assert_snapshot!(neutral(&program, &done.to_string()), @r#"
    exit code 0
    ----- stdout
    --- mcp.json
    @@ -0,0 +1,15 @@
    +{
    +  "servers": {
    +    "kit": {
    +      "command": "testkit",
    +      "args": ["good"],
    +      "env": {
    +        "API_KEY": "${API_KEY}"
    +      }
    +    },
    +    "web": {
    +      "url": "http://127.0.0.1:9/mcp",
    +      "enabled": false
    +    }
    +  }
    +}
    --- [home]/.cursor/mcp.json
    @@ -4,2 +4,4 @@
    -    "kit": { "command": "testkit", "args": ["good"], "env": { "API_KEY": "***" } },
    -    "web": { "url": "http://127.0.0.1:9/mcp", "enabled": false }
    +    "toolgate": {
    +      "command": "[toolgate]",
    +      "args": ["-C", "[project]", "stdio"]
    +    }
    ----- stderr
    2 servers of cursor moved behind Toolgate
    next: restart the client; `toolgate connect cursor --undo` moves them back
    "#);
    assert_snapshot!(neutral(&program, &program.read("~/.cursor/mcp.json")), @r#"
    {
      // Mine.
      "mcpServers": {
        "toolgate": {
          "command": "[toolgate]",
          "args": ["-C", "[project]", "stdio"]
        }
      }
    }
    "#);
    assert!(!done.to_string().contains("hunter2hunter2") && program.read(".env").contains("hunter2hunter2"));
    // The servers work, once, through Toolgate.
    let tools: Vec<Json> = serde_json::from_str(&program.run("tools list --json").stdout).expect("a list");
    assert_eq!(tools.len(), 5);
    assert!(program.run("connect cursor --take-over").stderr.contains("are behind Toolgate already"));
    let undone = program.run("connect cursor --undo");
    assert_snapshot!(neutral(&program, &undone.to_string()), @r"
    exit code 0
    ----- stdout
    ----- stderr
    the configuration of cursor is as it was before
    next: restart the client
    ");
    assert_eq!(program.read("~/.cursor/mcp.json"), config);
    assert!(!program.path("mcp.json").exists());
    assert_snapshot!(program.run("connect cursor --undo"), @r"
    exit code 1
    ----- stdout
    ----- stderr
    error: nothing was taken over from cursor here
    hint: run it in the project of the take-over, or name it with `-C`
    ");
}

#[test]
fn every_client_can_be_taken_over() {
    let toml = format!(
        "model = \"x\"\n\n[mcp_servers.kit]\ncommand = \"{}\"\nargs = [\"good\"]\n",
        testkit().display()
    );
    let goose = format!(
        "GOOSE_MODEL: x\nextensions:\n  kit:\n    type: stdio\n    cmd: {}\n    args: [good]\n  developer:\n    type: builtin\n",
        testkit().display()
    );
    let claude = |project: &str| {
        json!({ "projects": { project: { "mcpServers": { "kit": { "command": testkit(), "args": ["good"] } } } } }).to_string()
    };
    for (client, file, text) in [
        ("vscode", "~/.config/Code/User/mcp.json", servers("servers")),
        ("claude-desktop", "~/.config/Claude/claude_desktop_config.json", servers("mcpServers")),
        ("claude-code", "~/.claude.json", String::new()),
        ("codex", "~/.codex/config.toml", toml),
        ("gemini", "~/.gemini/settings.json", servers("mcpServers")),
        ("windsurf", "~/.codeium/windsurf/mcp_config.json", servers("mcpServers")),
        ("zed", "~/.config/zed/settings.json", servers("context_servers")),
        ("goose", "~/.config/goose/config.yaml", goose),
    ] {
        let program = Program::new(&[]);
        let text =
            if client == "claude-code" { claude(&program.project.display().to_string()) } else { text };
        program.write(file, &text);
        let done = program.run(&format!("import {client} --take-over"));
        assert_eq!(done.code, 0, "{client}: {done}");
        let left = program.read(file);
        assert!(
            !left.contains("kit\"") && !left.contains("kit:") && left.contains("stdio"),
            "{client}: {left}"
        );
        let registry: Json = serde_json::from_str(&program.read("mcp.json")).expect("JSON");
        assert_eq!(registry["servers"]["kit"]["args"], json!(["good"]), "{client}: {registry}");
        assert_eq!(program.run(&format!("connect {client} --undo")).code, 0);
        assert_eq!(program.read(file), text, "{client}");
    }
}

#[test]
fn all_clients_at_once() {
    let program = Program::new(&[
        ("~/.cursor/mcp.json", &servers("mcpServers")),
        (
            ".vscode/settings.json",
            r#"{"editor.tabSize": 2, "mcp": {"servers": {"old": {"command": "old-server"}}}}"#,
        ),
    ]);
    let looked = program.run("import --all --dry-run --json").json();
    let names: Vec<_> =
        looked["taken"].as_array().expect("a list").iter().map(|server| &server["name"]).collect();
    assert_eq!(names, ["old", "kit", "web"], "{looked}");
    assert_eq!(program.run("import --all --take-over").code, 0);
    assert!(!program.read(".vscode/settings.json").contains("old-server"));
    assert!(program.read(".vscode/settings.json").contains("tabSize"));
    assert!(!program.read("~/.cursor/mcp.json").contains("127.0.0.1:9"));
}

#[test]
fn nothing_is_written_unless_everything_can_move() {
    let files = [
        ("~/.cursor/mcp.json", servers("mcpServers")),
        (".cursor/mcp.json", r#"{"mcpServers": {"kit": {"command": "other"}}}"#.to_owned()),
    ];
    let program = Program::new(&[(files[0].0, &files[0].1), (files[1].0, &files[1].1)]);
    let before = program.files();
    assert_snapshot!(neutral(&program, &program.run("connect cursor --take-over").stderr), @r#"
    note: MCP server `kit` was already imported from .cursor/mcp.json
      --> [home]/.cursor/mcp.json:4:5
    4 |     "kit": { "command": "testkit", "args": ["good"], "env": { "API_KEY": "***" } },
      |     ^^^^^

    error: `kit` is in several files with different settings, one of them [home]/.cursor/mcp.json; nothing was written
    hint: rename one of them in the client
    "#);
    assert!(program.files() == before);
    let program = Program::new(&[
        (files[0].0, &files[0].1),
        ("mcp.json", r#"{"servers": {"kit": {"command": "mine"}}}"#),
    ]);
    let before = program.files();
    assert_snapshot!(neutral(&program, &program.run("connect cursor --take-over").stderr), @r"
    error: `kit` is already in mcp.json with other settings; nothing was written
    hint: use `--replace` to overwrite it, or rename it in the client
    ");
    assert!(program.files() == before);
    let program = Program::new(&[(files[0].0, &files[0].1), ("toolgate.yaml", "name: x\n")]);
    let before = program.files();
    assert_snapshot!(neutral(&program, &program.run("connect cursor --take-over").stderr), @r"
    error: toolgate.yaml does not use mcp.json; nothing was written
    hint: add `registries: { mcp: mcp.json }` to it, then `toolgate check`
    ");
    assert!(program.files() == before);
    // An undo overwrites no later change.
    let program = Program::new(&[(files[0].0, &files[0].1)]);
    assert_eq!(program.run("connect cursor --take-over").code, 0);
    program.write("~/.cursor/mcp.json", "{}");
    assert_snapshot!(neutral(&program, &program.run("connect cursor --undo").stderr), @r"
    error: [home]/.cursor/mcp.json changed since; nothing was written
    hint: undo your change first, or edit it by hand: the old text is in .toolgate/take-over-cursor.json
    ");
    assert_eq!(program.read("~/.cursor/mcp.json"), "{}");
}
