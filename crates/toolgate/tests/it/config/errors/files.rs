//! Errors in several files, missing files, and errors as JSON.

use insta::assert_snapshot;

use super::check;
use crate::support::program::Program;

#[test]
fn missing_registries() {
    let files =
        [("toolgate.yaml", "registries:\n  tools: tools/tools.json\n  mcp: folder\n"), ("folder/file", "")];
    assert_snapshot!(check(&files), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: the registry `tools/tools.json` does not exist
      --> toolgate.yaml:2:10
    2 |   tools: tools/tools.json
      |          ^^^^^^^^^^^^^^^^
    hint: create it, or let `toolgate init` write a project to start from

    error: the registry `folder` is a folder
      --> toolgate.yaml:3:8
    3 |   mcp: folder
      |        ^^^^^^
    hint: create it, or let `toolgate init` write a project to start from

    refused: 2 errors; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn env_files() {
    let files =
        [("toolgate.yaml", "toolbox: {}\n"), (".env", "GOOD=1\njust words\n2BAD=x\nOPEN=\"never closed\n")];
    assert_snapshot!(check(&files), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: this line sets no variable
      --> .env:2:1
    2 | ***
      | ^^^
    hint: write `NAME=value`, or start a comment with `#`

    error: this is not a valid variable name
      --> .env:3:1
    3 | ***
      | ^^^
    hint: names are letters, digits and `_`

    error: the closing " is missing
      --> .env:4:1
    4 | OPEN=***
      | ^^^^^^^^
    hint: close the quote, or remove both

    refused: 3 errors; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
    let files = [("toolgate.yaml", "env_file: [missing.env, also.env]\ntoolbox: {}\n"), ("also.env", "")];
    assert_snapshot!(check(&files), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: the file `missing.env` does not exist
      --> toolgate.yaml:1:12
    1 | env_file: [missing.env, also.env]
      |            ^^^^^^^^^^^
    hint: create it, or remove it here; paths start at the project folder

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn errors_in_several_files_are_sorted() {
    let files = [
        (
            "toolgate.yaml",
            "\
registries: { tools: tools/tools.json, mcp: mcp.json }
toolbox:
  default_timeot: 5s
  mcps:
    - { name: a, url: 'http://localhost/', mode: dynamic }
    - { name: b, url: nowhere, mode: strict }
",
        ),
        ("tools/tools.json", "{ \"tools\": [ { \"name\": \"t\" \"description\": \"d\" } ] }\n"),
        ("mcp.json", "{ \"servers\": { \"c\": { \"command\": \"${NOBODY}\" } } }\n"),
        (".env", "not a line\n"),
    ];
    assert_snapshot!(check(&files), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: unknown key `default_timeot` in toolbox
      --> toolgate.yaml:3:3
    3 |   default_timeot: 5s
      |   ^^^^^^^^^^^^^^
    hint: did you mean `default_timeout`?

    error: MCP server 'a' is configured with mode='dynamic' but missing required field 'default_tool_config'
      --> toolgate.yaml:5:50
    5 |     - { name: a, url: 'http://localhost/', mode: dynamic }
      |                                                  ^^^^^^^
    hint: add `default_tool_config: { max_instances: 10, timeout: 30s }`

    error: `nowhere` is not a URL in MCP server `b`: relative URL without a base
      --> toolgate.yaml:6:23
    6 |     - { name: b, url: nowhere, mode: strict }
      |                       ^^^^^^^
    hint: write a complete URL, such as `http://localhost:8080/mcp`

    error: this line sets no variable
      --> .env:1:1
    1 | ***
      | ^^^
    hint: write `NAME=value`, or start a comment with `#`

    error: not valid JSON: expected comma
      --> tools/tools.json:1:27
    1 | { "tools": [ { "name": "t" "description": "d" } ] }
      |                           ^

    error: environment variable `NOBODY` is not set, and MCP server `c` needs it
      --> mcp.json:1:35
    1 | { "servers": { "c": { "command": "${NOBODY}" } } }
      |                                   ^^^^^^^^^
    hint: set it in the environment or in `.env`, or write `${NOBODY:-default}`

    refused: 6 errors; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
}

#[test]
fn errors_as_json() {
    let files = [
        (
            "toolgate.yaml",
            "registries: { mcp: mcp.json, tools: missing.json }\ntoolbox: { max_concurrent: none }\n",
        ),
        ("mcp.json", "{ \"servers\": { \"c\": { \"command\": \"${NOBODY}\" } } }\n"),
    ];
    let run = Program::new(&files).with("TOOLGATE__TOOLBOX__MAX_OUTPUT", "big").run("check --json");
    assert_eq!(run.json()["ok"], false);
    assert_snapshot!(run, @r#"
    exit code 78
    ----- stdout
    {
      "ok": false,
      "problems": [
        {
          "severity": "error",
          "message": "the registry `missing.json` does not exist",
          "file": "toolgate.yaml",
          "line": 1,
          "column": 37,
          "hint": "create it, or let `toolgate init` write a project to start from"
        },
        {
          "severity": "error",
          "message": "`none` is not a positive whole number in toolbox",
          "file": "toolgate.yaml",
          "line": 2,
          "column": 28,
          "hint": "write a whole number from 1 on"
        },
        {
          "severity": "error",
          "message": "`big` is not a size in toolbox",
          "file": "environment variable TOOLGATE__TOOLBOX__MAX_OUTPUT",
          "hint": "a number of bytes, or one with `KiB`, `MiB`, `GiB`, `KB`, `MB` or `GB` is expected"
        },
        {
          "severity": "error",
          "message": "environment variable `NOBODY` is not set, and MCP server `c` needs it",
          "file": "mcp.json",
          "line": 1,
          "column": 35,
          "hint": "set it in the environment or in `.env`, or write `${NOBODY:-default}`"
        }
      ]
    }
    ----- stderr
    error: the registry `missing.json` does not exist
      --> toolgate.yaml:1:37
    1 | registries: { mcp: mcp.json, tools: missing.json }
      |                                     ^^^^^^^^^^^^
    hint: create it, or let `toolgate init` write a project to start from

    error: `none` is not a positive whole number in toolbox
      --> toolgate.yaml:2:28
    2 | toolbox: { max_concurrent: none }
      |                            ^^^^
    hint: write a whole number from 1 on

    error: `big` is not a size in toolbox
      --> environment variable TOOLGATE__TOOLBOX__MAX_OUTPUT
    1 | big
      | ^^^
    hint: a number of bytes, or one with `KiB`, `MiB`, `GiB`, `KB`, `MB` or `GB` is expected

    error: environment variable `NOBODY` is not set, and MCP server `c` needs it
      --> mcp.json:1:35
    1 | { "servers": { "c": { "command": "${NOBODY}" } } }
      |                                   ^^^^^^^^^
    hint: set it in the environment or in `.env`, or write `${NOBODY:-default}`

    refused: 4 errors; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
}

#[test]
fn warnings_and_notes_reject_nothing() {
    let files = [
        ("toolgate.yaml", "registries: { tools: tools.json, mcp: mcp.json }\n"),
        (
            "tools.json",
            r#"{ "tools": [{ "name": "echo", "description": "a", "input_schema": {}, "cache_ttl": 3 }] }"#,
        ),
        (
            "mcp.json",
            r#"{ "servers": { "a": { "command": "a", "gallery": true }, "b": { "command": "b", "disabled": true } }, "sandbox": {} }"#,
        ),
    ];
    let run = Program::new(&files).run("check");
    assert_eq!(run.code, 0, "{run}");
    assert_snapshot!(run.stderr, @r#"
    warning: the script `echo.py` of tool `echo` does not exist
      --> tools.json:1:23
    1 | { "tools": [{ "name": "echo", "description": "a", "input_schema": {}, "cache_ttl": 3 }] }
      |                       ^^^^^^
    hint: create it, or correct `script_path`; until then calls fail with `tool_execution_error`

    warning: `cache_ttl` without `cacheable: true` does nothing in tool `echo`
      --> tools.json:1:71
    1 | { "tools": [{ "name": "echo", "description": "a", "input_schema": {}, "cache_ttl": 3 }] }
      |                                                                       ^^^^^^^^^^^
    hint: add `"cacheable": true`, or remove it

    note: `gallery` in MCP server `a` is not used
      --> mcp.json:1:39
    1 | { "servers": { "a": { "command": "a", "gallery": true }, "b": { "command": "b", "disabled": true } }, "sandbox": {} }
      |                                       ^^^^^^^^^

    note: MCP server `b` is not enabled
      --> mcp.json:1:58
    1 | { "servers": { "a": { "command": "a", "gallery": true }, "b": { "command": "b", "disabled": true } }, "sandbox": {} }
      |                                                          ^^^

    note: `sandbox` is not used
      --> mcp.json:1:103
    1 | …"command": "a", "gallery": true }, "b": { "command": "b", "disabled": true } }, "sandbox": {} }
      |                                                                                  ^^^^^^^^^

    25 defaults are not shown; use `--all`
    good: 1 MCP server and 1 tool, with 2 warnings, 3 notes.
    next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    "#);
}
