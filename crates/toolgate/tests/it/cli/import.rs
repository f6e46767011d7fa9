//! `toolgate import`: what is imported from other programs, and what is reported as skipped.

use insta::assert_snapshot;

use crate::support::program::Program;

/// Imports, then checks the project. Returns the output followed by the written files.
fn import(program: &Program, arguments: &str) -> String {
    let run = program.run(&format!("import {arguments}"));
    assert_eq!(run.code, 0, "{run}");
    let checked = program.run("check");
    assert_eq!(checked.code, 0, "{checked}");
    let mut all = format!("{run}----- mcp.json\n{}", program.read("mcp.json"));
    if program.path(".env").is_file() {
        all.push_str(&format!("----- .env\n{}", program.read(".env")));
    }
    all
}

/// Fails and leaves all files unchanged.
fn refused(program: &Program, arguments: &str) -> String {
    let before = program.files();
    let run = program.run(arguments);
    assert_eq!(run.code, 1, "{run}");
    assert!(program.files() == before, "something was written");
    run.to_string()
}

const VSCODE: &str = r#"{
  // Servers of this workspace.
  "inputs": [
    { "id": "perplexity-key", "type": "promptString", "description": "Perplexity API Key", "password": true },
    { "id": "unused", "type": "pickString", "description": "Nobody asks", "options": ["a"] },
  ],
  "servers": {
    "perplexity": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "server-perplexity-ask"],
      "env": { "PERPLEXITY_API_KEY": "${input:perplexity-key}", "HTTP_PROXY": null },
      "dev": { "watch": "src/**/*.ts" }
    },
    "files": {
      "command": "node",
      "args": ["${workspaceFolder}/server.js", "--home", "${userHome}"],
      "cwd": "${workspaceFolder}",
      "envFile": "${workspaceFolder}/dev.env",
      "sandboxEnabled": true
    },
    "remote": {
      "type": "http",
      "url": "https://api.example.com/mcp/",
      "headers": { "Authorization": "Bearer ${env:API_TOKEN}", "X-Trace": "on" },
      "oauth": { "clientId": "abc" }
    },
    "socket": { "type": "http", "url": "unix:///tmp/server.sock" },
  },
  "sandbox": { "network": {} }
}
"#;

#[test]
fn vscode() {
    let files = [
        (".vscode/mcp.json", VSCODE),
        ("dev.env", "PORT=1\n"),
        (
            "~/.config/Code/User/mcp.json",
            r#"{ "servers": { "remote": { "url": "https://other.example.com/mcp" }, "mine": { "command": "mine" } } }"#,
        ),
    ];
    let program = Program::new(&files).with("API_TOKEN", "a-token-of-mine");
    assert_snapshot!(import(&program, "vscode"), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    note: `dev` of MCP server `perplexity` was not imported
      --> .vscode/mcp.json:13:7
    13 |       "dev": { "watch": "src/**/*.ts" }
       |       ^^^^^

    note: `sandboxEnabled` of MCP server `files` was not imported
      --> .vscode/mcp.json:20:7
    20 |       "sandboxEnabled": true
       |       ^^^^^^^^^^^^^^^^

    warning: MCP server `socket` was not imported: `unix://` URLs are not supported
      --> .vscode/mcp.json:28:5
    28 |     "socket": { "type": "http", "url": "unix:///tmp/server.sock" },
       |     ^^^^^^^^

    note: `sandbox` was not imported
      --> .vscode/mcp.json:30:3
    30 |   "sandbox": { "network": {} }
       |   ^^^^^^^^^

    note: MCP server `remote` was already imported from .vscode/mcp.json
      --> [home]/.config/Code/User/mcp.json:1:16
    1 | { "servers": { "remote": { "url": "https://other.example.com/mcp" }, "mine": { "command": "mine" } } }
      |                ^^^^^^^^

    added perplexity from .vscode/mcp.json
    added files from .vscode/mcp.json
    added remote from .vscode/mcp.json
    added mine from [home]/.config/Code/User/mcp.json
    next: run `toolgate check` to see the servers
    ----- mcp.json
    {
      "servers": {
        "perplexity": {
          "type": "stdio",
          "command": "npx",
          "args": ["-y", "server-perplexity-ask"],
          "env": {
            "PERPLEXITY_API_KEY": "${input:perplexity-key}",
            "HTTP_PROXY": null
          }
        },
        "files": {
          "command": "node",
          "args": ["${workspaceFolder}/server.js", "--home", "${userHome}"],
          "cwd": "${workspaceFolder}",
          "envFile": "${workspaceFolder}/dev.env"
        },
        "remote": {
          "type": "http",
          "url": "https://api.example.com/mcp/",
          "headers": {
            "Authorization": "Bearer ${env:API_TOKEN}",
            "X-Trace": "on"
          },
          "oauth": {
            "clientId": "abc"
          }
        },
        "mine": {
          "command": "mine"
        }
      },
      "inputs": [
        {
          "id": "perplexity-key",
          "type": "promptString",
          "description": "Perplexity API Key",
          "password": true
        }
      ]
    }
    "#);
}

const CLAUDE_DESKTOP: &str = r#"{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"]
    },
    "brave-search": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-brave-search"],
      "env": { "BRAVE_API_KEY": "BSAkey-0001", "LOG_LEVEL": "debug" },
      "disabled": true
    },
    "postgres": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-postgres", "postgresql://ann:s3cr3t@localhost/db"]
    }
  }
}
"#;

