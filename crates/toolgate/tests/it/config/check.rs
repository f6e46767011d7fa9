//! `toolgate check`: its output, the origin of each value, and its exit codes.

use insta::assert_snapshot;
use serde_json::Value as Json;

use crate::support::program::{Program, RunOutput};

fn check(files: &[(&str, &str)], arguments: &str) -> RunOutput {
    Program::new(files).run(arguments)
}

/// A project with everything that `check` shows.
pub(crate) const WHOLE: [(&str, &str); 5] = [
    (
        "toolgate.yaml",
        r#"name: whole
description: One of everything.
registries: { tools: tools.json, mcp: mcp.json }
toolbox:
  max_concurrent: 20
  max_output: 512KiB
  on_collision: error
  tools:
    - { name: echo, timeout: PT2S, max_instances: 3 }
    - { name: github__search, mode: strict }
  mcps:
    - name: customers
      description: The customers.
      url: https://${CUSTOMERS_HOST}/mcp
      headers: { Authorization: "Bearer ${CUSTOMERS_TOKEN}" }
      mode: dynamic
      default_tool_config: { max_instances: 10, timeout: 30s }
      tool_denylist: [delete_customer]
"#,
    ),
    (
        "mcp.json",
        r#"{
  "inputs": [
    { "id": "key", "type": "promptString", "description": "API key", "password": true },
    { "id": "region", "type": "pickString", "description": "Region", "options": ["eu", "us"], "default": "eu" }
  ],
  "servers": {
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github", "--region=${input:region}"],
      "env": { "GITHUB_TOKEN": "${input:key}", "HTTP_PROXY": null }
    },
    "old": { "type": "sse", "url": "http://localhost:8000/sse", "enabled": false }
  }
}
"#,
    ),
    (
        "tools.json",
        r#"{ "tools": [{ "name": "echo", "description": "Says it again.", "input_schema": { "type": "object",
  "properties": { "text": { "type": "string" } }, "required": ["text"] }, "rate_limit": { "max_calls": 5, "window_ms": 60000 } }] }
"#,
    ),
    ("echo.py", "def run(args):\n    return args\n"),
    (".env", "CUSTOMERS_HOST=customers.example.com\nCUSTOMERS_TOKEN=a-long-token\n"),
];

