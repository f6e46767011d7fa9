//! `toolgate connect` and `disconnect`: entries in the configuration files of MCP clients.

use insta::assert_snapshot;

use crate::support::program::{Program, RunOutput};

/// Replaces the path of the executable under test.
fn normalized(run: &RunOutput) -> String {
    run.to_string().replace(env!("CARGO_BIN_EXE_toolgate"), "[toolgate]")
}

fn text(program: &Program, name: &str) -> String {
    let project = program.project.display().to_string();
    program.read(name).replace(env!("CARGO_BIN_EXE_toolgate"), "[toolgate]").replace(&project, "[project]")
}

const CLINE: &str =
    "~/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";

/// For every client: its file with the entry, and byte for byte as before after `disconnect`.
#[test]
fn every_client_is_connected_and_disconnected() {
    let servers = "{\n  // Mine.\n  \"servers\": {\n    \"files\": { \"command\": \"files\" }\n  }\n}\n";
    let json =
        "{\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"files\": { \"command\": \"files\" }\n  }\n}\n";
    let zed = "{\n  // Mine.\n  \"context_servers\": {\n    \"files\": { \"command\": \"files\" }\n  }\n}\n";
    let goose =
        "GOOSE_MODEL: x # Mine.\nextensions:\n  # The files.\n  files:\n    type: stdio\n    cmd: files\n";
    let toml = "model = \"gpt\" # Mine.\n\n[mcp_servers.files]\ncommand = \"files\"\n";
    for (client, scope, file, before) in [
        ("vscode", "user", "~/.config/Code/User/mcp.json", servers),
        ("vscode", "project", ".vscode/mcp.json", servers),
        ("claude-code", "user", "~/.claude.json", json),
        ("claude-code", "project", ".mcp.json", json),
        ("claude-desktop", "user", "~/.config/Claude/claude_desktop_config.json", json),
        ("cursor", "user", "~/.cursor/mcp.json", json),
        ("cursor", "project", ".cursor/mcp.json", json),
        ("codex", "user", "~/.codex/config.toml", toml),
        ("codex", "project", ".codex/config.toml", toml),
        ("gemini", "user", "~/.gemini/settings.json", json),
        ("gemini", "project", ".gemini/settings.json", json),
        ("windsurf", "user", "~/.codeium/windsurf/mcp_config.json", json),
        ("zed", "user", "~/.config/zed/settings.json", zed),
        ("zed", "project", ".zed/settings.json", zed),
        ("cline", "user", CLINE, json),
        ("goose", "user", "~/.config/goose/config.yaml", goose),
    ] {
        let program = Program::new(&[(file, before)]);
        let line = format!("connect {client} --scope {scope}");
        let looked = program.run(&format!("{line} --dry-run"));
        assert_eq!((looked.code, program.read(file).as_str()), (0, before), "{looked}");
        assert!(looked.stdout.contains("\n+"), "the difference: {looked}");
        let done = program.run(&line);
        assert_eq!(done.code, 0, "{done}");
        let written = program.read(file);
        assert!(
            written.contains(env!("CARGO_BIN_EXE_toolgate")) && written.contains("\"stdio\""),
            "{written}"
        );
        assert!(written.contains("files"), "{written}");
        // `import` does not take the project for one of its own servers.
        let import = program.run_list(&["import", client, "--dry-run", "--json"]);
        assert!(import.stdout.contains("it runs Toolgate on this project"), "{import}");
        assert!(program.run(&line).stderr.contains("is already in"), "a second time is nothing new");
        assert_eq!(program.read(file), written);
        let undone = program.run(&format!("{line} --remove"));
        assert_eq!((undone.code, program.read(file).as_str()), (0, before), "{undone}");
        let again = program.run(&format!("{line} --remove"));
        assert!(again.code == 0 && again.stderr.contains("is not in"), "{again}");
    }
}

