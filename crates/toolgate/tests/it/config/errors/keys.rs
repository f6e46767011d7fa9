//! Unknown keys, invalid values and duplicates.

use insta::assert_snapshot;

use super::{check, project};

#[test]
fn unknown_keys() {
    assert_snapshot!(project("\
toolbx: {}
toolbox:
  max_concurent: 3
  tools:
    - { name: a, timeouts: 3s }
  mcps:
    - name: b
      command: b
      mode: strict
      header: {}
      default_tool_config: { max_instance: 1 }
      zzz: 1
"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: unknown key `toolbx`
      --> toolgate.yaml:1:1
    1 | toolbx: {}
      | ^^^^^^
    hint: did you mean `toolbox`?

    error: unknown key `max_concurent` in toolbox
      --> toolgate.yaml:3:3
    3 |   max_concurent: 3
      |   ^^^^^^^^^^^^^
    hint: did you mean `max_concurrent`?

    error: unknown key `timeouts` in tool settings `a`
      --> toolgate.yaml:5:18
    5 |     - { name: a, timeouts: 3s }
      |                  ^^^^^^^^
    hint: did you mean `timeout`?

    error: unknown key `header` in MCP server `b`
      --> toolgate.yaml:10:7
    10 |       header: {}
       |       ^^^^^^
    hint: did you mean `headers`?

    error: unknown key `max_instance` in default_tool_config
      --> toolgate.yaml:11:30
    11 |       default_tool_config: { max_instance: 1 }
       |                              ^^^^^^^^^^^^
    hint: did you mean `max_instances`?

    error: unknown key `zzz` in MCP server `b`
      --> toolgate.yaml:12:7
    12 |       zzz: 1
       |       ^^^
    hint: `toolgate schema --reference` shows every key

    refused: 6 errors; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn values_of_the_wrong_type() {
    assert_snapshot!(project("\
name: [a]
registries: tools.json
toolbox:
  max_concurrent: {}
  tools: { name: a }
  mcps:
    - nothing
    - { name: b, command: [x], args: --fast, env: [A=1], mode: strict }
    - { name: null, command: x, mode: strict }
"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: a list does not fit `name` in project file
      --> toolgate.yaml:1:7
    1 | name: [a]
      |       ^^^
    hint: a string is expected

    error: a string does not fit `registries` in project file
      --> toolgate.yaml:2:13
    2 | registries: tools.json
      |             ^^^^^^^^^^
    hint: a map of keys and values is expected

    error: a map does not fit `max_concurrent` in toolbox
      --> toolgate.yaml:4:19
    4 |   max_concurrent: {}
      |                   ^^
    hint: a positive whole number is expected

    error: a map does not fit `tools` in toolbox
      --> toolgate.yaml:5:12
    5 |   tools: { name: a }
      |            ^^^^
    hint: a list of tool settings is expected

    error: a string does not fit `mcps` in toolbox
      --> toolgate.yaml:7:7
    7 |     - nothing
      |       ^^^^^^^
    hint: a map of keys and values is expected

    error: a list does not fit `command` in MCP server `b`
      --> toolgate.yaml:8:27
    8 |     - { name: b, command: [x], args: --fast, env: [A=***], mode: strict }
      |                           ^^^
    hint: a string is expected

    error: a string does not fit `args` in MCP server `b`
      --> toolgate.yaml:8:38
    8 |     - { name: b, command: [x], args: --fast, env: [A=***], mode: strict }
      |                                      ^^^^^^
    hint: a list of strings is expected

    error: a list does not fit `env` in MCP server `b`
      --> toolgate.yaml:8:51
    8 |     - { name: b, command: [x], args: --fast, env: [A=***], mode: strict }
      |                                                   ^^^^^^^
    hint: a map from names to values is expected

    error: missing key `name` in MCP server
      --> toolgate.yaml:9:7
    9 |     - { name: null, command: x, mode: strict }
      |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: give the server a name

    refused: 9 errors; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn values_out_of_range() {
    assert_snapshot!(project("\
toolbox:
  max_concurrent: 0
  default_timeout: 10 parsecs
  max_output: 4 apples
  on_collision: firs_wins
  tools:
    - { name: 'a b', timeout: -5s, max_instances: 2.5, parallel_capable: yes }
    - { name: c, timeout: 0, mode: loose }
  mcps:
    - { name: '', command: x, mode: strict }
    - { name: d, url: 'http://localhost/', transport: pigeon, mode: strikt }
    - { name: e, command: x, startup: never, encoding: runish, enabled: perhaps, mode: strict }
"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: `0` is not a positive whole number in toolbox
      --> toolgate.yaml:2:19
    2 |   max_concurrent: 0
      |                   ^
    hint: write a whole number from 1 on

    error: `10 parsecs` is not a duration in toolbox
      --> toolgate.yaml:3:20
    3 |   default_timeout: 10 parsecs
      |                    ^^^^^^^^^^
    hint: `30s`, `500ms`, `1m30s`, an ISO 8601 duration such as `PT30S`, or a number of seconds is expected

    error: `4 apples` is not a size in toolbox
      --> toolgate.yaml:4:15
    4 |   max_output: 4 apples
      |               ^^^^^^^^
    hint: a number of bytes, or one with `KiB`, `MiB`, `GiB`, `KB`, `MB` or `GB` is expected

    error: `firs_wins` is not a collision rule in toolbox
      --> toolgate.yaml:5:17
    5 |   on_collision: firs_wins
      |                 ^^^^^^^^^
    hint: `qualify`, `last_wins` or `error` is expected

    error: `a b` is not a tool's name in tool settings `a b`
      --> toolgate.yaml:7:15
    7 |     - { name: 'a b', timeout: -5s, max_instances: 2.5, parallel_capable: yes }
      |               ^^^^^
    hint: a tool's name is made of letters, digits, `_`, `.` and `-`

    error: `-5s` is not a duration in tool settings `a b`
      --> toolgate.yaml:7:31
    7 |     - { name: 'a b', timeout: -5s, max_instances: 2.5, parallel_capable: yes }
      |                               ^^^
    hint: a duration cannot be negative

    error: `2.5` is not a positive whole number in tool settings `a b`
      --> toolgate.yaml:7:51
    7 |     - { name: 'a b', timeout: -5s, max_instances: 2.5, parallel_capable: yes }
      |                                                   ^^^
    hint: write a whole number from 1 on

    error: `yes` is neither `true` nor `false` in tool settings `a b`
      --> toolgate.yaml:7:74
    7 |     - { name: 'a b', timeout: -5s, max_instances: 2.5, parallel_capable: yes }
      |                                                                          ^^^
    hint: write `true` or `false`

    error: `0` is not a duration in tool settings `c`
      --> toolgate.yaml:8:27
    8 |     - { name: c, timeout: 0, mode: loose }
      |                           ^
    hint: a duration must be more than zero

    error: `loose` is not a mode in tool settings `c`
      --> toolgate.yaml:8:36
    8 |     - { name: c, timeout: 0, mode: loose }
      |                                    ^^^^^
    hint: `strict` or `dynamic` is expected

    error: `` is not a server's name in MCP server
      --> toolgate.yaml:10:15
    10 |     - { name: '', command: x, mode: strict }
       |               ^^
    hint: a name has 1 to 64 characters

    error: `pigeon` is not a transport in MCP server `d`
      --> toolgate.yaml:11:55
    11 |     - { name: d, url: 'http://localhost/', transport: pigeon, mode: strikt }
       |                                                       ^^^^^^
    hint: `stdio`, `sse`, `websocket` or `http` is expected

    error: `strikt` is not a mode in MCP server `d`
      --> toolgate.yaml:11:69
    11 |     - { name: d, url: 'http://localhost/', transport: pigeon, mode: strikt }
       |                                                                     ^^^^^^
    hint: did you mean `strict`?

    error: `never` is not a startup mode in MCP server `e`
      --> toolgate.yaml:12:39
    12 |     - { name: e, command: x, startup: never, encoding: runish, enabled: perhaps, mode: strict }
       |                                       ^^^^^
    hint: `required`, `eager`, `optional` or `lazy` is expected

    error: `runish` is not an encoding in MCP server `e`
      --> toolgate.yaml:12:56
    12 |     - { name: e, command: x, startup: never, encoding: runish, enabled: perhaps, mode: strict }
       |                                                        ^^^^^^
    hint: use a name of the Encoding Standard, such as `utf-8`, `windows-1252`, `shift_jis` or `gb18030`

    error: `perhaps` is neither `true` nor `false` in MCP server `e`
      --> toolgate.yaml:12:73
    12 |     - { name: e, command: x, startup: never, encoding: runish, enabled: perhaps, mode: strict }
       |                                                                         ^^^^^^^
    hint: write `true` or `false`

    refused: 16 errors; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn variables() {
    let files = [
        (
            "toolgate.yaml",
            "\
registries: { mcp: mcp.json }
toolbox:
  max_concurrent: ${LIMIT}
  mcps:
    - name: a
      url: http://${HOST}/${PATH_OF_A:-mcp}
      headers: { Authorization: \"Bearer ${TOKEN}\", X-A: \"${A:b}\", X-B: \"${\" }
      mode: strict
",
        ),
        (
            "mcp.json",
            r#"{
  "servers": {
    "b": { "command": "b", "args": ["--key", "${MISSING}"], "env": { "X": "${env:ALSO_MISSING}", "Y": "${input:nobody}" } }
  }
}
"#,
        ),
    ];
    assert_snapshot!(check(&files), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: environment variable `LIMIT` is not set, and toolbox needs it
      --> toolgate.yaml:3:19
    3 |   max_concurrent: ${LIMIT}
      |                   ^^^^^^^^
    hint: set it in the environment or in `.env`, or write `${LIMIT:-default}`

    error: environment variable `HOST` is not set, and MCP server `a` needs it
      --> toolgate.yaml:6:19
    6 |       url: http://${HOST}/${PATH_OF_A:-mcp}
      |                   ^^^^^^^
    hint: set it in the environment or in `.env`, or write `${HOST:-default}`

    error: environment variable `TOKEN` is not set, and MCP server `a` needs it
      --> toolgate.yaml:7:41
    7 |       headers: { Authorization: "*** ${TOKEN}", X-A: "${A:b}", X-B: "${" }
      |                                      ^^^^^^^^
    hint: set it in the environment or in `.env`, or write `${TOKEN:-default}`

    error: `A:b` is not a valid variable name in MCP server `a`
      --> toolgate.yaml:7:58
    7 |       headers: { Authorization: "*** ${TOKEN}", X-A: "${A:b}", X-B: "${" }
      |                                                       ^^^^^^
    hint: write `${A:-b}` for a default

    error: `${` is not closed in MCP server `a`
      --> toolgate.yaml:7:73
    7 |       headers: { Authorization: "*** ${TOKEN}", X-A: "${A:b}", X-B: "${" }
      |                                                                      ^^
    hint: close it with `}`, or write `$${` for a literal `${`

    error: environment variable `MISSING` is not set, and MCP server `b` needs it
      --> mcp.json:3:47
    3 |     "b": { "command": "b", "args": ["--key", "${MISSING}"], "env": { "X": "${env:ALSO_MISSING}", "Y": "${input:nobody}" } }
      |                                               ^^^^^^^^^^
    hint: set it in the environment or in `.env`, or write `${MISSING:-default}`

    error: environment variable `ALSO_MISSING` is not set, and MCP server `b` needs it
      --> mcp.json:3:76
    3 |     "b": { "command": "b", "args": ["--key", "${MISSING}"], "env": { "X": "${env:ALSO_MISSING}", "Y": "${input:nobody}" } }
      |                                                                            ^^^^^^^^^^^^^^^^^^^
    hint: set it in the environment or in `.env`, or write `${ALSO_MISSING:-default}`

    error: input `nobody` is not declared in MCP server `b`
      --> mcp.json:3:104
    3 | …b", "args": ["--key", "${MISSING}"], "env": { "X": "${env:ALSO_MISSING}", "Y": "${input:nobody}" } }
      |                                                                                  ^^^^^^^^^^^^^^^
    hint: add an entry with `"id": "nobody"` to `inputs`

    refused: 8 errors; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
}

#[test]
fn duplicate_names() {
    let files = [
        (
            "toolgate.yaml",
            "\
registries: { tools: tools.json, mcp: mcp.json }
toolbox:
  tools: [{ name: echo }, { name: echo }]
  mcps:
    - { name: github, command: a, mode: strict }
    - { name: my server, command: a, mode: strict }
",
        ),
        ("mcp.json", r#"{ "servers": { "github": { "command": "b" }, "my-server": { "command": "b" } } }"#),
        (
            "tools.json",
            r#"{ "tools": [
  { "name": "echo", "description": "a", "input_schema": {}, "script_path": "echo.py" },
  { "name": "echo", "description": "b", "input_schema": {}, "script_path": "echo.py" }
] }"#,
        ),
        ("echo.py", ""),
    ];
    assert_snapshot!(check(&files), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: tool `echo` has settings already
      --> toolgate.yaml:3:35
    3 |   tools: [{ name: echo }, { name: echo }]
      |                                   ^^^^
    hint: the others are at toolgate.yaml:3:19; keep one

    error: tool `echo` is defined twice
      --> tools.json:3:13
    3 |   { "name": "echo", "description": "b", "input_schema": {}, "script_path": "echo.py" }
      |             ^^^^^^
    hint: the other is at tools.json:2:13; rename or remove one

    error: MCP server `github` is configured twice
      --> mcp.json:1:16
    1 | { "servers": { "github": { "command": "b" }, "my-server": { "command": "b" } } }
      |                ^^^^^^^^
    hint: the other is at toolgate.yaml:5:15; rename one

    error: MCP servers `my server` and `my-server` would share the prefix of their tools
      --> mcp.json:1:46
    1 | { "servers": { "github": { "command": "b" }, "my-server": { "command": "b" } } }
      |                                              ^^^^^^^^^^^
    hint: the other is at toolgate.yaml:6:15; rename one

    refused: 4 errors; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
}

#[test]
fn a_duplicate_key() {
    assert_snapshot!(project("toolbox: {}\nname: a\nname: b\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: the key `name` is given twice
      --> toolgate.yaml:3:1
    3 | name: b
      | ^^^^
    hint: keep one of the two

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
    assert_snapshot!(check(&[("mcp.json", r#"{ "servers": { "a": {}, "a": {} } }"#)]), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: the key `a` is given twice
      --> mcp.json:1:25
    1 | { "servers": { "a": {}, "a": {} } }
      |                         ^^^
    hint: keep one of the two

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
}
