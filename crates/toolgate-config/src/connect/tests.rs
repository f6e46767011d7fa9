//! What is written for each client, and that it goes again.

use super::*;

fn stdio() -> Way {
    Way::Stdio {
        command: "/opt/toolgate".to_owned(),
        arguments: ["-C", "/srv/gate", "stdio"].map(str::to_owned).to_vec(),
    }
}

fn http() -> Way {
    Way::Http { url: "http://127.0.0.1:7332/mcp".to_owned() }
}

/// Connects, twice, and undoes it; the text in the middle.
fn check(client: Client, text: &str, way: &Way) -> String {
    let connected = connect(client, text, "toolgate", way, false).unwrap();
    let again = connect(client, &connected, "toolgate", way, false).unwrap();
    assert_eq!(again, connected, "a second time changes nothing");
    let other = if matches!(way, Way::Http { .. }) { stdio() } else { http() };
    // What is ours may be written anew, and what was there before comes back.
    if let Ok(changed) = connect(client, &connected, "toolgate", &other, false) {
        assert_eq!(connect(client, &changed, "toolgate", way, false).unwrap(), connected);
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
    insta::assert_snapshot!(check(Client::VsCode, text, &stdio()), @r#"
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
    insta::assert_snapshot!(check(Client::VsCode, text, &http()), @r#"
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
fn claude_code_among_other_things() {
    let text = "{\n  \"numStartups\": 12,\n  \"mcpServers\": {\n    \"files\": {\n      \"command\": \"files\"\n    }\n  },\n  \"projects\": {}\n}";
    insta::assert_snapshot!(check(Client::ClaudeCode, text, &http()), @r#"
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
    insta::assert_snapshot!(check(Client::ClaudeDesktop, text, &stdio()), @r#"
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
    let refused = connect(Client::ClaudeDesktop, text, "toolgate", &http(), false).unwrap_err();
    assert!(matches!(refused, ConnectError::NoHttp("claude-desktop")), "{refused}");
}

#[test]
fn cursor() {
    let text = r#"{"mcpServers":{"files":{"command":"files"}}}"#;
    insta::assert_snapshot!(check(Client::Cursor, text, &http()), @r#"{"mcpServers":{"files":{"command":"files"}, "toolgate":{"url":"http://127.0.0.1:7332/mcp","headers":{"X-API-Key":"${env:TOOLGATE_API_KEY}"}}}}"#);
}

#[test]
fn codex_between_other_tables() {
    let text = "# Mine.\nmodel = \"gpt\"\n\n[mcp_servers.files] # Files.\ncommand = \"files\"\n\n[tui]\nnotifications = true # Loud.\n";
    insta::assert_snapshot!(check(Client::Codex, text, &stdio()), @r#"
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
    insta::assert_snapshot!(check(Client::Codex, text, &http()), @r#"
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
    // Somebody writes behind it, and without a line at the end.
    let connected = connect(Client::Codex, text, "toolgate", &stdio(), false).unwrap();
    let more = format!("{connected}\n# Theirs.\n[history]\npersistence = \"none\"");
    let undone = disconnect(Client::Codex, &more, "toolgate", false).unwrap().unwrap();
    assert_eq!(undone, format!("{text}\n# Theirs.\n[history]\npersistence = \"none\""));
}

#[test]
fn files_that_are_not_there_yet() {
    let json = connect(Client::Cursor, "", "toolgate", &stdio(), false).unwrap();
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
    let toml = connect(Client::Codex, "", "my gate", &http(), false).unwrap();
    insta::assert_snapshot!(toml, @r#"
    [mcp_servers."my gate"]
    url = "http://127.0.0.1:7332/mcp"
    bearer_token_env_var = "TOOLGATE_API_KEY"
    "#);
    assert_eq!(disconnect(Client::Codex, &toml, "my gate", false).unwrap().unwrap(), "");
}

#[test]
fn what_is_not_ours_stays() {
    let json = r#"{ "mcpServers": { "toolgate": { "command": "other", /* Why. */ "args": [] } } }"#;
    let toml = "[mcp_servers.toolgate]\ncommand = \"other\"\n";
    for (client, text) in [(Client::Cursor, json), (Client::Codex, toml)] {
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
fn what_cannot_be_cut() {
    for text in
        ["mcp_servers = 1", "mcp_servers.toolgate = { command = \"toolgate\", args = [\"stdio\"] }", "= 1"]
    {
        assert!(disconnect(Client::Codex, text, "toolgate", false).is_err(), "{text}");
    }
    let inline = "mcp_servers = { files = { command = \"files\" } }\n";
    assert!(connect(Client::Codex, inline, "toolgate", &stdio(), false).is_err());
    for text in ["[]", "{", r#"{ "mcpServers": [] }"#] {
        assert!(connect(Client::Cursor, text, "toolgate", &stdio(), false).is_err(), "{text}");
    }
}

#[test]
fn where_entries_go() {
    let environment = Environment { home: Some("/people/ann".into()), ..Environment::default() };
    let at = |client, scope| place(client, scope, Path::new("/work"), &environment);
    assert_eq!(at(Client::VsCode, Scope::Project).unwrap(), Path::new("/work/.vscode/mcp.json"));
    assert_eq!(at(Client::ClaudeCode, Scope::User).unwrap(), Path::new("/people/ann/.claude.json"));
    assert_eq!(at(Client::Cursor, Scope::User).unwrap(), Path::new("/people/ann/.cursor/mcp.json"));
    assert_eq!(at(Client::Codex, Scope::User).unwrap(), Path::new("/people/ann/.codex/config.toml"));
    assert!(matches!(at(Client::ClaudeDesktop, Scope::Project), Err(ConnectError::NoProject(_))));
    assert!(matches!(at(Client::Goose, Scope::User), Err(ConnectError::Unknown("goose"))));
}

/// A program can be called anything; what it wrote it takes out again.
#[test]
fn a_program_of_another_name() {
    let arguments = ["-C", "/srv/gate", "stdio", "--profile", "mail"].map(str::to_owned).to_vec();
    let way = Way::Stdio { command: "/opt/toolgate-0.2".to_owned(), arguments };
    check(Client::Cursor, "{\n  \"mcpServers\": {}\n}\n", &way);
    check(Client::Codex, "", &way);
}
