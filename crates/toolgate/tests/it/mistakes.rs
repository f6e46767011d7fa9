//! Every kind of mistake in a configuration, as the person who made it sees it.

use insta::assert_snapshot;

use crate::program::{PATIENCE, Program, Run};

/// Refused, with nothing on stdout.
fn check(files: &[(&str, &str)]) -> Run {
    check_in(Program::new(files))
}

fn check_in(program: Program) -> Run {
    let run = program.run("check");
    assert_eq!((run.code, run.stdout.as_str()), (78, ""), "{run}");
    run
}

fn project(text: &str) -> Run {
    check(&[("toolgate.yaml", text)])
}

fn tool(keys: &str) -> Run {
    let tools = format!(
        r#"{{ "tools": [
  {{ "name": "echo", "description": "Says it again.", "script_path": "echo.py",
     {keys} }}
] }}
"#
    );
    check(&[("tools.json", &tools), ("echo.py", "")])
}

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
    next: mend what is above and run `toolgate check` again
    ");
}

#[test]
fn values_of_the_wrong_kind() {
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
    hint: a text is expected

    error: a text does not fit `registries` in project file
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

    error: a text does not fit `mcps` in toolbox
      --> toolgate.yaml:7:7
    7 |     - nothing
      |       ^^^^^^^
    hint: a map of keys and values is expected

    error: a list does not fit `command` in MCP server `b`
      --> toolgate.yaml:8:27
    8 |     - { name: b, command: [x], args: --fast, env: [A=***], mode: strict }
      |                           ^^^
    hint: a text is expected

    error: a text does not fit `args` in MCP server `b`
      --> toolgate.yaml:8:38
    8 |     - { name: b, command: [x], args: --fast, env: [A=***], mode: strict }
      |                                      ^^^^^^
    hint: a list of texts is expected

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
    next: mend what is above and run `toolgate check` again
    ");
}

#[test]
fn values_that_do_not_fit() {
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
    - { name: e, command: x, startup: never, encoding: utf-16, enabled: perhaps, mode: strict }
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

    error: `firs_wins` is not a way to settle collisions in toolbox
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

    error: `never` is not a way to start in MCP server `e`
      --> toolgate.yaml:12:39
    12 |     - { name: e, command: x, startup: never, encoding: utf-16, enabled: perhaps, mode: strict }
       |                                       ^^^^^
    hint: `required`, `optional` or `lazy` is expected

    error: `utf-16` is not an encoding in MCP server `e`
      --> toolgate.yaml:12:56
    12 |     - { name: e, command: x, startup: never, encoding: utf-16, enabled: perhaps, mode: strict }
       |                                                        ^^^^^^
    hint: `utf-8` or `latin-1` is expected

    error: `perhaps` is neither `true` nor `false` in MCP server `e`
      --> toolgate.yaml:12:73
    12 |     - { name: e, command: x, startup: never, encoding: utf-16, enabled: perhaps, mode: strict }
       |                                                                         ^^^^^^^
    hint: write `true` or `false`

    refused: 16 errors; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
}