#[test]
fn claude_desktop_on_each_system() {
    for file in [
        "~/.config/Claude/claude_desktop_config.json",
        "~/Library/Application Support/Claude/claude_desktop_config.json",
        "~/AppData/Roaming/Claude/claude_desktop_config.json",
    ] {
        let program = Program::new(&[(file, CLAUDE_DESKTOP)]);
        let run = program.run("import claude-desktop --json");
        assert_eq!(run.json()["taken"].as_array().unwrap().len(), 3, "{run}");
    }
}

#[test]
fn claude_desktop_with_secrets_in_plain_text() {
    let program = Program::new(&[("~/.config/Claude/claude_desktop_config.json", CLAUDE_DESKTOP)]);
    assert_snapshot!(import(&program, "claude-desktop"), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    added filesystem from [home]/.config/Claude/claude_desktop_config.json
    added brave-search from [home]/.config/Claude/claude_desktop_config.json
    added postgres from [home]/.config/Claude/claude_desktop_config.json
    wrote the values of `BRAVE_API_KEY`, `POSTGRES_PASSWORD` to .env: do not commit that file
    next: run `toolgate check` to see the servers
    ----- mcp.json
    {
      "servers": {
        "filesystem": {
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"]
        },
        "brave-search": {
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-brave-search"],
          "env": {
            "BRAVE_API_KEY": "${BRAVE_API_KEY}",
            "LOG_LEVEL": "debug"
          },
          "enabled": false
        },
        "postgres": {
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-postgres", "postgresql://ann:${POSTGRES_PASSWORD}@localhost/db"]
        }
      }
    }
    ----- .env
    BRAVE_API_KEY="BSAkey-0001"
    POSTGRES_PASSWORD="s3cr3t"
    "#);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs_err::metadata(program.path(".env")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn claude_code() {
    let program = Program::new(&[(
        ".mcp.json",
        r#"{ "mcpServers": {
  "docs": { "type": "http", "url": "${DOCS_URL:-https://docs.example.com}/mcp", "headers": { "Authorization": "Bearer ${DOCS_TOKEN}" } },
  "helper": { "type": "sse", "url": "https://sse.example.com/sse", "headersHelper": "/bin/helper" }
} }"#,
    )])
    .with("DOCS_TOKEN", "a-token-of-mine");
    let own = format!(
        r#"{{ "numStartups": 3, "mcpServers": {{ "memory": {{ "type": "stdio", "command": "memory", "args": [], "env": {{}} }} }},
  "projects": {{
    "{}": {{ "allowedTools": [], "mcpServers": {{ "local": {{ "command": "local" }} }} }},
    "/elsewhere": {{ "mcpServers": {{ "other": {{ "command": "other" }} }} }}
  }} }}"#,
        program.project.display()
    );
    program.write("~/.claude.json", own);
    assert_snapshot!(import(&program, "claude-code"), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    note: `headersHelper` of MCP server `helper` was not imported
      --> .mcp.json:3:68
    3 |   "helper": { "type": "sse", "url": "https://sse.example.com/sse", "headersHelper": "/bin/helper" }
      |                                                                    ^^^^^^^^^^^^^^^

    added docs from .mcp.json
    added helper from .mcp.json
    added local from [home]/.claude.json
    added memory from [home]/.claude.json
    next: run `toolgate check` to see the servers
    ----- mcp.json
    {
      "servers": {
        "docs": {
          "type": "http",
          "url": "${DOCS_URL:-https://docs.example.com}/mcp",
          "headers": {
            "Authorization": "Bearer ${DOCS_TOKEN}"
          }
        },
        "helper": {
          "type": "sse",
          "url": "https://sse.example.com/sse"
        },
        "local": {
          "command": "local"
        },
        "memory": {
          "type": "stdio",
          "command": "memory",
          "args": [],
          "env": {}
        }
      }
    }
    "#);
}

