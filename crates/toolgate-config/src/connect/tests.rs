//! Adds and removes the entry of each client.

use super::*;

fn stdio() -> ConnectMethod {
    ConnectMethod::Stdio {
        command: "/opt/toolgate".to_owned(),
        arguments: ["-C", "/srv/gate", "stdio"].map(str::to_owned).to_vec(),
    }
}

fn http() -> ConnectMethod {
    ConnectMethod::Http { url: "http://127.0.0.1:7332/mcp".to_owned() }
}

/// Connects twice, disconnects, and returns the text in between.
fn check(client: ClientProgram, text: &str, method: &ConnectMethod) -> String {
    let connected = connect(client, text, "toolgate", method, false).unwrap();
    let again = connect(client, &connected, "toolgate", method, false).unwrap();
    assert_eq!(again, connected, "a second time changes nothing");
    let other = if matches!(method, ConnectMethod::Http { .. }) { stdio() } else { http() };
    // Our own entry may be replaced, and disconnecting restores the original text.
    if let Ok(changed) = connect(client, &connected, "toolgate", &other, false) {
        assert_eq!(connect(client, &changed, "toolgate", method, false).unwrap(), connected);
    }
    let undone = disconnect(client, &connected, "toolgate", false).unwrap().unwrap();
    assert_eq!(undone, text);
    assert_eq!(disconnect(client, text, "toolgate", false).unwrap(), None);
    connected
}

