//! Invalid YAML, JSON or TOML, and files over the limits.

use insta::assert_snapshot;

use super::{check, check_in, project};
use crate::support::program::{HANG_TIMEOUT, Program};

#[test]
fn invalid_yaml() {
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
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
    ");
    assert_snapshot!(project("toolbox:\n  mcps: [{ name: a, url: ${URL}, mode: strict }]\n"), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'
      --> toolgate.yaml:2:27
    2 |   mcps: [{ name: a, url: ${URL}, mode: strict }]
      |                           ^
    hint: inside `[…]` and `{…}` a string with `${…}` needs quotes: "${NAME}"

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
    assert_snapshot!(project("toolbox: {}\n---\ntoolbox: {}\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: a second document in one file
      --> toolgate.yaml:2:1
    2 | ---
      | ^^^
    hint: a configuration is one document: remove `---` and everything after it

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
    assert_snapshot!(project("toolbox: *nobody\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid YAML: while parsing node, found unknown anchor
      --> toolgate.yaml:1:10
    1 | toolbox: *nobody
      |          ^
    hint: `*name` refers to the anchor `&name`; a string that starts with `*` needs quotes

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
    assert_snapshot!(project("? [a, b]\n: c\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: a list or map cannot be a key
      --> toolgate.yaml:1:3
    1 | ? [a, b]
      |   ^
    hint: write the key as a plain string

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn invalid_json() {
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
    next: fix the problems above and run `toolgate check` again
    ");
    assert_snapshot!(mcp(r#"{ "servers": { "a": { "command": "x" }"#), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid JSON: unterminated object
      --> mcp.json:1:14
    1 | { "servers": { "a": { "command": "x" }
      |              ^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: this is never closed

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
    "#);
}

#[test]
fn invalid_toml() {
    let program = Program::new(&[("config.toml", "[mcp_servers.a]\ncommand = npx\n")]);
    assert_snapshot!(program.run("--file config.toml check"), @r#"
    exit code 78
    ----- stdout
    ----- stderr
    error: not valid TOML: `npx` is not a value
      --> config.toml:2:11
    2 | command = npx
      |           ^^^
    hint: write strings in quotes: "npx"

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    "#);
}

#[test]
fn invalid_text() {
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
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn files_over_the_limits() {
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
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
    ");
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let run = project(&format!("toolbox: {{}}\n{bomb}"));
    assert!(run.took < HANG_TIMEOUT, "{:?}", run.took);
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
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn unknown_formats() {
    let odd = Program::new(&[("odd.yaml", "color: blue\n")]);
    assert_snapshot!(odd.run("--file odd.yaml check"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: unknown kind of configuration file
      --> odd.yaml:1:1
    1 | color: blue
      | ^^^^^
    hint: a project has `toolbox` or `registries` at its top; `toolgate init` writes one

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
    ");
    assert_snapshot!(project("just a text\n"), @"
    exit code 78
    ----- stdout
    ----- stderr
    error: a string does not fit here
      --> toolgate.yaml:1:1
    1 | just a text
      | ^^^^^^^^^^^
    hint: a map of keys and values is expected

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
    ");
}

#[test]
fn a_long_line_is_truncated() {
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
    next: fix the problems above and run `toolgate check` again
    "#);
}
