//! Tools of the project: every mistake is reported once, at its location.

use std::os::unix::fs::symlink;

use super::{days_since_epoch, is_date};
use crate::load;
use crate::test_support::{environment, errors, loaded, messages, project};

/// Returns the messages about a tool with these keys in addition to the three required ones.
fn tool(keys: &str) -> Vec<String> {
    let text = format!(
        r#"{{"tools": [{{"name": "t", "description": "d", "input_schema": {{"type": "object"}}{}{keys}}}]}}"#,
        if keys.is_empty() { "" } else { ", " }
    );
    let loaded = loaded(&[("tools/tools.json", &text), ("tools/t.py", ""), ("tools/sub/a.py", "")], &[]);
    messages(&loaded).lines().map(str::to_owned).collect()
}

fn good_tool(keys: &str) {
    assert_eq!(tool(keys), Vec::<String>::new(), "{keys}");
}

fn bad_tool(keys: &str, expected: &str) {
    let messages = tool(keys);
    let [only] = &messages[..] else { panic!("{keys}: {messages:#?}") };
    let (_, message) = only.strip_prefix("error tools/tools.json:").unwrap().split_once(' ').unwrap();
    assert_eq!(message.split(" (").next().unwrap(), expected, "{keys}");
}

#[test]
fn scripts_stay_in_registry_folder() {
    good_tool("");
    good_tool(r#""script_path": "sub/a.py""#);
    good_tool(r#""config": {"scriptPath": "t.py", "function": "main"}"#);
    let long = format!("{}.py", "x".repeat(300));
    for (path, why) in [
        ("../../bin/sh", "it points outside the folder"),
        ("a/../b", "it points outside the folder"),
        ("/bin/sh", "it points outside the folder"),
        ("./t.py", "it points outside the folder"),
        ("sub/./a.py", "it points outside the folder"),
        ("x\\u0000.py", "it is not the name of a file"),
        ("", "it is not the name of a file"),
        ("con.py ", "it has white space at an end"),
        ("sub /a.py", "it has white space at an end"),
        (&long, "it is too long"),
    ] {
        let messages = tool(&format!(r#""script_path": "{path}""#));
        assert_eq!(messages.len(), 1, "{path}: {messages:?}");
        assert!(
            messages[0].contains(&format!("cannot be the script in tool `t`: {why}")),
            "{path}: {messages:?}"
        );
    }
}

#[test]
fn rejects_symlinks_out_of_the_folder() {
    let text = |script: &str| {
        format!(
            r#"{{"tools": [{{"name": "t", "description": "d", "input_schema": {{}}, "script_path": "{script}"}}]}}"#
        )
    };
    let messages = |script: &str| {
        let folder =
            project(&[("tools/tools.json", &text(script)), ("tools/real.py", ""), ("outside/o.py", "")]);
        let tools = folder.path().join("tools");
        symlink("real.py", tools.join("inside.py")).unwrap();
        symlink("../outside/o.py", tools.join("out.py")).unwrap();
        symlink("../outside", tools.join("folder")).unwrap();
        symlink("nowhere.py", tools.join("dangling.py")).unwrap();
        crate::test_support::messages(&load(folder.path(), None, &environment(&[])))
    };
    assert_eq!(messages("inside.py"), "");
    for script in ["out.py", "folder/o.py"] {
        let messages = messages(script);
        assert!(
            messages.contains("cannot be the script in tool `t`: a link in it points outside the folder"),
            "{messages}"
        );
    }
    assert!(messages("dangling.py").starts_with("warning"));
}

#[test]
fn warns_about_missing_script() {
    let messages = tool(r#""script_path": "none.py""#);
    assert_eq!(
        messages,
        ["warning tools/tools.json:1:97 the script `none.py` of tool `t` does not exist (create it, or \
          correct `script_path`; until then calls fail with `tool_execution_error`)"]
    );
}

#[test]
fn checks_rules_between_tool_keys() {
    good_tool(r#""cacheable": true, "cache_ttl": 60, "category": "query""#);
    bad_tool(r#""cacheable": true"#, "`cacheable` needs `cache_ttl` in tool `t`");
    bad_tool(r#""cacheable": true, "cache_ttl": 0"#, "`0` is not a duration in tool `t`");
    bad_tool(
        r#""cacheable": true, "cache_ttl": 60, "category": "mutation""#,
        "a mutation cannot be cached in tool `t`",
    );
    assert!(tool(r#""cache_ttl": 60"#)[0].starts_with("warning "));
    bad_tool(
        r#""script_path": "t.py", "config": {"script_path": "t.py"}"#,
        "`script_path` is given inside and outside of `config` in tool `t`",
    );
    bad_tool(r#""permissions": ["everything"]"#, "`everything` is not a permission in tool `t`");
    bad_tool(r#""rate_limit": {"max_calls": 5}"#, "missing key `window_ms` in rate_limit");
    let deprecated = |replacement: &str, day: &str| {
        format!(r#""deprecated": {{"since": "1", "replacement": "{replacement}", "removal_date": "{day}"}}"#)
    };
    good_tool(&deprecated("u", "2027-06-30T00:00:00Z"));
    bad_tool(&deprecated("t", "2027-06-30"), "tool `t` cannot replace itself");
    bad_tool(&deprecated("u", "2027-02-30"), "`2027-02-30` is not a date in tool `t`");
}

#[test]
fn checks_tool_schemas() {
    bad_tool(r#""output_schema": {"type": "objct"}"#, "`objct` is not a type of JSON in tool `t`");
    good_tool(r#""output_schema": {"type": "array"}"#);
    bad_tool(r#""output_schema": []"#, "a list does not fit `output_schema` in tool `t`");
    bad_tool(
        r#""output_schema": {"$ref": "https://example.com/schema.json"}"#,
        "`https://example.com/schema.json` cannot be resolved in the JSON Schema in tool `t`",
    );
    let deep = format!("{}{}", r#"{"items": "#.repeat(70), "}".repeat(70)).replace(": }", ": {}}");
    assert!(tool(&format!(r#""output_schema": {deep}"#))[0].contains("more than 64 levels of nesting"));
}

/// Other mistakes of a tool without a description are reported as well.
#[test]
fn reports_every_mistake_of_a_tool() {
    let text = r#"{"tools": [{
        "name": "t",
        "input_schema": {"type": "array"},
        "script_path": "../t.py",
        "cacheable": true,
        "tages": []
    }, {
        "name": "t t",
        "description": "d",
        "inputs": {"type": "strng"}
    }]}"#;
    insta::assert_snapshot!(messages(&loaded(&[("tools.json", text)], &[])), @r#"
    error tools.json:2:9 missing key `description` in tool `t` (add `description`: a string)
    error tools.json:3:34 arguments are an object, not "array" in tool `t` (write `"type": "object"` and name the arguments in `properties`)
    error tools.json:4:24 `../t.py` cannot be the script in tool `t`: it points outside the folder (scripts are files in the folder of the registry, or in a folder there)
    error tools.json:5:22 `cacheable` needs `cache_ttl` in tool `t` (add `"cache_ttl": 3600`, in seconds)
    error tools.json:6:9 unknown key `tages` in tool `t` (did you mean `tags`?)
    error tools.json:8:17 `t t` is not a tool's name in tool `t t` (a tool's name is made of letters, digits, `_`, `.` and `-`)
    error tools.json:10:28 `strng` is not a type of JSON in tool (did you mean `string`?)
    "#);
}

#[test]
fn rejects_duplicate_tools() {
    let one = r#"{"name": "t", "description": "d", "input_schema": {}}"#;
    let text = format!("{{\"tools\": [\n{one},\n{one}]}}");
    let messages = errors(&loaded(&[("tools.json", &text), ("t.py", "")], &[]));
    assert_eq!(
        messages,
        ["tools.json:3:10 tool `t` is defined twice (the other is at tools.json:2:10; rename or remove one)"]
    );
}

#[test]
fn dates() {
    for good in ["2027-03-31", "2028-02-29"] {
        assert!(is_date(good), "{good}");
    }
    for bad in ["2027-02-29", "2027-13-01", "2027-00-10", "2027/03/31", "soon-ish!!", "+027-01-01"] {
        assert!(!is_date(bad), "{bad}");
    }
}

#[test]
fn counts_days() {
    for (date, days) in [
        ("1970-01-01", 0),
        ("1970-03-01", 59),
        ("2000-02-29", 11_016),
        ("2026-11-18", 20_775),
        ("1969-12-31", -1),
    ] {
        assert_eq!(days_since_epoch(date), days, "{date}");
    }
}