#[test]
fn cursor() {
    let files = [
        (".cursor/mcp.json", r#"{ "mcpServers": { "a": { "command": "a", "envFile": "a.env" } } }"#),
        ("a.env", "A=1\n"),
        (
            "~/.cursor/mcp.json",
            r#"{ "mcpServers": { "b": { "url": "http://localhost:3000/sse", "headers": { "API_KEY": "value" } } } }"#,
        ),
    ];
    assert_snapshot!(import(&Program::new(&files), "cursor"), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    added a from .cursor/mcp.json
    added b from [home]/.cursor/mcp.json
    wrote the value of `B_API_KEY` to .env: do not commit that file
    next: run `toolgate check` to see the servers
    ----- mcp.json
    {
      "servers": {
        "a": {
          "command": "a",
          "envFile": "a.env"
        },
        "b": {
          "url": "http://localhost:3000/sse",
          "headers": {
            "API_KEY": "${B_API_KEY}"
          }
        }
      }
    }
    ----- .env
    B_API_KEY="value"
    "#);
}

const CODEX: &str = r#"model = "gpt-5"
approval_policy = "on-request"

[mcp_servers.context7]
command = "npx"
args = ["-y", "@upstash/context7-mcp"]
env_vars = ["LOCAL_TOKEN"]
startup_timeout_sec = 20
tool_timeout_sec = 45
enabled_tools = ["search"]
disabled_tools = ["delete"]
supports_parallel_tool_calls = true
required = true

[mcp_servers.context7.env]
MY_ENV_VAR = "MY_ENV_VALUE"

[mcp_servers.figma]
url = "https://mcp.figma.com/mcp"
bearer_token_env_var = "FIGMA_OAUTH_TOKEN"
http_headers = { "X-Figma-Region" = "us-east-1" }
env_http_headers = { "X-Team" = "FIGMA_TEAM" }
enabled = false
default_tools_approval_mode = "prompt"

[mcp_servers.figma.tools.open]
approval_mode = "approve"
"#;

#[test]
fn codex() {
    let program = Program::new(&[("~/.codex/config.toml", CODEX)])
        .with("LOCAL_TOKEN", "a-token-of-mine")
        .with("FIGMA_OAUTH_TOKEN", "another-token")
        .with("FIGMA_TEAM", "team");
    assert_snapshot!(import(&program, "codex"), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    note: `model` is not used
      --> [home]/.codex/config.toml:1:1
    1 | model = "gpt-5"
      | ^^^^^

    note: `approval_policy` is not used
      --> [home]/.codex/config.toml:2:1
    2 | approval_policy = "on-request"
      | ^^^^^^^^^^^^^^^

    note: `default_tools_approval_mode` in MCP server `figma` is not used
      --> [home]/.codex/config.toml:24:1
    24 | default_tools_approval_mode = "prompt"
       | ^^^^^^^^^^^^^^^^^^^^^^^^^^^

    note: `tools` in MCP server `figma` is not used
      --> [home]/.codex/config.toml:26:20
    26 | [mcp_servers.figma.tools.open]
       |                    ^^^^^

    added context7 from [home]/.codex/config.toml
    added figma from [home]/.codex/config.toml
    next: run `toolgate check` to see the servers
    ----- mcp.json
    {
      "servers": {
        "context7": {
          "command": "npx",
          "args": ["-y", "@upstash/context7-mcp"],
          "timeout": 20,
          "request_timeout": 45,
          "tool_allowlist": ["search"],
          "tool_denylist": ["delete"],
          "startup": "required",
          "env": {
            "LOCAL_TOKEN": "${LOCAL_TOKEN}",
            "MY_ENV_VAR": "MY_ENV_VALUE"
          },
          "default_tool_config": {
            "timeout": 45,
            "parallel_capable": true
          }
        },
        "figma": {
          "url": "https://mcp.figma.com/mcp",
          "enabled": false,
          "headers": {
            "Authorization": "Bearer ${FIGMA_OAUTH_TOKEN}",
            "X-Figma-Region": "us-east-1",
            "X-Team": "${FIGMA_TEAM}"
          }
        }
      }
    }
    "#);
}

#[test]
fn codex_with_its_own_home() {
    let program = Program::new(&[("~/elsewhere/config.toml", CODEX)]);
    let home = program.path("~/elsewhere").display().to_string();
    let program = program.with("CODEX_HOME", &home);
    assert_eq!(program.run("import codex --dry-run").code, 0);
}

#[test]
fn goose() {
    let text = r#"GOOSE_PROVIDER: anthropic
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    timeout: 300
    type: builtin
  github:
    name: GitHub
    description: Issues and pulls
    type: stdio
    cmd: npx
    args: [-y, "@modelcontextprotocol/server-github", "--host=$GITHUB_HOST"]
    envs: { LOG: "1" }
    env_keys: [GITHUB_PERSONAL_ACCESS_TOKEN]
    timeout: 300
    enabled: true
    available_tools: [search]
  docs:
    type: streamable_http
    uri: https://docs.example.com/mcp
    headers: { Authorization: "Bearer ${DOCS_TOKEN}" }
    enabled: false
    available_tools: []
    socket: null
"#;
    let program = Program::new(&[("~/.config/goose/config.yaml", text)])
        .with("GITHUB_PERSONAL_ACCESS_TOKEN", "a-token-of-mine")
        .with("GITHUB_HOST", "github.example.com")
        .with("DOCS_TOKEN", "another-token");
    assert_snapshot!(import(&program, "goose"), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    note: `GOOSE_PROVIDER` is not used
      --> [home]/.config/goose/config.yaml:1:1
    1 | GOOSE_PROVIDER: ***
      | ^^^^^^^^^^^^^^

    note: extension `developer` is part of goose (type `builtin`)
      --> [home]/.config/goose/config.yaml:3:3
    3 |   developer:
      |   ^^^^^^^^^

    note: `socket` in extension `docs` is not used
      --> [home]/.config/goose/config.yaml:26:5
    26 |     socket: null
       |     ^^^^^^

    added github from [home]/.config/goose/config.yaml
    added docs from [home]/.config/goose/config.yaml
    next: run `toolgate check` to see the servers
    ----- mcp.json
    {
      "servers": {
        "github": {
          "description": "Issues and pulls",
          "transport": "stdio",
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-github", "--host=${GITHUB_HOST}"],
          "request_timeout": 300,
          "enabled": true,
          "tool_allowlist": ["search"],
          "env": {
            "LOG": "1",
            "GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_PERSONAL_ACCESS_TOKEN}"
          }
        },
        "docs": {
          "transport": "streamable_http",
          "url": "https://docs.example.com/mcp",
          "headers": {
            "Authorization": "Bearer ${DOCS_TOKEN}"
          },
          "enabled": false
        }
      }
    }
    "#);
}

#[test]
fn holodeck() {
    let agent = r#"name: research
model: { provider: openai, name: gpt-4o }
instructions: { inline: Help. }
tools:
  - name: filesystem
    description: Read files
    type: mcp
    transport: stdio
    command: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem", ./data]
    env: { TOKEN: "${FS_TOKEN}" }
    request_timeout: 30
    config: { allowed_directories: [./data], api_key: abc123 }
    defer_loading: true
  - name: short
    type: mcp
    server: mcp-server-time
  - { name: add, description: Adds, type: function, file: add.py, function: add }
"#;
    let files = [
        ("agent.yaml", agent),
        ("add.py", ""),
        (
            "~/.holodeck/config.yaml",
            "providers: {}\nmcp_servers:\n  - { name: github, description: GitHub, transport: http, url: 'https://api.example.com/mcp' }\n",
        ),
    ];
    let program = Program::new(&files).with("FS_TOKEN", "a-token-of-mine");
    assert_snapshot!(import(&program, "holodeck"), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    note: `defer_loading` of MCP server `filesystem` was not imported
      --> agent.yaml:14:5
    14 |     defer_loading: true
       |     ^^^^^^^^^^^^^

    note: tool `add` of type `function` is not an MCP server
      --> agent.yaml:18:5
    18 |   - { name: add, description: Adds, type: function, file: add.py, function: add }
       |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    added filesystem from agent.yaml
    added short from agent.yaml
    added github from [home]/.holodeck/config.yaml
    wrote the value of `FILESYSTEM_API_KEY` to .env: do not commit that file
    next: agent.yaml takes precedence over mcp.json; run `toolgate --file mcp.json check` to see the servers
    ----- mcp.json
    {
      "servers": {
        "filesystem": {
          "description": "Read files",
          "transport": "stdio",
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-filesystem", "./data"],
          "env": {
            "TOKEN": "${FS_TOKEN}"
          },
          "request_timeout": 30,
          "config": {
            "allowed_directories": ["./data"],
            "api_key": "${FILESYSTEM_API_KEY}"
          }
        },
        "short": {
          "server": "mcp-server-time"
        },
        "github": {
          "description": "GitHub",
          "transport": "http",
          "url": "https://api.example.com/mcp"
        }
      }
    }
    ----- .env
    FILESYSTEM_API_KEY="abc123"
    "#);
    let checked = program.run("--file mcp.json check");
    assert_eq!(checked.code, 0, "{checked}");
}

#[test]
fn one_file_as_json() {
    let files = [(
        "elsewhere.json",
        r#"{ "mcpServers": { "a": { "command": "a", "icon": "x.png", "env": { "TOKEN": "abc" } } } }"#,
    )];
    let program = Program::new(&files);
    let run = program.run("import elsewhere.json --json");
    assert_eq!(run.json()["ok"], true);
    assert_snapshot!(run, @r#"
    exit code 0
    ----- stdout
    {
      "ok": true,
      "taken": [
        {
          "name": "a",
          "from": "elsewhere.json",
          "entry": {
            "command": "a",
            "env": {
              "TOKEN": "${TOKEN}"
            }
          }
        }
      ],
      "left": [],
      "variables": [
        "TOKEN"
      ],
      "notes": [
        {
          "severity": "note",
          "message": "`icon` of MCP server `a` was not imported",
          "file": "elsewhere.json",
          "line": 1,
          "column": 42
        }
      ],
      "written": true,
      "file": "mcp.json"
    }
    ----- stderr
    note: `icon` of MCP server `a` was not imported
      --> elsewhere.json:1:42
    1 | { "mcpServers": { "a": { "command": "a", "icon": "x.png", "env": { "TOKEN": "***" } } } }
      |                                          ^^^^^^

    added a from elsewhere.json
    wrote the value of `TOKEN` to .env: do not commit that file
    next: run `toolgate check` to see the servers
    "#);
    assert_eq!(program.run("check").code, 0);
}

#[test]
fn a_dry_run_writes_nothing() {
    let program = Program::new(&[("elsewhere.json", CLAUDE_DESKTOP)]);
    let before = program.files();
    assert_snapshot!(program.run("import elsewhere.json --dry-run"), @r#"
    exit code 0
    ----- stdout
    {
      "servers": {
        "filesystem": {
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"]
        },
        "brave-search": {
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-brave-search"],
          "env": {
            "BRAVE_API_KEY": "${BRAVE_API_KEY}",
            "LOG_LEVEL": "debug"
          },
          "enabled": false
        },
        "postgres": {
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-postgres", "postgresql://ann:${POSTGRES_PASSWORD}@localhost/db"]
        }
      }
    }
    ----- stderr
    would add filesystem from elsewhere.json
    would add brave-search from elsewhere.json
    would add postgres from elsewhere.json
    would write the values of `BRAVE_API_KEY`, `POSTGRES_PASSWORD` to .env: do not commit that file
    next: run it again without `--dry-run` to write this
    "#);
    assert!(program.files() == before);
}

#[test]
fn existing_entries_stay_unchanged() {
    let files = [
        ("toolgate.yaml", "registries:\n  mcp: servers/mcp.json\n"),
        (
            "servers/mcp.json",
            "{\n    // Mine, with four spaces.\n    \"mcpServers\": {\n        \"a\": { \"command\": \"mine\" }, // Do not touch.\n    },\n}\n",
        ),
        (
            "new.json",
            r#"{ "servers": { "a": { "command": "theirs", "env": { "TOKEN": "abc" } }, "b": { "command": "theirs", "args": ["x"] } } }"#,
        ),
    ];
    let program = Program::new(&files);
    let first = program.run("import new.json");
    assert_snapshot!(format!("{first}----- mcp.json\n{}", program.read("servers/mcp.json")), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    added b from new.json
    skipped a, which is already in servers/mcp.json; use `--replace` to overwrite it
    next: run `toolgate check` to see the servers
    ----- mcp.json
    {
        // Mine, with four spaces.
        "mcpServers": {
            "a": { "command": "mine" }, // Do not touch.
            "b": {
                "command": "theirs",
                "args": ["x"]
            },
        },
    }
    "#);
    assert!(!program.path(".env").exists(), "a secret of a server that was not imported");
    let again = program.files();
    assert_snapshot!(program.run("import new.json"), @"
    exit code 0
    ----- stdout
    ----- stderr
    skipped a, which is already in servers/mcp.json; use `--replace` to overwrite it
    skipped b, which is already in servers/mcp.json; use `--replace` to overwrite it
    next: run `toolgate check` to see the servers
    ");
    assert!(program.files() == again, "a second import changed something");
    let replaced = program.run("import new.json --replace");
    assert_snapshot!(format!("{replaced}----- mcp.json\n{}", program.read("servers/mcp.json")), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    added a from new.json
    added b from new.json
    wrote the value of `TOKEN` to .env: do not commit that file
    next: run `toolgate check` to see the servers
    ----- mcp.json
    {
        // Mine, with four spaces.
        "mcpServers": {
            "a": { "command": "theirs", "env": { "TOKEN": "${TOKEN}" } }, // Do not touch.
            "b": {
                "command": "theirs",
                "args": ["x"]
            },
        },
    }
    "#);
    assert_eq!(program.run("check").code, 0);
}

#[test]
fn env_lines_are_added_and_never_changed() {
    let files = [
        (".env", "# Mine.\nTOKEN=\"one that differs\"\nSAME_KEY=same"),
        (
            "new.json",
            r#"{ "servers": { "a": { "command": "a", "env": { "TOKEN": "q\"uo\\te #d", "SAME_KEY": "same", "OTHER_KEY": "x" } } } }"#,
        ),
    ];
    let program = Program::new(&files).with("OTHER_KEY", "of the shell");
    assert_snapshot!(import(&program, "new.json"), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    added a from new.json
    wrote the values of `TOKEN_2`, `OTHER_KEY_2` to .env: do not commit that file
    warning: other users can read .env; run `chmod 600 .env`
    next: run `toolgate check` to see the servers
    ----- mcp.json
    {
      "servers": {
        "a": {
          "command": "a",
          "env": {
            "TOKEN": "${TOKEN_2}",
            "SAME_KEY": "${SAME_KEY}",
            "OTHER_KEY": "${OTHER_KEY_2}"
          }
        }
      }
    }
    ----- .env
    # Mine.
    TOKEN="one that differs"
    SAME_KEY=same
    TOKEN_2="q\"uo\\te #d"
    OTHER_KEY_2="x"
    "#);
}

#[test]
fn imports_into_another_folder() {
    let program = Program::new(&[("new.json", r#"{ "servers": { "a": { "command": "a" } } }"#)]);
    program.run("init other");
    assert_snapshot!(program.run("-C other import new.json"), @"
    exit code 0
    ----- stdout
    ----- stderr
    added a from [project]/new.json
    next: run `toolgate -C other check` to see the servers
    ");
    assert_eq!(program.run("-C other check --json").json()["servers"][0]["name"], "a");
}

#[test]
fn a_project_file_without_registries() {
    let files =
        [("toolgate.yaml", "toolbox: {}\n"), ("new.json", r#"{ "servers": { "a": { "command": "a" } } }"#)];
    assert_snapshot!(import(&Program::new(&files), "new.json"), @r#"
    exit code 0
    ----- stdout
    ----- stderr
    added a from new.json
    next: add `registries: { mcp: mcp.json }` to toolgate.yaml, then `toolgate check`
    ----- mcp.json
    {
      "servers": {
        "a": {
          "command": "a"
        }
      }
    }
    "#);
}

#[test]
fn a_registry_that_cannot_be_extended() {
    let new = ("new.json", r#"{ "servers": { "a": { "command": "a", "env": { "TOKEN": "abc" } } } }"#);
    let broken = Program::new(&[new, ("mcp.json", "{ \"servers\": { \"mine\": }\n")]);
    assert_snapshot!(refused(&broken, "import new.json"), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: cannot add to mcp.json; nothing was written
      because: it is not valid JSON
      because: Unexpected close brace on line 1 column 24
    ");
    let other = Program::new(&[new, ("mcp.json", "{ \"servers\": [] }\n")]);
    assert_snapshot!(refused(&other, "import new.json"), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: cannot add to mcp.json; nothing was written
      because: `servers` must be an object
    ");
    let env = Program::new(&[new, (".env", "not a line\n")]);
    assert_snapshot!(refused(&env, "import new.json"), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: this line sets no variable
      --> .env:1:1
    1 | ***
      | ^^^
    hint: write `NAME=value`, or start a comment with `#`

    error: no servers imported from new.json
    hint: fix the problems above, or name another file
    ");
}

#[test]
fn nothing_to_import() {
    let program = Program::new(&[
        ("broken.json", "{ \"servers\": { \"a\": { \"env\": { \"TOKEN\": \"abc\" } \"command\": \"a\" } }"),
        ("empty.json", "{ \"mcpServers\": {} }"),
        ("other.json", "{ \"color\": 1 }"),
        ("unfit.json", "{ \"servers\": { \"a\": {}, \"b\": 1, \"\": { \"command\": \"c\" } } }"),
    ]);
    assert_snapshot!(refused(&program, "import codex"), @r"
    exit code 1
    ----- stdout
    ----- stderr
    error: codex has no configuration here
    hint: name the file; looked for [project]/.codex/config.toml, [home]/.codex/config.toml
    ");
    assert_snapshot!(refused(&program, "import eclipse"), @r"
    exit code 1
    ----- stdout
    ----- stderr
    error: `eclipse` is neither a file nor a known client
    hint: known clients: vscode, claude-desktop, claude-code, cursor, codex, gemini, windsurf, zed, cline, goose, holodeck
    ");
    assert_snapshot!(refused(&program, "import nowhere.json --json"), @r#"
    exit code 1
    ----- stdout
    {
      "ok": false,
      "error": "`nowhere.json` is neither a file nor a known client",
      "causes": [],
      "hint": "known clients: vscode, claude-desktop, claude-code, cursor, codex, gemini, windsurf, zed, cline, goose, holodeck"
    }
    ----- stderr
    error: `nowhere.json` is neither a file nor a known client
    hint: known clients: vscode, claude-desktop, claude-code, cursor, codex, gemini, windsurf, zed, cline, goose, holodeck
    "#);
    assert_snapshot!(refused(&program, "import broken.json"), @r#"
    exit code 1
    ----- stdout
    ----- stderr
    error: not valid JSON: expected comma
      --> broken.json:1:48
    1 | { "servers": { "a": { "env": { "TOKEN": "***" } "command": "a" } }
      |                                                ^

    error: no servers imported from broken.json
    hint: fix the problems above, or name another file
    "#);
    assert_snapshot!(refused(&program, "import empty.json"), @"
    exit code 1
    ----- stdout
    ----- stderr
    warning: `empty.json` holds no MCP servers

    error: no servers imported from empty.json
    hint: name another file, or another client
    ");
    assert_snapshot!(refused(&program, "import other.json"), @"
    exit code 1
    ----- stdout
    ----- stderr
    warning: `other.json` holds no MCP servers

    error: no servers imported from other.json
    hint: name another file, or another client
    ");
    assert_snapshot!(refused(&program, "import unfit.json"), @r#"
    exit code 1
    ----- stdout
    ----- stderr
    warning: MCP server `a` was not imported: it has neither a `command` nor a `url`
      --> unfit.json:1:16
    1 | { "servers": { "a": {}, "b": 1, "": { "command": "c" } } }
      |                ^^^

    warning: MCP server `b` was not imported: it is not a map
      --> unfit.json:1:25
    1 | { "servers": { "a": {}, "b": 1, "": { "command": "c" } } }
      |                         ^^^

    warning: MCP server `` was not imported: a name has 1 to 64 characters
      --> unfit.json:1:33
    1 | { "servers": { "a": {}, "b": 1, "": { "command": "c" } } }
      |                                 ^^

    error: no servers imported from unfit.json
    hint: name another file, or another client
    "#);
}

#[test]
fn a_file_that_cannot_be_written() {
    let program =
        Program::new(&[("new.json", r#"{ "servers": { "a": { "command": "a" } } }"#), ("mcp.json/file", "")]);
    assert_snapshot!(refused(&program, "import new.json"), @"
    exit code 1
    ----- stdout
    ----- stderr
    error: mcp.json is a folder; nothing was written
    hint: name a file in `registries` of toolgate.yaml
    ");
}

#[test]
fn invalid_usage() {
    assert_snapshot!(Program::new(&[]).run("import"), @"
    exit code 2
    ----- stdout
    ----- stderr
    error: the following required arguments were not provided:
      <FILE|CLIENT>

    Usage: toolgate import <FILE|CLIENT>

    For more information, try '--help'.
    ");
}

#[test]
fn keeps_what_clients_say_about_servers() {
    let program = Program::new(&[
        (
            ".cursor/mcp.json",
            r#"{"mcpServers": {"web": {"url": "https://a.example/mcp", "auth": {"CLIENT_ID": "abc", "CLIENT_SECRET": "hunter2hunter2", "scopes": ["read"]}}}}"#,
        ),
        (
            "~/.gemini/settings.json",
            r#"{"mcpServers": {"g": {"httpUrl": "https://g.example/mcp", "headers": {"X": "$G_TOKEN"}, "timeout": 5000, "includeTools": ["a"]}}}"#,
        ),
    ]);
    assert_eq!(program.run("import cursor").code, 0);
    let run = program.run("import gemini");
    assert_eq!(run.code, 0, "{run}");
    assert_snapshot!(program.read("mcp.json"), @r#"
    {
      "servers": {
        "web": {
          "url": "https://a.example/mcp",
          "oauth": {
            "client_id": "abc",
            "client_secret": "${WEB_CLIENT_SECRET}",
            "scopes": ["read"]
          }
        },
        "g": {
          "url": "https://g.example/mcp",
          "headers": {
            "X": "${G_TOKEN}"
          },
          "request_timeout": "5000ms",
          "tool_allowlist": ["a"]
        }
      }
    }
    "#);
    assert!(program.read(".env").contains("hunter2hunter2"));
}

#[test]
fn servers_that_claude_code_disables_stay_disabled() {
    let program = Program::new(&[
        (".mcp.json", r#"{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}"#),
        (".claude/settings.local.json", r#"{"disabledMcpjsonServers": ["b"]}"#),
    ]);
    let project = program.project.display().to_string();
    let own = serde_json::json!({
        "mcpServers": { "b": { "command": "never" }, "c": { "command": "c" }, "d": { "command": "d" } },
        "projects": { project: { "disabledMcpServers": ["c"] } } });
    program.write("~/.claude.json", own.to_string());
    let run = program.run("import claude-code");
    assert_eq!(run.code, 0, "{run}");
    let registry: serde_json::Value = serde_json::from_str(&program.read("mcp.json")).expect("JSON");
    let disabled = |name: &str| registry["servers"][name]["enabled"] == false;
    assert_eq!(["a", "b", "c", "d"].map(disabled), [false, true, true, false], "{registry:#}");
}

#[test]
fn looks_in_the_current_folder_too() {
    let program = Program::new(&[
        (".vscode/mcp.json", r#"{"servers": {"here": {"command": "a"}}}"#),
        ("gate/.vscode/settings.json", r#"{"mcp": {"servers": {"there": {"command": "b"}}}}"#),
    ]);
    let taken = program.run("-C gate import vscode --dry-run --json").json()["taken"].clone();
    let names: Vec<_> = taken.as_array().expect("a list").iter().map(|server| &server["name"]).collect();
    assert_eq!(names, ["there", "here"]);
}