#[test]
fn addresses() {
    assert_snapshot!(project("\
toolbox:
  mcps:
    - { name: a, url: localhost:8080/mcp, mode: strict }
    - { name: b, url: /mcp, mode: strict }
    - { name: c, url: 'ftp://example.com/', mode: strict }
    - { name: d, url: 'http://', mode: strict }
    - { name: e, url: 'http://example.com/', transport: websocket, mode: strict }
    - { name: f, transport: sse, mode: strict }
    - { name: g, mode: strict }
    - { name: h, transport: stdio, mode: strict }
    - { name: i, command: '', mode: strict }
    - { name: j, command: x, server: y, mode: strict }
    - { name: k, url: 'https:///mcp', mode: strict }
"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: `localhost:8080/mcp` does not start with `http://` or `https://` in MCP server `a`
      --> toolgate.yaml:3:23
    3 |     - { name: a, url: localhost:8080/mcp, mode: strict }
      |                       ^^^^^^^^^^^^^^^^^^
    hint: write a whole address, such as `http://localhost:8080/mcp`

    error: `/mcp` is not a URL in MCP server `b`: relative URL without a base
      --> toolgate.yaml:4:23
    4 |     - { name: b, url: /mcp, mode: strict }
      |                       ^^^^
    hint: write a whole address, such as `http://localhost:8080/mcp`

    error: `ftp://example.com/` does not start with `http://` or `https://` in MCP server `c`
      --> toolgate.yaml:5:23
    5 |     - { name: c, url: 'ftp://example.com/', mode: strict }
      |                       ^^^^^^^^^^^^^^^^^^^^
    hint: write a whole address, such as `http://localhost:8080/mcp`

    error: `http://` is not a URL in MCP server `d`: empty host
      --> toolgate.yaml:6:23
    6 |     - { name: d, url: 'http://', mode: strict }
      |                       ^^^^^^^^^
    hint: write a whole address, such as `http://localhost:8080/mcp`

    error: `http://example.com/` does not start with `ws://` or `wss://` in MCP server `e`
      --> toolgate.yaml:7:23
    7 |     - { name: e, url: 'http://example.com/', transport: websocket, mode: strict }
      |                       ^^^^^^^^^^^^^^^^^^^^^
    hint: write a whole address, such as `ws://localhost:8080/mcp`

    error: missing key `url` in MCP server `f`
      --> toolgate.yaml:8:15
    8 |     - { name: f, transport: sse, mode: strict }
      |               ^
    hint: an `sse` server needs a `url`

    error: nothing to connect to in MCP server `g`
      --> toolgate.yaml:9:15
    9 |     - { name: g, mode: strict }
      |               ^
    hint: give it a `command`, a `server` package or a `url`

    error: missing key `command` in MCP server `h`
      --> toolgate.yaml:10:15
    10 |     - { name: h, transport: stdio, mode: strict }
       |               ^
    hint: a `stdio` server needs a `command`, or a `server` package

    error: `command` is empty in MCP server `i`
      --> toolgate.yaml:11:15
    11 |     - { name: i, command: '', mode: strict }
       |               ^
    hint: name the program to start

    error: `command` and `server` do not go together in MCP server `j`
      --> toolgate.yaml:12:30
    12 |     - { name: j, command: x, server: y, mode: strict }
       |                              ^^^^^^
    hint: keep one of the two

    error: `https:///mcp` names no host in MCP server `k`
      --> toolgate.yaml:13:23
    13 |     - { name: k, url: 'https:///mcp', mode: strict }
       |                       ^^^^^^^^^^^^^^
    hint: write a whole address, such as `http://localhost:8080/mcp`

    refused: 11 errors; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
}

#[test]
fn headers_and_variables_of_servers() {
    assert_snapshot!(project("\
toolbox:
  mcps:
    - { name: a, url: 'http://localhost/', mode: strict, headers: { 'X Y': a, X-Z: \"a\\nb\" } }
    - { name: b, command: b, mode: strict, env: { 'A=B': c }, env_file: missing.env }
"), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: `X Y` is not the name of a header in MCP server `a`
      --> toolgate.yaml:3:69
    3 |     - { name: a, url: 'http://localhost/', mode: strict, headers: { 'X Y': ***, X-Z: "a\nb" } }
      |                                                                     ^^^^^
    hint: names are letters, digits and `-`

    error: the header `X-Z` holds a control character in MCP server `a`
      --> toolgate.yaml:3:84
    3 | … { name: a, url: 'http://localhost/', mode: strict, headers: { 'X Y': ***, X-Z: "a\nb" } }
      |                                                                                  ^^^^^^
    hint: a header is one line of text

    error: `A=B` cannot name a variable in MCP server `b`
      --> toolgate.yaml:4:51
    4 |     - { name: b, command: b, mode: strict, env: { 'A=***': *** }, env_file: missing.env }
      |                                                   ^^^^^^^
    hint: names have no `=` in them

    error: the file `missing.env` does not exist
      --> toolgate.yaml:4:73
    4 |     - { name: b, command: b, mode: strict, env: { 'A=***': *** }, env_file: missing.env }
      |                                                                             ^^^^^^^^^^^
    hint: create it, or remove it here; paths start at the project folder

    refused: 4 errors; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
}

#[test]
fn keys_that_do_not_fit_the_transport() {
    assert_snapshot!(project("\
toolbox:
  mcps:
    - name: a
      command: a
      url: http://localhost/
      headers: {}
      mode: strict
    - name: b
      url: http://localhost/
      args: [x]
      env: {}
      cwd: .
      mode: strict
"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: `url` does not fit a `stdio` server in MCP server `a`
      --> toolgate.yaml:5:7
    5 |       url: http://localhost/
      |       ^^^
    hint: remove it, or change `transport`

    error: `headers` does not fit a `stdio` server in MCP server `a`
      --> toolgate.yaml:6:7
    6 |       headers: {}
      |       ^^^^^^^
    hint: remove it, or change `transport`

    error: `args` does not fit an `http` server in MCP server `b`
      --> toolgate.yaml:10:7
    10 |       args: [x]
       |       ^^^^
    hint: remove it, or change `transport`

    error: `env` does not fit an `http` server in MCP server `b`
      --> toolgate.yaml:11:7
    11 |       env: {}
       |       ^^^
    hint: remove it, or change `transport`

    error: `cwd` does not fit an `http` server in MCP server `b`
      --> toolgate.yaml:12:7
    12 |       cwd: .
       |       ^^^
    hint: remove it, or change `transport`

    refused: 5 errors; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
}

#[test]
fn keys_that_do_not_fit_the_transport_in_another_programs_file() {
    let files = [("mcp.json", r#"{ "servers": { "a": { "url": "http://localhost/", "args": ["x"] } } }"#)];
    let run = Program::new(&files).run("check");
    assert_snapshot!(run.stderr, @r#"
    warning: `args` does not fit an `http` server in MCP server `a`
      --> mcp.json:1:51
    1 | { "servers": { "a": { "url": "http://localhost/", "args": ["x"] } } }
      |                                                   ^^^^^^
    hint: it is not used

    good: 1 MCP server and 0 tools, with 1 warning.
    next: change mcp.json and check again, or add MCP servers with `toolgate import CLIENT`
    "#);
    assert_eq!(run.code, 0);
}

#[test]
fn modes() {
    assert_snapshot!(project("\
toolbox:
  mcps:
    - { name: a, url: 'http://localhost/' }
    - { name: customers, url: 'http://localhost/', mode: dynamic }
"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: missing key `mode` in MCP server `a`
      --> toolgate.yaml:3:15
    3 |     - { name: a, url: 'http://localhost/' }
      |               ^
    hint: write `mode: strict`, or `mode: dynamic` with `default_tool_config`

    error: MCP server 'customers' is configured with mode='dynamic' but missing required field 'default_tool_config'
      --> toolgate.yaml:4:58
    4 |     - { name: customers, url: 'http://localhost/', mode: dynamic }
      |                                                          ^^^^^^^
    hint: add `default_tool_config: { max_instances: 10, timeout: 30s }`

    refused: 2 errors; nothing was started.
    next: mend what is above and run `toolgate check` again
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

    error: `A:b` is not the name of a variable in MCP server `a`
      --> toolgate.yaml:7:58
    7 |       headers: { Authorization: "*** ${TOKEN}", X-A: "${A:b}", X-B: "${" }
      |                                                       ^^^^^^
    hint: write `${A:-b}` for a default

    error: `${` is not closed in MCP server `a`
      --> toolgate.yaml:7:73
    7 |       headers: { Authorization: "*** ${TOKEN}", X-A: "${A:b}", X-B: "${" }
      |                                                                      ^^
    hint: close it with `}`, or write `$${` for the text `${`

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
    next: mend what is above and run `toolgate check` again
    "#);
}

#[test]
fn names_given_twice() {
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
    next: mend what is above and run `toolgate check` again
    "#);
}

#[test]
fn a_key_given_twice() {
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
    next: mend what is above and run `toolgate check` again
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
    next: mend what is above and run `toolgate check` again
    "#);
}

#[test]
fn tools() {
    let files = [(
        "tools.json",
        r#"{ "tools": [
  { "description": "a", "input_schema": {} },
  { "name": "b" },
  { "name": "c", "description": "c", "input_schema": { "type": "objekt", "properties": { "x": { "minLength": -1 } } } },
  { "name": "d", "description": "d", "input_schema": { "type": "string" } },
  { "name": "e", "description": "e", "input_schema": {}, "script_path": "../e.py" },
  { "name": "f", "description": "f", "input_schema": {}, "script_path": "f.py", "config": { "script_path": "g.py" } },
  { "name": "g", "description": "g", "input_schema": {}, "type": "remote" },
  { "name": "h", "description": "h", "input_schema": {}, "inputSchema": {} },
  { "name": "i", "description": "i", "input_schema": [] }
] }
"#,
    )];
    assert_snapshot!(check(&files), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: missing key `name` in tool
      --> tools.json:2:5
    2 |   { "description": "a", "input_schema": {} },
      |     ^^^^^^^^^^^^^
    hint: add `name`: a tool's name

    error: missing key `description` in tool `b`
      --> tools.json:3:5
    3 |   { "name": "b" },
      |     ^^^^^^
    hint: add `description`: a text

    error: missing key `input_schema` in tool `b`
      --> tools.json:3:5
    3 |   { "name": "b" },
      |     ^^^^^^
    hint: add `input_schema`: a JSON Schema

    warning: the script `b.py` of tool `b` does not exist
      --> tools.json:3:13
    3 |   { "name": "b" },
      |             ^^^
    hint: write it, or correct `script_path`; until then calls fail with `tool_execution_error`

    warning: the script `c.py` of tool `c` does not exist
      --> tools.json:4:13
    4 |   { "name": "c", "description": "c", "input_schema": { "type": "objekt", "properties": { "x": { "minLength": -1 } } } },
      |             ^^^
    hint: write it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: `objekt` is not a type of JSON in tool `c`
      --> tools.json:4:64
    4 |   { "name": "c", "description": "c", "input_schema": { "type": "objekt", "properties": { "x": { "minLength": -1 } } } },
      |                                                                ^^^^^^^^
    hint: did you mean `object`?

    error: not a valid JSON Schema in tool `c`: -1 is less than the minimum of 0
      --> tools.json:4:110
    4 | …": "c", "input_schema": { "type": "objekt", "properties": { "x": { "minLength": -1 } } } },
      |                                                                                  ^^

    warning: the script `d.py` of tool `d` does not exist
      --> tools.json:5:13
    5 |   { "name": "d", "description": "d", "input_schema": { "type": "string" } },
      |             ^^^
    hint: write it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: arguments are an object, not "string" in tool `d`
      --> tools.json:5:64
    5 |   { "name": "d", "description": "d", "input_schema": { "type": "string" } },
      |                                                                ^^^^^^^^
    hint: write `"type": "object"` and name the arguments in `properties`

    error: `../e.py` cannot be the script in tool `e`: it leads out of the folder
      --> tools.json:6:73
    6 |   { "name": "e", "description": "e", "input_schema": {}, "script_path": "../e.py" },
      |                                                                         ^^^^^^^^^
    hint: scripts are files in the folder of the registry, or in a folder there

    warning: the script `f.py` of tool `f` does not exist
      --> tools.json:7:73
    7 |   { "name": "f", "description": "f", "input_schema": {}, "script_path": "f.py", "config": { "script_path": "g.py" } },
      |                                                                         ^^^^^^
    hint: write it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: `script_path` is given inside and outside of `config` in tool `f`
      --> tools.json:7:93
    7 | …"f", "description": "f", "input_schema": {}, "script_path": "f.py", "config": { "script_path": "g.py" } },
      |                                                                                  ^^^^^^^^^^^^^
    hint: keep one of the two

    warning: the script `g.py` of tool `g` does not exist
      --> tools.json:8:13
    8 |   { "name": "g", "description": "g", "input_schema": {}, "type": "remote" },
      |             ^^^
    hint: write it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: `remote` is not a kind of tool in tool `g`
      --> tools.json:8:66
    8 |   { "name": "g", "description": "g", "input_schema": {}, "type": "remote" },
      |                                                                  ^^^^^^^^
    hint: `local` is expected

    warning: the script `h.py` of tool `h` does not exist
      --> tools.json:9:13
    9 |   { "name": "h", "description": "h", "input_schema": {}, "inputSchema": {} },
      |             ^^^
    hint: write it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: `input_schema` and `inputSchema` are the same key in tool `h`
      --> tools.json:9:58
    9 |   { "name": "h", "description": "h", "input_schema": {}, "inputSchema": {} },
      |                                                          ^^^^^^^^^^^^^
    hint: keep one of the two

    warning: the script `i.py` of tool `i` does not exist
      --> tools.json:10:13
    10 |   { "name": "i", "description": "i", "input_schema": [] }
       |             ^^^
    hint: write it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: a list does not fit `input_schema` in tool `i`
      --> tools.json:10:54
    10 |   { "name": "i", "description": "i", "input_schema": [] }
       |                                                      ^^
    hint: a JSON Schema is a map, such as `{"type": "object"}`

    refused: 11 errors, 7 warnings; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
}

#[test]
fn caching_and_limits_of_a_tool() {
    assert_snapshot!(tool(r#""input_schema": {}, "cacheable": true"#).stderr, @r#"
    error: `cacheable` needs `cache_ttl` in tool `echo`
      --> tools.json:3:39
    3 |      "input_schema": {}, "cacheable": true }
      |                                       ^^^^
    hint: add `"cache_ttl": 3600`, in seconds

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
    assert_snapshot!(tool(r#""input_schema": {}, "cacheable": true, "cache_ttl": 5, "category": "mutation""#).stderr, @r#"
    error: a mutation cannot be cached in tool `echo`
      --> tools.json:3:39
    3 |      "input_schema": {}, "cacheable": true, "cache_ttl": 5, "category": "mutation" }
      |                                       ^^^^
    hint: remove `cacheable`, or correct `category`

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
    assert_snapshot!(tool(r#""input_schema": {}, "rate_limit": { "max_calls": 0 }, "permissions": ["read"]"#).stderr, @r#"
    error: missing key `window_ms` in rate_limit
      --> tools.json:3:42
    3 |      "input_schema": {}, "rate_limit": { "max_calls": 0 }, "permissions": ["read"] }
      |                                          ^^^^^^^^^^^
    hint: add `window_ms`: a positive whole number

    error: `0` is not a positive whole number in rate_limit
      --> tools.json:3:55
    3 |      "input_schema": {}, "rate_limit": { "max_calls": 0 }, "permissions": ["read"] }
      |                                                       ^
    hint: write a whole number from 1 on

    error: `read` is not a permission in tool `echo`
      --> tools.json:3:76
    3 |      "input_schema": {}, "rate_limit": { "max_calls": 0 }, "permissions": ["read"] }
      |                                                                            ^^^^^^
    hint: a permission is `resource:action`, such as `cards:create`

    refused: 3 errors; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
    assert_snapshot!(
        tool(r#""input_schema": {}, "deprecated": { "since": "1", "replacement": "echo", "removal_date": "soon" }"#)
            .stderr,
        @r#"
    error: tool `echo` cannot replace itself
      --> tools.json:3:71
    3 |      "input_schema": {}, "deprecated": { "since": "1", "replacement": "echo", "removal_date": "soon" } }
      |                                                                       ^^^^^^
    hint: name another tool

    error: `soon` is not a date in tool `echo`
      --> tools.json:3:95
    3 | …hema": {}, "deprecated": { "since": "1", "replacement": "echo", "removal_date": "soon" } }
      |                                                                                  ^^^^^^
    hint: write it as `2027-03-31`

    refused: 2 errors; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#
    );
}

#[test]
fn yaml_that_is_none() {
    assert_snapshot!(project("toolbox:\n  tools: [a, b\nname: x\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid YAML: illegal placement of ':' indicator
      --> toolgate.yaml:3:5
    3 | name: x
      |     ^
    hint: look for a `[` or `{` before this that is not closed

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    assert_snapshot!(project("toolbox:\n\tmax_concurrent: 3\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid YAML: tabs disallowed within this context (block indentation)
      --> toolgate.yaml:2:2
    2 |  max_concurrent: 3
      |  ^
    hint: indent with spaces; YAML does not take tabs

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    assert_snapshot!(project("toolbox: {}\nname: \"open\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid YAML: invalid indentation in multiline quoted scalar
      --> toolgate.yaml:3:1
    3 |
      | ^
    hint: look for a quote before this that is not closed

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    assert_snapshot!(project("toolbox:\n  mcps: [{ name: a, url: ${URL}, mode: strict }]\n"), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'
      --> toolgate.yaml:2:27
    2 |   mcps: [{ name: a, url: ${URL}, mode: strict }]
      |                           ^
    hint: inside of `[…]` and `{…}` a text with `${…}` needs quotes: "${NAME}"

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
    assert_snapshot!(project("toolbox: {}\n---\ntoolbox: {}\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: a second document in one file
      --> toolgate.yaml:2:1
    2 | ---
      | ^^^
    hint: a configuration is one document: remove `---` and what follows it

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    assert_snapshot!(project("toolbox: *nobody\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid YAML: while parsing node, found unknown anchor
      --> toolgate.yaml:1:10
    1 | toolbox: *nobody
      |          ^
    hint: `*name` stands for what has `&name` before it; a text that starts with `*` needs quotes

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    assert_snapshot!(project("? [a, b]\n: c\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: a list or map cannot be a key
      --> toolgate.yaml:1:3
    1 | ? [a, b]
      |   ^
    hint: write the key as a plain text

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
}

#[test]
fn json_that_is_none() {
    let mcp = |text: &str| check(&[("mcp.json", text)]);
    assert_snapshot!(mcp(""), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid JSON: the file is empty
      --> mcp.json:1:1
    1 |
      | ^
    hint: write at least `{}` with the keys that are needed, or remove the file

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    assert_snapshot!(mcp(r#"{ "servers": { "a": { "command": "x" }"#), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid JSON: unterminated object
      --> mcp.json:1:14
    1 | { "servers": { "a": { "command": "x" }
      |              ^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: what is opened here is not closed

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
    assert_snapshot!(mcp("{ \"servers\": {\n  \"a\": { 'command': \"x\" }\n} }"), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid JSON: single-quoted strings are not allowed
      --> mcp.json:2:10
    2 |   "a": { 'command': "x" }
      |          ^

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
    assert_snapshot!(mcp("{ \"servers\": {} }\n{}"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid JSON: text cannot contain more than one JSON value
      --> mcp.json:2:1
    2 | {}
      | ^

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    assert_snapshot!(mcp("{ \"servers\": { \"a\": { \"timeout\": 01 } } }"), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid JSON: expected comma
      --> mcp.json:1:35
    1 | { "servers": { "a": { "timeout": 01 } } }
      |                                   ^

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
}

#[test]
fn toml_that_is_none() {
    let program = Program::new(&[("config.toml", "[mcp_servers.a]\ncommand = npx\n")]);
    assert_snapshot!(program.run("--file config.toml check"), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid TOML: `npx` is not a value
      --> config.toml:2:11
    2 | command = npx
      |           ^^^
    hint: a text stands in quotes: "npx"

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
}

#[test]
fn texts_that_are_none() {
    assert_snapshot!(project("\u{feff}toolbox: {}\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: the file starts with a byte order mark
      --> toolgate.yaml:1:1
    1 | ·toolbox: {}
      | ^
    hint: save it as UTF-8 without a byte order mark

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    let program = Program::new(&[]);
    program.write("toolgate.yaml", b"toolbox: {}\nname: caf\xe9\n");
    assert_snapshot!(check_in(program), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: the file is not UTF-8 from here on
      --> toolgate.yaml:2:10
    2 | name: caf
      |          ^
    hint: save it as UTF-8

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
}

#[test]
fn texts_that_are_too_much() {
    let deep = format!("{{ \"servers\": {}{} }}", "[".repeat(100), "]".repeat(100));
    assert_snapshot!(check(&[("mcp.json", &deep)]), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: more than 64 levels of nesting
      --> mcp.json:1:78
    1 | { "servers": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]…
      |                                                                              ^
    hint: no configuration needs that many; look for brackets that were not closed

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
    assert_snapshot!(project(&format!("toolbox: {}{}\n", "[".repeat(100), "]".repeat(100))), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: more than 64 levels of nesting
      --> toolgate.yaml:1:73
    1 | toolbox: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]…
      |                                                                         ^
    hint: no configuration needs that many; look for brackets that were not closed

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let run = project(&format!("toolbox: {{}}\n{bomb}"));
    assert!(run.took < PATIENCE, "{:?}", run.took);
    assert_snapshot!(run, @"
    exit code 78
    ----- stdout
    ----- stderr
    error: more than 4000000 values in one file
      --> toolgate.yaml:8:20
    8 | a6: &a6 [*a5, *a5, *a5, *a5, *a5, *a5, *a5, *a5, *a5, *a5]
      |                    ^^^
    hint: aliases count as often as they are used

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
}

#[test]
fn shapes_that_nobody_knows() {
    let odd = Program::new(&[("odd.yaml", "color: blue\n")]);
    assert_snapshot!(odd.run("--file odd.yaml check"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: this is not a configuration that we know
      --> odd.yaml:1:1
    1 | color: blue
      | ^^^^^
    hint: a project has `toolbox` or `registries` at its top; `toolgate init` writes one

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    assert_snapshot!(check(&[("mcp.json", "[]")]), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: a list does not fit here
      --> mcp.json:1:1
    1 | []
      | ^^
    hint: a map of keys and values is expected

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
    assert_snapshot!(project("just a text\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: a text does not fit here
      --> toolgate.yaml:1:1
    1 | just a text
      | ^^^^^^^^^^^
    hint: a map of keys and values is expected

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    ");
}

#[test]
fn registries_that_are_not_there() {
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
    next: mend what is above and run `toolgate check` again
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

    error: this is not the name of a variable
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
    next: mend what is above and run `toolgate check` again
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
    next: mend what is above and run `toolgate check` again
    ");
}

#[test]
fn several_files_at_once_in_their_order() {
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
    hint: write a whole address, such as `http://localhost:8080/mcp`

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
    next: mend what is above and run `toolgate check` again
    "#);
}

#[test]
fn mistakes_for_programs() {
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
    next: mend what is above and run `toolgate check` again
    "#);
}

#[test]
fn warnings_and_notes_refuse_nothing() {
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
    hint: write it, or correct `script_path`; until then calls fail with `tool_execution_error`

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

    good: 1 MCP server and 1 tool, with 2 warnings, 3 notes.
    next: change toolgate.yaml and check again, or add MCP servers with `toolgate import CLIENT`
    "#);
}

#[test]
fn a_long_line_is_cut() {
    let text = format!(
        "{{ \"servers\": {{ \"a\": {{ \"command\": \"x\", \"args\": [\"{}\"], \"type\": \"pigeon\", \"env\": {{ \"A\": \"{}\" }} }} }} }}",
        "a".repeat(300),
        "b".repeat(300)
    );
    assert_snapshot!(check(&[("mcp.json", &text)]), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: `pigeon` is not a transport in MCP server `a`
      --> mcp.json:1:361
    1 | …aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"], "type": "pigeon", "env": { "A": "***…
      |                                                                                  ^^^^^^^^
    hint: `stdio`, `sse`, `websocket` or `http` is expected

    refused: 1 error; nothing was started.
    next: mend what is above and run `toolgate check` again
    "#);
}