#[test]
fn vscode_with_comments() {
    let text = r#"{
  // What everybody uses.
  "inputs": [],
  "servers": {
    "files": { "command": "files" }, // Mine.
  },
}
"#;
    insta::assert_snapshot!(check(ClientProgram::VsCode, text, &stdio()), @r#"
    {
      // What everybody uses.
      "inputs": [],
      "servers": {
        "files": { "command": "files" }, // Mine.
        "toolgate": {
          "type": "stdio",
          "command": "/opt/toolgate",
          "args": ["-C", "/srv/gate", "stdio"]
        },
      },
    }
    "#);
    insta::assert_snapshot!(check(ClientProgram::VsCode, text, &http()), @r#"
    {
      // What everybody uses.
      "inputs": [],
      "servers": {
        "files": { "command": "files" }, // Mine.
        "toolgate": {
          "type": "http",
          "url": "http://127.0.0.1:7332/mcp",
          "headers": {
            "X-API-Key": "${env:TOOLGATE_API_KEY}"
          }
        },
      },
    }
    "#);
}

#[test]
fn claude_code_with_other_keys() {
    let text = "{\n  \"numStartups\": 12,\n  \"mcpServers\": {\n    \"files\": {\n      \"command\": \"files\"\n    }\n  },\n  \"projects\": {}\n}";
    insta::assert_snapshot!(check(ClientProgram::ClaudeCode, text, &http()), @r#"
    {
      "numStartups": 12,
      "mcpServers": {
        "files": {
          "command": "files"
        },
        "toolgate": {
          "type": "http",
          "url": "http://127.0.0.1:7332/mcp",
          "headers": {
            "X-API-Key": "${TOOLGATE_API_KEY}"
          }
        }
      },
      "projects": {}
    }
    "#);
}

#[test]
fn claude_desktop() {
    let text = "{\n\t\"globalShortcut\": \"\",\n\t\"mcpServers\": {}\n}\n";
    insta::assert_snapshot!(check(ClientProgram::ClaudeDesktop, text, &stdio()), @r#"
    {
    	"globalShortcut": "",
    	"mcpServers": {
    		"toolgate": {
    			"command": "/opt/toolgate",
    			"args": ["-C", "/srv/gate", "stdio"]
    		}
    	}
    }
    "#);
    let refused = connect(ClientProgram::ClaudeDesktop, text, "toolgate", &http(), false).unwrap_err();
    assert!(matches!(refused, ConnectError::NoHttp("claude-desktop")), "{refused}");
}

#[test]
fn cursor() {
    let text = r#"{"mcpServers":{"files":{"command":"files"}}}"#;
    insta::assert_snapshot!(check(ClientProgram::Cursor, text, &http()), @r#"{"mcpServers":{"files":{"command":"files"}, "toolgate":{"url":"http://127.0.0.1:7332/mcp","headers":{"X-API-Key":"${env:TOOLGATE_API_KEY}"}}}}"#);
}

#[test]
fn codex_with_other_tables() {
    let text = "# Mine.\nmodel = \"gpt\"\n\n[mcp_servers.files] # Files.\ncommand = \"files\"\n\n[tui]\nnotifications = true # Loud.\n";
    insta::assert_snapshot!(check(ClientProgram::Codex, text, &stdio()), @r#"
    # Mine.
    model = "gpt"

    [mcp_servers.files] # Files.
    command = "files"

    [tui]
    notifications = true # Loud.

    [mcp_servers.toolgate]
    command = "/opt/toolgate"
    args = ["-C", "/srv/gate", "stdio"]
    "#);
    insta::assert_snapshot!(check(ClientProgram::Codex, text, &http()), @r#"
    # Mine.
    model = "gpt"

    [mcp_servers.files] # Files.
    command = "files"

    [tui]
    notifications = true # Loud.

    [mcp_servers.toolgate]
    url = "http://127.0.0.1:7332/mcp"
    bearer_token_env_var = "TOOLGATE_API_KEY"
    "#);
    // The file is edited after the entry, without a trailing line break.
    let connected = connect(ClientProgram::Codex, text, "toolgate", &stdio(), false).unwrap();
    let more = format!("{connected}\n# Theirs.\n[history]\npersistence = \"none\"");
    let undone = disconnect(ClientProgram::Codex, &more, "toolgate", false).unwrap().unwrap();
    assert_eq!(undone, format!("{text}\n# Theirs.\n[history]\npersistence = \"none\""));
}

#[test]
fn creates_missing_files() {
    let json = connect(ClientProgram::Cursor, "", "toolgate", &stdio(), false).unwrap();
    insta::assert_snapshot!(json, @r#"
    {
      "mcpServers": {
        "toolgate": {
          "command": "/opt/toolgate",
          "args": ["-C", "/srv/gate", "stdio"]
        }
      }
    }
    "#);
    let toml = connect(ClientProgram::Codex, "", "my gate", &http(), false).unwrap();
    insta::assert_snapshot!(toml, @r#"
    [mcp_servers."my gate"]
    url = "http://127.0.0.1:7332/mcp"
    bearer_token_env_var = "TOOLGATE_API_KEY"
    "#);
    assert_eq!(disconnect(ClientProgram::Codex, &toml, "my gate", false).unwrap().unwrap(), "");
}

#[test]
fn keeps_entries_of_others() {
    let json = r#"{ "mcpServers": { "toolgate": { "command": "other", /* Why. */ "args": [] } } }"#;
    let toml = "[mcp_servers.toolgate]\ncommand = \"other\"\n";
    for (client, text) in [(ClientProgram::Cursor, json), (ClientProgram::Codex, toml)] {
        let refused = connect(client, text, "toolgate", &stdio(), false).unwrap_err();
        assert!(matches!(refused, ConnectError::Foreign(_)), "{refused}");
        let refused = disconnect(client, text, "toolgate", false).unwrap_err();
        assert!(matches!(refused, ConnectError::Foreign(_)), "{refused}");
        let forced = connect(client, text, "toolgate", &stdio(), true).unwrap();
        assert!(forced.contains("/opt/toolgate"), "{forced}");
        assert!(disconnect(client, text, "toolgate", true).unwrap().is_some());
    }
}

#[test]
fn rejects_entries_that_cannot_be_cut() {
    for text in
        ["mcp_servers = 1", "mcp_servers.toolgate = { command = \"toolgate\", args = [\"stdio\"] }", "= 1"]
    {
        assert!(disconnect(ClientProgram::Codex, text, "toolgate", false).is_err(), "{text}");
    }
    let inline = "mcp_servers = { files = { command = \"files\" } }\n";
    assert!(connect(ClientProgram::Codex, inline, "toolgate", &stdio(), false).is_err());
    for text in ["[]", "{", r#"{ "mcpServers": [] }"#] {
        assert!(connect(ClientProgram::Cursor, text, "toolgate", &stdio(), false).is_err(), "{text}");
    }
}

#[test]
fn config_paths() {
    let environment = Environment { home: Some("/people/ann".into()), ..Environment::default() };
    let at = |client, scope| config_path(client, scope, Path::new("/work"), &environment);
    assert_eq!(at(ClientProgram::VsCode, Scope::Project).unwrap(), Path::new("/work/.vscode/mcp.json"));
    assert_eq!(at(ClientProgram::ClaudeCode, Scope::User).unwrap(), Path::new("/people/ann/.claude.json"));
    assert_eq!(at(ClientProgram::Cursor, Scope::User).unwrap(), Path::new("/people/ann/.cursor/mcp.json"));
    assert_eq!(at(ClientProgram::Codex, Scope::User).unwrap(), Path::new("/people/ann/.codex/config.toml"));
    assert!(matches!(at(ClientProgram::ClaudeDesktop, Scope::Project), Err(ConnectError::NoProject(_))));
    assert!(matches!(at(ClientProgram::HoloDeck, Scope::User), Err(ConnectError::Unknown("holodeck"))));
}

/// An executable of any name recognises its own entry.
#[test]
fn recognises_renamed_executable() {
    let arguments = ["-C", "/srv/gate", "stdio", "--profile", "mail"].map(str::to_owned).to_vec();
    let method = ConnectMethod::Stdio { command: "/opt/toolgate-0.2".to_owned(), arguments };
    check(ClientProgram::Cursor, "{\n  \"mcpServers\": {}\n}\n", &method);
    check(ClientProgram::Codex, "", &method);
}
