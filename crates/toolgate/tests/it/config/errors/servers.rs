//! Errors in servers: URLs, headers, transports, modes.

use insta::assert_snapshot;

use super::project;
use crate::support::program::Program;

#[test]
fn urls() {
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
    hint: write a complete URL, such as `http://localhost:8080/mcp`

    error: `/mcp` is not a URL in MCP server `b`: relative URL without a base
      --> toolgate.yaml:4:23
    4 |     - { name: b, url: /mcp, mode: strict }
      |                       ^^^^
    hint: write a complete URL, such as `http://localhost:8080/mcp`

    error: `ftp://example.com/` does not start with `http://` or `https://` in MCP server `c`
      --> toolgate.yaml:5:23
    5 |     - { name: c, url: 'ftp://example.com/', mode: strict }
      |                       ^^^^^^^^^^^^^^^^^^^^
    hint: write a complete URL, such as `http://localhost:8080/mcp`

    error: `http://` is not a URL in MCP server `d`: empty host
      --> toolgate.yaml:6:23
    6 |     - { name: d, url: 'http://', mode: strict }
      |                       ^^^^^^^^^
    hint: write a complete URL, such as `http://localhost:8080/mcp`

    error: `http://example.com/` does not start with `ws://` or `wss://` in MCP server `e`
      --> toolgate.yaml:7:23
    7 |     - { name: e, url: 'http://example.com/', transport: websocket, mode: strict }
      |                       ^^^^^^^^^^^^^^^^^^^^^
    hint: write a complete URL, such as `ws://localhost:8080/mcp`

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
    hint: write a complete URL, such as `http://localhost:8080/mcp`

    refused: 11 errors; nothing was started.
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
    "#);
}

#[test]
fn keys_of_another_transport() {
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
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn keys_of_another_transport_in_an_imported_file() {
    let files = [("mcp.json", r#"{ "servers": { "a": { "url": "http://localhost/", "args": ["x"] } } }"#)];
    let run = Program::new(&files).run("check");
    assert_snapshot!(run.stderr, @r#"
    warning: `args` does not fit an `http` server in MCP server `a`
      --> mcp.json:1:51
    1 | { "servers": { "a": { "url": "http://localhost/", "args": ["x"] } } }
      |                                                   ^^^^^^
    hint: it is not used

    21 defaults are not shown; use `--all`
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
    next: fix the problems above and run `toolgate check` again
    ");
}