#[test]
fn the_quickstart() {
    let program = Program::new(&[]);
    program.run("init");
    assert_snapshot!(program.run("check"), @r"
    exit code 0
    ----- stdout
    project [project]
    Two script tools, and room for MCP servers.
    read from toolgate.yaml, tools/tools.json, mcp.json

    limits
        max_concurrent   16   toolgate.yaml:26:19
        default_timeout  30s  toolgate.yaml:27:20

    serve
        listen  127.0.0.1:7332  default address

    callers
        owner  *:*  toolgate.yaml:16:18

    results
        max_inline  64KiB  toolgate.yaml:23:15

    tools
      word_count · Counts the lines, words and characters of a text. Use it to find out how long a text is; it returns three numbers.
        script            tools/word_count.py run()  tools/tools.json:4:15
        arguments         text: string               tools/tools.json:7:23
        timeout           10s                        response_time
        parallel_capable  true                       tools/tools.json:28:27
        category          analysis                   tools/tools.json:25:19
        response_time     medium                     tools/tools.json:26:24
        idempotent        true                       tools/tools.json:27:21
        tags              text                       tools/tools.json:29:15
      disk_usage · Measures how much disk space a folder takes. Use it for questions about disk space; it returns kilobytes.
        script      tools/disk_usage.sh  tools/tools.json:39:15
        arguments   folder?: string      tools/tools.json:42:23
        timeout     10s                  toolgate.yaml:32:16
        category    query                tools/tools.json:50:19
        idempotent  true                 tools/tools.json:51:21
        tags        files                tools/tools.json:52:15

    ----- stderr
    13 defaults are not shown; use `--all`
    good: 0 MCP servers and 2 tools.
    next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    ");
}

#[test]
fn a_project_with_one_of_everything() {
    assert_snapshot!(check(&WHOLE, "check"), @r#"
    exit code 0
    ----- stdout
    whole [project]
    One of everything.
    read from toolgate.yaml, .env, tools.json, mcp.json

    limits
        max_concurrent  20      toolgate.yaml:5:19
        max_output      512KiB  toolgate.yaml:6:15
        on_collision    error   toolgate.yaml:7:17

    serve
        listen  127.0.0.1:7332  default address

    MCP servers
      customers · The customers.
        url                                https://${CUSTOMERS_HOST}/mcp  toolgate.yaml:14:12
        headers.Authorization              ***                            toolgate.yaml:15:16
        mode                               dynamic                        toolgate.yaml:16:13
        default_tool_config.max_instances  10                             toolgate.yaml:17:45
        default_tool_config.timeout        30s                            toolgate.yaml:17:58
        tool_denylist                      delete_customer                toolgate.yaml:18:22
      github
        command           npx      mcp.json:8:18
        args              -y @modelcontextprotocol/server-github --region=${input:region}  mcp.json:9:15
        env.GITHUB_TOKEN  ***      mcp.json:10:14
        env.HTTP_PROXY    (unset)  mcp.json:10:14

    tools
      echo · Says it again.
        script                echo.py run()  tools.json:1:23
        arguments             text: string   tools.json:1:80
        timeout               2s             toolgate.yaml:9:30
        max_instances         3              toolgate.yaml:9:51
        rate_limit.max_calls  5              tools.json:2:89
        rate_limit.window     1m             tools.json:2:89

    settings for tools of servers
      github__search
        mode  strict  toolgate.yaml:10:37

    asked for when servers start
        key     API key  or set TOOLGATE_INPUT_KEY
        region  Region   answered

    variables
        CUSTOMERS_HOST   ***  .env:1:1
        CUSTOMERS_TOKEN  ***  .env:2:1

    ----- stderr
    note: MCP server `old` is not enabled
      --> mcp.json:12:5
    12 |     "old": { "type": "sse", "url": "http://localhost:8000/sse", "enabled": false }
       |     ^^^^^

    32 defaults are not shown; use `--all`
    good: 2 MCP servers and 1 tool, with 1 note.
    next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    "#);
}

#[test]
fn a_project_with_one_of_everything_for_programs() {
    let run = check(&WHOLE, "check --json");
    assert!(run.json()["ok"].as_bool().unwrap());
    assert_snapshot!(run);
}

#[test]
fn no_project() {
    assert_snapshot!(check(&[], "check"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: there is no project in `[project]`
    hint: run `toolgate init` to write one, or name a file with `--file`

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn no_folder() {
    assert_snapshot!(check(&[], "-C nowhere check"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: the folder `[project]/nowhere` does not exist
    hint: name an existing folder with `-C`, or run `toolgate init DIR`

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn no_file() {
    assert_snapshot!(check(&[], "--file other.yaml check"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: the file `other.yaml` does not exist
    hint: paths start at the project folder, which `-C` names

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn registries_without_a_project_file() {
    let files = [
        ("tools.json", r#"{"tools": []}"#),
        (".vscode/mcp.json", r#"{"servers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}"#),
    ];
    assert_snapshot!(check(&files, "check"), @r"
    exit code 0
    ----- stdout
    project [project]
    read from tools.json, .vscode/mcp.json

    serve
        listen  127.0.0.1:7332  default address

    MCP servers
      time
        command  uvx              .vscode/mcp.json:1:34
        args     mcp-server-time  .vscode/mcp.json:1:49

    ----- stderr
    21 defaults are not shown; use `--all`
    good: 1 MCP server and 0 tools.
    next: change tools.json and check again, or add MCP servers with `toolgate import CLIENT`
    ");
}

#[test]
fn an_empty_project_file() {
    assert_snapshot!(check(&[("toolgate.yaml", "# Nothing yet.\n")], "check"), @r"
    exit code 0
    ----- stdout
    project [project]
    read from toolgate.yaml

    serve
        listen  127.0.0.1:7332  default address

    ----- stderr
    9 defaults are not shown; use `--all`
    good: 0 MCP servers and 0 tools.
    next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    ");
}

#[test]
fn a_project_file_with_another_name() {
    let files = [
        ("toolgate.yaml", "broken: ["),
        ("other.toml", "[mcp_servers.docs]\nurl = 'https://docs.example.com/mcp'\n"),
    ];
    assert_snapshot!(check(&files, "--file other.toml check"), @r"
    exit code 0
    ----- stdout
    project [project]
    read from other.toml

    serve
        listen  127.0.0.1:7332  default address

    MCP servers
      docs
        url  https://docs.example.com/mcp  other.toml:2:7

    ----- stderr
    21 defaults are not shown; use `--all`
    good: 1 MCP server and 0 tools.
    next: change other.toml and check again, or add MCP servers with `toolgate import CLIENT`
    ");
}

#[test]
fn a_project_in_another_folder() {
    let files = [("inner/toolgate.yaml", "name: inner\ntoolbox: { max_concurrent: 0 }\n")];
    assert_snapshot!(check(&files, "check -C inner"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: `0` is not a positive whole number in toolbox
      --> toolgate.yaml:2:28
    2 | toolbox: { max_concurrent: 0 }
      |                            ^
    hint: write a whole number from 1 on

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn an_agent_file() {
    let files = [
        (
            "agent.yaml",
            r#"name: research
description: Finds things out.
model: { provider: openai, name: gpt-4o }
instructions: { inline: Be kind. }
tools:
  - name: filesystem
    description: Files
    type: mcp
    server: "@modelcontextprotocol/server-filesystem"
    config: { allowed_directories: [./data], allowed_tools: [read_file] }
  - name: add
    description: Adds two numbers
    type: function
    file: tools/add.py
    function: add
    parameters: { a: { type: number, required: true }, b: { type: number } }
  - { name: notes, type: vectorstore, source: notes/ }
evaluations: { metrics: [] }
"#,
        ),
        ("tools/add.py", ""),
        ("skills/sums/SKILL.md", "---\nname: sums\ndescription: Sums up tables.\n---\nRun sum.py.\n"),
        ("skills/broken/SKILL.md", "---\ndescription: Breaks.\nname: not a name\n---\n"),
        ("skills/empty/sum.py", ""),
    ];
    assert_snapshot!(check(&files, "check"), @r"
    exit code 0
    ----- stdout
    research [project]
    Finds things out.
    read from agent.yaml

    serve
        listen  127.0.0.1:7332  default address

    agent
        instructions    Be kind.         agent.yaml:4:15
        model.provider  openai           agent.yaml:3:20
        model.name      gpt-4o           agent.yaml:3:34
        skill sums      Sums up tables.  skills/sums

    MCP servers
      filesystem · Files
        command         npx                                         agent.yaml:9:13
        args            -y @modelcontextprotocol/server-filesystem  agent.yaml:9:13
        tool_allowlist  ***                                         agent.yaml:10:61
        config          ***                                         agent.yaml:10:13

    tools
      add · Adds two numbers
        script     tools/add.py add()     agent.yaml:11:11
        arguments  a: number, b?: number  agent.yaml:11:5

    ----- stderr
    note: tool `notes` of type `vectorstore` is not used
      --> agent.yaml:17:26
    17 |   - { name: notes, type: vectorstore, source: notes/ }
       |                          ^^^^^^^^^^^

    note: `evaluations` is not used
      --> agent.yaml:18:1
    18 | evaluations: { metrics: [] }
       | ^^^^^^^^^^^

    warning: skill ignored: `SKILL.md` is missing
      --> skills/empty
    warning: skill ignored: invalid skill name `not a name`: use letters, digits, `-` and `_`
      --> skills/broken/SKILL.md:3:1
    37 defaults are not shown; use `--all`
    good: 1 MCP server and 1 tool, with 2 notes.
    next: change agent.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    ");
}

#[test]
fn a_myai_tree_with_its_siblings() {
    let files = [(
        "config.yaml",
        "logging: { level: info }
myai:
  system_instruction: [{ text: Help. }]
  toolbox:
    max_concurrent: 10
    tools: [{ name: get_customer, max_instances: 10, timeout: P0DT0H0M30S }]
    mcps:
      - { name: customers, url: 'http://localhost:8180/mcp', transport: streamable_http, mode: strict, prompts: [] }
",
    )];
    assert_snapshot!(check(&files, "check"), @r"
    exit code 0
    ----- stdout
    project [project]
    read from config.yaml

    limits
        max_concurrent  10  config.yaml:5:21

    serve
        listen  127.0.0.1:7332  default address

    MCP servers
      customers
        transport  http                       config.yaml:8:73
        url        http://localhost:8180/mcp  config.yaml:8:33
        mode       strict                     config.yaml:8:96
        prompts    (none)                     config.yaml:8:113

    settings for tools of servers
      get_customer
        max_instances  10   config.yaml:6:50
        timeout        30s  config.yaml:6:63

    ----- stderr
    note: `logging` is not used
      --> config.yaml:1:1
    1 | logging: { level: info }
      | ^^^^^^^

    note: `system_instruction` in myai is not used
      --> config.yaml:3:3
    3 |   system_instruction: [{ text: Help. }]
      |   ^^^^^^^^^^^^^^^^^^

    18 defaults are not shown; use `--all`
    good: 1 MCP server and 0 tools, with 2 notes.
    next: change config.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    ");
}

mod overrides {
    use super::*;

    const PROJECT: &str = "toolbox:
  mcps:
    - { name: customers, url: 'http://localhost:8180/mcp', mode: strict, default_tool_config: { timeout: 5s } }
";

    fn servers(file: &str, text: &str, variables: &[(&str, &str)]) -> String {
        let program = Program::new(&[(file, text)]);
        let program = variables.iter().fold(program, |program, (name, value)| program.with(name, value));
        let run = program.run("check");
        let shown: String =
            run.stdout.split_inclusive('\n').skip_while(|line| !line.starts_with("MCP")).collect();
        format!("exit code {}\n{shown}{}", run.code, run.stderr)
    }

    #[test]
    fn by_number() {
        let variables = [("TOOLGATE__TOOLBOX__MCPS__0__MODE", "dynamic")];
        assert_snapshot!(servers("toolgate.yaml", PROJECT, &variables), @r"
        exit code 0
        MCP servers
          customers
            url                          http://localhost:8180/mcp  toolgate.yaml:3:31
            mode                         dynamic                    environment variable TOOLGATE__TOOLBOX__MCPS__0__MODE
            default_tool_config.timeout  5s                         toolgate.yaml:3:106

        20 defaults are not shown; use `--all`
        good: 1 MCP server and 0 tools.
        next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
        ");
    }

    #[test]
    fn by_name() {
        let variables = [("TOOLGATE__TOOLBOX__MCPS__CUSTOMERS__MODE", "dynamic")];
        assert_snapshot!(servers("toolgate.yaml", PROJECT, &variables), @r"
        exit code 0
        MCP servers
          customers
            url                          http://localhost:8180/mcp  toolgate.yaml:3:31
            mode                         dynamic                    environment variable TOOLGATE__TOOLBOX__MCPS__CUSTOMERS__MODE
            default_tool_config.timeout  5s                         toolgate.yaml:3:106

        20 defaults are not shown; use `--all`
        good: 1 MCP server and 0 tools.
        next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
        ");
    }

    #[test]
    fn a_myai_tree() {
        let text = "myai:\n  toolbox:\n    mcps: [{ name: a, url: 'http://localhost:1/mcp', mode: strict, default_tool_config: {} }]\n";
        let variables = [("APP_MYAI__TOOLBOX__MCPS__0__MODE", "dynamic"), ("APP_OTHER__THING", "1")];
        assert_snapshot!(servers("config.yaml", text, &variables), @r"
        exit code 0
        MCP servers
          a
            url                  http://localhost:1/mcp  config.yaml:3:28
            mode                 dynamic                 environment variable APP_MYAI__TOOLBOX__MCPS__0__MODE
            default_tool_config  {}                      config.yaml:3:89

        20 defaults are not shown; use `--all`
        good: 1 MCP server and 0 tools.
        next: change config.yaml and check again, or add MCP servers with `toolgate import CLIENT`
        ");
    }

    #[test]
    fn a_new_server() {
        let variables = [(
            "TOOLGATE__TOOLBOX__MCPS__1",
            "{name: more, command: more-server, args: [--fast], mode: strict}",
        )];
        assert_snapshot!(servers("toolgate.yaml", PROJECT, &variables), @r"
        exit code 0
        MCP servers
          customers
            url   http://localhost:8180/mcp  toolgate.yaml:3:31
            mode  strict                     toolgate.yaml:3:66
          more
            command  more-server  environment variable TOOLGATE__TOOLBOX__MCPS__1
            args     --fast       environment variable TOOLGATE__TOOLBOX__MCPS__1
            mode     strict       environment variable TOOLGATE__TOOLBOX__MCPS__1

        31 defaults are not shown; use `--all`
        good: 2 MCP servers and 0 tools.
        next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
        ");
    }

    #[test]
    fn invalid_variables_are_reported_by_name() {
        let variables = [
            ("TOOLGATE__TOOLBOX__MCPS__0__MODE", "dynamical"),
            ("TOOLGATE__TOOLBOX__MAX_CONCURRENT", "-1"),
            ("TOOLGATE__TOOLBOX__MAX_CONCURENT", "1"),
            ("TOOLGATE__TOOLBOX__MCPS__NOBODY__MODE", "strict"),
            ("TOOLGATE__TOOLBOX__MCPS__7__MODE", "strict"),
            ("TOOLGATE__TOOLBOX____MODE", "strict"),
            ("TOOLGATE__TOOLBOX__DEFAULT_TIMEOUT__SECONDS", "3"),
            ("TOOLGATE__TOOLBOX__TOOLS", "[{name: x"),
        ];
        assert_snapshot!(servers("toolgate.yaml", PROJECT, &variables), @"
        exit code 78
        error: a map does not fit `default_timeout` in toolbox
          --> environment variable TOOLGATE__TOOLBOX__DEFAULT_TIMEOUT__SECONDS
        1 | 3
          | ^
        hint: a duration is expected

        error: unknown key `max_concurent` in toolbox
          --> environment variable TOOLGATE__TOOLBOX__MAX_CONCURENT
        1 | 1
          | ^
        hint: did you mean `max_concurrent`?

        error: `-1` is not a positive whole number in toolbox
          --> environment variable TOOLGATE__TOOLBOX__MAX_CONCURRENT
        1 | -1
          | ^^
        hint: write a whole number from 1 on

        error: `dynamical` is not a mode in MCP server `customers`
          --> environment variable TOOLGATE__TOOLBOX__MCPS__0__MODE
        1 | dynamical
          | ^^^^^^^^^
        hint: did you mean `dynamic`?

        error: this variable has no target: the list has 1 entry and none is called `7`
          --> environment variable TOOLGATE__TOOLBOX__MCPS__7__MODE
        1 | strict
          | ^^^^^^
        hint: its parts are the keys of the project file, joined by `__`

        error: this variable has no target: the list has 1 entry and none is called `NOBODY`
          --> environment variable TOOLGATE__TOOLBOX__MCPS__NOBODY__MODE
        1 | strict
          | ^^^^^^
        hint: its parts are the keys of the project file, joined by `__`

        error: not valid YAML: unclosed bracket '{'
          --> environment variable TOOLGATE__TOOLBOX__TOOLS
        1 | [{name: x
          |  ^
        hint: look for a `[` or `{` before this that is not closed

        error: this variable has no target: a part of it is empty
          --> environment variable TOOLGATE__TOOLBOX____MODE
        1 | strict
          | ^^^^^^
        hint: its parts are the keys of the project file, joined by `__`

        refused: 8 errors; nothing was started.
        next: fix the problems above and run `toolgate check` again
        ");
    }
}

mod usage {
    use super::*;

    #[test]
    fn no_command() {
        let run = check(&[], "");
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        assert!(run.stderr.contains("Usage: toolgate"), "{run}");
    }

    #[test]
    fn an_unknown_command() {
        assert_snapshot!(check(&[], "chek"), @"
        exit code 2
        ----- stdout
        ----- stderr
        error: unrecognized subcommand 'chek'

          tip: some similar subcommands exist: 'schema', 'check'

        Usage: toolgate [OPTIONS] <COMMAND>

        For more information, try '--help'.
        ");
    }

    #[test]
    fn an_unknown_flag() {
        assert_snapshot!(check(&[], "check --jsn"), @"
        exit code 2
        ----- stdout
        ----- stderr
        error: unexpected argument '--jsn' found

          tip: a similar argument exists: '--json'

        Usage: toolgate check --json

        For more information, try '--help'.
        ");
    }

    #[test]
    fn an_extra_argument() {
        assert_snapshot!(check(&[], "check folder"), @"
        exit code 2
        ----- stdout
        ----- stderr
        error: unexpected argument 'folder' found

        Usage: toolgate check [OPTIONS]

        For more information, try '--help'.
        ");
    }
}

const CARD: &str = r#"{"tools": [{
  "name": "get-card",
  "description": "Retrieves a card by ID. Use when you need to access card content.",
  "input_schema": { "type": "object", "properties": { "cardId": { "type": "string", "description": "The id" } } },
  "permissions": ["cards:read"],
  "category": "query",
  "response_time": "fast",
  "cacheable": false,
  "idempotent": true,
  "examples": [{ "description": "Get a card", "params": { "cardId": "card_123" } }],
  "tags": ["cards"]
}]}"#;

#[test]
fn the_tool_contract() {
    let files = [("tools.json", CARD), ("get-card.py", "")];
    assert_snapshot!(check(&files, "check --contract full"), @"
    exit code 0
    ----- stdout
    get-card 14 of 14 met
      met      name           a verb and a noun in kebab-case, such as `create-card`  tools.json:2:11
      met      description    at least 50 characters: what it does, when to use it, what it returns  tools.json:3:18
      met      input_schema   every argument has a description  tools.json:4:19
      met      permissions    written, if only as `[]`  tools.json:5:18
      met      category       written  tools.json:6:15
      met      response_time  written  tools.json:7:20
      met      cacheable      written, and false for a mutation  tools.json:8:16
      met      cache_ttl      written where it is cacheable  tools.json:2:11
      met      idempotent     written, and true for a query  tools.json:9:17
      met      examples       at least one, and each fits the schemas  tools.json:10:15
      met      tags           at least one  tools.json:11:11
      met      version        three numbers, such as `1.2.3`  tools.json:2:11
      met      script_path    the script exists  tools.json:2:11
      met      result         a ToolResult with complete agentHints and metadata, added by Toolgate  tools.json:2:11

    ----- stderr
    met: all 14 rules of 1 tool.
    ");
    let less = CARD.replace("get-card\"", "card\"").replace("Use when you need to access card content.", "");
    let less = less.replace("\"idempotent\": true,", "").replace("\"tags\": [\"cards\"]", "\"tags\": []");
    let files = [("tools.json", less.as_str()), ("card.py", "")];
    assert_snapshot!(check(&files, "check --contract full"), @"
    exit code 1
    ----- stdout
    card 10 of 14 met
      not met  name           a verb and a noun in kebab-case, such as `create-card` – it is `card`  tools.json:2:11
      not met  description    at least 50 characters: what it does, when to use it, what it returns – it has 23  tools.json:3:18
      met      input_schema   every argument has a description  tools.json:4:19
      met      permissions    written, if only as `[]`  tools.json:5:18
      met      category       written  tools.json:6:15
      met      response_time  written  tools.json:7:20
      met      cacheable      written, and false for a mutation  tools.json:8:16
      met      cache_ttl      written where it is cacheable  tools.json:2:11
      not met  idempotent     written, and true for a query – it is false  tools.json:2:11
      met      examples       at least one, and each fits the schemas  tools.json:10:15
      not met  tags           at least one – there is none  tools.json:11:11
      met      version        three numbers, such as `1.2.3`  tools.json:2:11
      met      script_path    the script exists  tools.json:2:11
      met      result         a ToolResult with complete agentHints and metadata, added by Toolgate  tools.json:2:11

    ----- stderr
    not met: 4 of 14 rules in 1 tool.
    next: fix the unmet rules and run `toolgate check --contract full` again
    ");
    // The default level does not require any of it.
    assert_eq!(check(&files, "check").code, 0);
}

#[test]
fn the_tool_contract_as_json() {
    let run = check(&[("tools.json", CARD)], "check --contract full --json");
    let answer: Json = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &answer["ok"]), (1, &Json::from(false)));
    let rules = answer["contract"][0]["rules"].as_array().unwrap();
    let not_met: Vec<_> = rules.iter().filter(|rule| rule["met"] == false).collect();
    assert_eq!(not_met.len(), 1);
    assert_eq!(not_met[0]["rule"], "script_path");
    assert_eq!(answer["contract"][0]["tool"], "get-card");
}

#[test]
fn groups_and_their_members() {
    let project = "groups:
  ops: { permissions: [\"files:*\"] }
  dev: {}
callers:
  - { id: ann, groups: [ops, dev] }
  - { id: bob, description: The build, groups: dev, permissions: [\"tools:*\"] }
";
    let run = Program::new(&[("toolgate.yaml", project)]).run("check");
    for line in [
        "groups\n    ops  files:*  toolgate.yaml:2:23\n",
        "    ann  in ops dev                    toolgate.yaml:5:24\n",
        "    bob  tools:* · in dev · The build  toolgate.yaml:6:66\n",
    ] {
        assert!(run.stdout.contains(line), "{line}\n{run}");
    }
}

#[test]
fn callers_policy_and_egress() {
    let project = "callers:
  - { id: owner, permissions: [\"*:*\"] }
  - { id: ci, description: The build, permissions: [\"tools:*\", \"files:read\"] }
  - { id: guest }
egress: { canaries: [the blue heron], secrets: true }
";
    let rule = "@id(\"guests-read\")\npermit(principal == Caller::\"guest\", action, resource)\n  when { resource.risk == \"low\" };\n";
    let files = [("toolgate.yaml", project), ("policy.cedar", rule)];
    assert_snapshot!(check(&files, "check"), @r"
    exit code 0
    ----- stdout
    project [project]
    read from toolgate.yaml, policy.cedar

    serve
        listen  127.0.0.1:7332  default address

    callers
        owner  *:*                             toolgate.yaml:2:31
        ci     tools:* files:read · The build  toolgate.yaml:3:52

    policy
        policy.cedar  1 rule  found by its name

    egress
        canaries  ***   toolgate.yaml:5:21
        secrets   true  toolgate.yaml:5:48

    ----- stderr
    10 defaults are not shown; use `--all`
    good: 0 MCP servers and 0 tools.
    next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    ");
    // Nothing starts with invalid rules.
    let wrong = rule.replace("risk", "rsk");
    let files = [("toolgate.yaml", project), ("policy.cedar", wrong.as_str())];
    assert_snapshot!(check(&files, "check"), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: attribute `rsk` on entity type `Tool` not found, in rule `guests-read`
      --> policy.cedar:3:10
    3 |   when { resource.rsk == "low" };
      |          ^^^^^^^^^^^^
    hint: see docs/policy.md

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
    assert_eq!(check(&files, "tools list").code, 78);
}
