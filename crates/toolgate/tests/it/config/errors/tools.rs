//! Errors in tools.

use insta::assert_snapshot;

use super::{check, tool};

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
    hint: add `description`: a string

    error: missing key `input_schema` in tool `b`
      --> tools.json:3:5
    3 |   { "name": "b" },
      |     ^^^^^^
    hint: add `input_schema`: a JSON Schema

    warning: the script `b.py` of tool `b` does not exist
      --> tools.json:3:13
    3 |   { "name": "b" },
      |             ^^^
    hint: create it, or correct `script_path`; until then calls fail with `tool_execution_error`

    warning: the script `c.py` of tool `c` does not exist
      --> tools.json:4:13
    4 |   { "name": "c", "description": "c", "input_schema": { "type": "objekt", "properties": { "x": { "minLength": -1 } } } },
      |             ^^^
    hint: create it, or correct `script_path`; until then calls fail with `tool_execution_error`

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
    hint: create it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: arguments are an object, not "string" in tool `d`
      --> tools.json:5:64
    5 |   { "name": "d", "description": "d", "input_schema": { "type": "string" } },
      |                                                                ^^^^^^^^
    hint: write `"type": "object"` and name the arguments in `properties`

    error: `../e.py` cannot be the script in tool `e`: it points outside the folder
      --> tools.json:6:73
    6 |   { "name": "e", "description": "e", "input_schema": {}, "script_path": "../e.py" },
      |                                                                         ^^^^^^^^^
    hint: scripts are files in the folder of the registry, or in a folder there

    warning: the script `f.py` of tool `f` does not exist
      --> tools.json:7:73
    7 |   { "name": "f", "description": "f", "input_schema": {}, "script_path": "f.py", "config": { "script_path": "g.py" } },
      |                                                                         ^^^^^^
    hint: create it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: `script_path` is given inside and outside of `config` in tool `f`
      --> tools.json:7:93
    7 | …"f", "description": "f", "input_schema": {}, "script_path": "f.py", "config": { "script_path": "g.py" } },
      |                                                                                  ^^^^^^^^^^^^^
    hint: keep one of the two

    warning: the script `g.py` of tool `g` does not exist
      --> tools.json:8:13
    8 |   { "name": "g", "description": "g", "input_schema": {}, "type": "remote" },
      |             ^^^
    hint: create it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: `remote` is not a kind of tool in tool `g`
      --> tools.json:8:66
    8 |   { "name": "g", "description": "g", "input_schema": {}, "type": "remote" },
      |                                                                  ^^^^^^^^
    hint: `local` is expected

    warning: the script `h.py` of tool `h` does not exist
      --> tools.json:9:13
    9 |   { "name": "h", "description": "h", "input_schema": {}, "inputSchema": {} },
      |             ^^^
    hint: create it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: `input_schema` and `inputSchema` are the same key in tool `h`
      --> tools.json:9:58
    9 |   { "name": "h", "description": "h", "input_schema": {}, "inputSchema": {} },
      |                                                          ^^^^^^^^^^^^^
    hint: keep one of the two

    warning: the script `i.py` of tool `i` does not exist
      --> tools.json:10:13
    10 |   { "name": "i", "description": "i", "input_schema": [] }
       |             ^^^
    hint: create it, or correct `script_path`; until then calls fail with `tool_execution_error`

    error: a list does not fit `input_schema` in tool `i`
      --> tools.json:10:54
    10 |   { "name": "i", "description": "i", "input_schema": [] }
       |                                                      ^^
    hint: a JSON Schema is a map, such as `{"type": "object"}`

    refused: 11 errors, 7 warnings; nothing was started.
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
    "#);
    assert_snapshot!(tool(r#""input_schema": {}, "cacheable": true, "cache_ttl": 5, "category": "mutation""#).stderr, @r#"
    error: a mutation cannot be cached in tool `echo`
      --> tools.json:3:39
    3 |      "input_schema": {}, "cacheable": true, "cache_ttl": 5, "category": "mutation" }
      |                                       ^^^^
    hint: remove `cacheable`, or correct `category`

    refused: 1 error; nothing was started.
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
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
    next: fix the problems above and run `toolgate check` again
    "#
    );
}