#[test]
fn creates_a_new_file() {
    let program = Program::new(&[]);
    assert_snapshot!(normalized(&program.run("connect cursor --scope project")), @"
    exit code 0
    ----- stdout
    ----- stderr
    toolgate was written to [project]/.cursor/mcp.json
    next: restart the client; it starts Toolgate when it needs it
    ");
    assert_snapshot!(text(&program, ".cursor/mcp.json"), @r#"
    {
      "mcpServers": {
        "toolgate": {
          "command": "[toolgate]",
          "args": ["-C", "[project]", "stdio"]
        }
      }
    }
    "#);
    assert_snapshot!(normalized(&program.run("connect cursor --scope project --http http://127.0.0.1:7332/mcp --dry-run")), @r#"
    exit code 0
    ----- stdout
    @@ -4,2 +4,4 @@
    -      "command": "[toolgate]",
    -      "args": ["-C", "[project]", "stdio"]
    +      "url": "http://127.0.0.1:7332/mcp",
    +      "headers": {
    +        "X-API-Key": "${env:TOOLGATE_API_KEY}"
    +      }
    ----- stderr
    toolgate would be written to [project]/.cursor/mcp.json
    next: run it again without `--dry-run` to write this
    "#);
    assert_snapshot!(normalized(&program.run("connect codex --http http://127.0.0.1:7332/mcp")), @"
    exit code 0
    ----- stdout
    ----- stderr
    toolgate was written to [home]/.codex/config.toml
    next: run `toolgate serve`, and start the client with TOOLGATE_API_KEY in its environment
    ");
    assert_snapshot!(text(&program, "~/.codex/config.toml"), @r#"
    [mcp_servers.toolgate]
    url = "http://127.0.0.1:7332/mcp"
    bearer_token_env_var = "TOOLGATE_API_KEY"
    "#);
    let json = program.run("connect codex --remove --json").json();
    assert_eq!(
        (&json["changed"], &json["written"], &json["connected"]),
        (&true.into(), &true.into(), &false.into())
    );
    assert_eq!(program.read("~/.codex/config.toml"), "");
}

#[test]
fn rejected_files_stay_unchanged() {
    let other = r#"{ "mcpServers": { "toolgate": { "command": "mine" } } }"#;
    let program = Program::new(&[("~/.cursor/mcp.json", other), ("~/.claude.json", "{ nonsense")]);
    let before = program.files();
    let mut all = String::new();
    for line in [
        "connect cursor",
        "connect cursor --remove",
        "connect claude-code",
        "connect claude-desktop --scope project",
        "connect claude-desktop --http http://127.0.0.1:7332/mcp",
    ] {
        let run = program.run(line);
        assert_eq!(run.code, 1, "{run}");
        all.push_str(&format!("{line}\n{}", run.stderr));
    }
    assert_snapshot!(all, @"
    connect cursor
    error: [home]/.cursor/mcp.json was not changed
      because: there is already an entry `toolgate` that is not Toolgate's
    hint: use `--name` for another name, or `--force` to overwrite the entry
    connect cursor --remove
    error: [home]/.cursor/mcp.json was not changed
      because: there is already an entry `toolgate` that is not Toolgate's
    hint: use `--force` to remove it anyway
    connect claude-code
    error: [home]/.claude.json was not changed
      because: the file cannot be edited: it is not valid JSON: Expected string for object property on line 1 column 3
    hint: fix the file by hand first
    connect claude-desktop --scope project
    error: claude-desktop has no configuration per project
    hint: use `--scope user`
    connect claude-desktop --http http://127.0.0.1:7332/mcp
    error: [home]/.config/Claude/claude_desktop_config.json was not changed
      because: claude-desktop does not support URLs in its configuration
    hint: omit `--http`: the client starts `toolgate stdio` itself
    ");
    for line in ["connect emacs", "connect vscode --http ftp://x", "connect vscode --scope world"] {
        assert_eq!(program.run(line).code, 2, "{line}");
    }
    assert!(program.files() == before, "something was written");
    assert_eq!(program.run("connect cursor --force").code, 0);
    assert!(program.read("~/.cursor/mcp.json").contains("\"stdio\""));
}
