//! Every parser on small and on malicious texts.

use super::*;
use crate::node::{MAX_DEPTH, MAX_NODES};
use crate::problem::Report;

/// Returns the tree as JSON, or the problem with its location: `2:5 the key `a` is given twice`.
fn tree(format: FileFormat, text: &str) -> String {
    let mut sources = SourceMap::default();
    let id = sources.add("text", text, Some("text".into()));
    match read(&sources, id, format) {
        Ok(node) => node.to_json().get().to_owned(),
        Err(problem) => {
            let span = problem.span.expect("a reader knows where it is");
            let at = sources.get(id).position(span.start);
            let told = format!("{}:{} {}", at.line, at.column, problem.message);
            // Every problem can be rendered.
            Report::new(sources, vec![problem], Vec::new()).render();
            told
        }
    }
}

fn yaml(text: &str, expected: &str) {
    assert_eq!(tree(FileFormat::Yaml, text), expected, "{text}");
}

fn json(text: &str, expected: &str) {
    assert_eq!(tree(FileFormat::Json, text), expected, "{text}");
}

fn toml(text: &str, expected: &str) {
    assert_eq!(tree(FileFormat::Toml, text), expected, "{text}");
}

#[test]
fn yaml_scalars_follow_core_schema() {
    yaml("[a, 'b', \"c\\n\", 1, 1.5, -2, true, null, ~]", r#"["a","b","c\n",1,1.5,-2,true,null,null]"#);
    yaml("[no, yes, on, off, NO, y]", r#"["no","yes","on","off","NO","y"]"#);
    yaml("[True, FALSE, Null, NULL, '']", r#"[true,false,null,null,""]"#);
    yaml("[0x1F, 0o17, 007, +1, .5, 1., 1e3]", r#"[31,15,7,1,0.5,1.0,1e3]"#);
    yaml(
        "[1_000, 1:30, 0b11, 12e, 1.2.3, 2026-01-01]",
        r#"["1_000","1:30","0b11","12e","1.2.3","2026-01-01"]"#,
    );
    yaml("[.inf, -.inf, .nan, 1e999]", r#"[".inf","-.inf",".nan","1e999"]"#);
    yaml("[1.10, 12345678901234567890123]", "[1.10,12345678901234567890123]");
    yaml("['1', \"true\", !!str 1]", r#"["1","true","1"]"#);
    yaml("a:\nb: ~", r#"{"a":null,"b":null}"#);
    yaml("", "null");
    yaml("# nothing\n", "null");
}

#[test]
fn yaml_block_scalars() {
    yaml("a: |\n  one\n  two\nb: >-\n  one\n  two\n", r#"{"a":"one\ntwo\n","b":"one two"}"#);
    yaml("a: |+\n  one\n\nb: 1\n", r#"{"a":"one\n\n","b":1}"#);
}

#[test]
fn yaml_anchors_and_merge_keys() {
    yaml("a: &x [1]\nb: *x", r#"{"a":[1],"b":[1]}"#);
    yaml("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}", r#"{"x":{"a":1,"b":2},"y":{"b":3,"a":1}}"#);
    yaml(
        "x: &x {a: 1}\ny: &y {a: 2, c: 3}\nz:\n  <<: [*x, *y]\n  d: 4",
        r#"{"x":{"a":1},"y":{"a":2,"c":3},"z":{"d":4,"a":1,"c":3}}"#,
    );
    yaml("a: *x", "1:4 not valid YAML: while parsing node, found unknown anchor");
    yaml("a: &x [*x]", "1:8 this alias refers to the node that contains it");
    yaml("a: &x [1]\nb: {<<: *x}", "2:5 `<<` takes a map, or a list of maps");
    yaml("b: {<<: 1}", "1:5 `<<` takes a map, or a list of maps");
}

#[test]
fn rejects_invalid_yaml() {
    yaml("a: 1\nb: 2\na: 3", "3:1 the key `a` is given twice");
    yaml("a: 1\n---\nb: 1", "2:1 a second document in one file");
    yaml("{[1]: 2}", "1:2 a list or map cannot be a key");
    yaml("? {a: 1}\n: 2", "1:3 a list or map cannot be a key");
    yaml("\u{feff}a: 1", "1:1 the file starts with a byte order mark");
}

#[test]
fn hints_for_common_mistakes() {
    let hint = |text: &str| {
        let mut sources = SourceMap::default();
        let id = sources.add("text", text, Some("text".into()));
        read(&sources, id, FileFormat::Yaml).unwrap_err().hint.unwrap_or_default()
    };
    assert_eq!(hint("a:\n\tb: 1"), "indent with spaces; YAML does not take tabs");
    assert!(hint("a: {b: ${NAME}}").contains("needs quotes"), "{}", hint("a: {b: ${NAME}}"));
}

#[test]
fn alias_has_its_own_location() {
    let text = "a: &x {b: 1}\nc: *x\nd: {<<: *x}";
    let mut sources = SourceMap::default();
    let id = sources.add("text", text, Some("text".into()));
    let root = read(&sources, id, FileFormat::Yaml).unwrap();
    let place = |node: &Node| sources.location(node.span);
    assert_eq!(place(root.get("c").unwrap()), "text:2:4");
    assert_eq!(place(root.get("c").unwrap().get("b").unwrap()), "text:1:11");
    assert_eq!(place(root.get("d").unwrap().get("b").unwrap()), "text:1:11");
}

#[test]
fn json_with_comments_and_trailing_commas() {
    json("// one\n{\"a\": 1, /* two */ \"b\": [true, null,],}", r#"{"a":1,"b":[true,null]}"#);
    json(r#""\u00e9\n\"\ud83d\ude00""#, "\"é\\n\\\"😀\"");
    json("[1.10, 1e3, -0, 12345678901234567890123, 1E+2]", "[1.10,1e3,-0,12345678901234567890123,1E+2]");
}

#[test]
fn rejects_invalid_json() {
    json("", "1:1 not valid JSON: the file is empty");
    json("{\"a\": 1, \"a\": 2}", "1:10 the key `a` is given twice");
    json("{\"a\": 1 \"b\": 2}", "1:8 not valid JSON: expected comma");
    json("{a: 1}", "1:2 not valid JSON: expected string for object property");
    json("['a']", "1:2 not valid JSON: single-quoted strings are not allowed");
    json("[01]", "1:3 not valid JSON: expected comma");
    json("[1e999]", "1:2 not valid JSON: this is not a number");
    json("[0x1]", "1:2 not valid JSON: hexadecimal numbers are not allowed");
    json("{\"a\": ", "1:7 not valid JSON: expected value after colon in object property");
    json("\"a", "1:1 not valid JSON: unterminated string literal");
    json(r#""\x41""#, "1:2 not valid JSON: invalid escape");
    json("[1] 2", "1:5 not valid JSON: text cannot contain more than one JSON value");
    for half in [r#""\ud800""#, r#""\ud800x""#, r#""\udc00""#] {
        assert!(tree(FileFormat::Json, half).contains("not valid JSON: invalid unicode escape"), "{half}");
    }
}

#[test]
fn toml_tables_arrays_and_kinds() {
    toml("a = 1\nb = \"x\"\n[c.d]\ne = [1.5, true]\n", r#"{"a":1,"b":"x","c":{"d":{"e":[1.5,true]}}}"#);
    toml("[[a]]\nb = 0x1F\n[[a]]\nb = 1_000\n", r#"{"a":[{"b":31},{"b":1000}]}"#);
    toml("a = 2026-01-01\nb = inf\nc = {d = 1}", r#"{"a":"2026-01-01","b":"inf","c":{"d":1}}"#);
    toml("a.b.c = 1", r#"{"a":{"b":{"c":1}}}"#);
    toml("a = 1\na = 2", "2:1 not valid TOML: duplicate key");
    toml("a = ", "1:5 not valid TOML: string values must be quoted, expected literal string");
}

#[test]
fn rejects_deep_nesting() {
    let told = "more than 64 levels of nesting";
    for (format, before, open, inner, close) in [
        (FileFormat::Yaml, "", "[", "", "]"),
        (FileFormat::Yaml, "", "{a: ", "1", "}"),
        (FileFormat::Json, "", "[", "", "]"),
        (FileFormat::Json, "", "{\"a\":", "1", "}"),
        (FileFormat::Toml, "a = ", "[", "", "]"),
        (FileFormat::Toml, "a = ", "{a = ", "1", "}"),
        (FileFormat::Toml, "", "a.", "a = 1", ""),
    ] {
        let text = |count: usize| format!("{before}{}{inner}{}", open.repeat(count), close.repeat(count));
        assert!(tree(format, &text(MAX_DEPTH - 1)).starts_with(['[', '{']), "{format:?} {open}");
        assert!(tree(format, &text(MAX_DEPTH + 2)).ends_with(told), "{format:?} {open}");
        // Deep enough to overflow the stack of a recursive parser; each parser has its own limit.
        let bottomless = tree(format, &format!("{before}{}{inner}", open.repeat(100_000)));
        assert!(
            bottomless.ends_with(told) || bottomless.contains("recur"),
            "{format:?} {open}: {bottomless}"
        );
    }
    let block: String = (0..100).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    assert!(tree(FileFormat::Yaml, &block).ends_with(told));
}

/// Each line is shallow, but refers to something deeper than the line before.
#[test]
fn rejects_deeply_nested_aliases() {
    let chain = |lines: usize, levels: usize| {
        let mut text = "a0: &a0 x\n".to_owned();
        for line in 1..=lines {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            text.push_str(&format!("a{line}: &a{line} {open}*a{}{close}\n", line - 1));
        }
        tree(FileFormat::Yaml, &text)
    };
    assert!(chain(6, 10).starts_with('{'));
    assert!(chain(7, 10).ends_with("more than 64 levels of nesting"));
    assert!(chain(2000, 60).ends_with("more than 64 levels of nesting"));
}

/// Nine lines that expand to a billion values: rejected before expansion.
#[test]
fn rejects_alias_bomb() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let alias = format!("*a{}, ", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", alias.repeat(10)));
    }
    assert!(tree(FileFormat::Yaml, &text).ends_with("more than 4000000 values in one file"));
    // Nested anchors are stored once each: sixty copies of the list here.
    let list = "x, ".repeat(70_000);
    let nested: String = (0..60).map(|level| format!("&b{level} [")).collect();
    let text = format!("{nested}[{list}]{}", "]".repeat(60));
    assert!(tree(FileFormat::Yaml, &text).ends_with("more than 4000000 values in one file"));
}

#[test]
fn rejects_too_many_values() {
    let list = format!("a = [{}1]", "1,".repeat(MAX_NODES));
    assert!(tree(FileFormat::Toml, &list).ends_with("more than 4000000 values in one file"));
    // Ten values: the list, the map in it, and eight numbers.
    let text = r#"[{"a,[{": 1}, 2, 3, 4, 5, 6, 7, 8 /* , */]"#;
    assert_eq!(
        (json::too_many_at(text, 10), json::too_many_at(text, 9)),
        (None, Some(text.rfind(", 8").unwrap()))
    );
}

/// Merging used to take time quadratic in the number of keys.
#[test]
fn merges_large_maps_in_linear_time() {
    let keys: String = (0..20_000).map(|key| format!("k{key}: 1, ")).collect();
    let text = format!("a: &a {{{keys}}}\nb: {{<<: *a, {keys}}}\nc: {{<<: [*a, *a]}}");
    assert!(tree(FileFormat::Yaml, &text).starts_with('{'));
}

#[test]
fn dotenv_values() {
    let text = "\u{feff}A=1\n# no\nexport B = two words # comment\r\nC='$x # y'\nD=\"a\\n\\\"b\\\" \\q\"\nE=\nF=a#b\nG=\"two\nlines\" # more\nH=${A}\n A2=x=y \n";
    let (variables, problems) = dotenv::read(text, SourceMap::default().add("env", text, None));
    assert!(problems.is_empty(), "{problems:?}");
    let read: Vec<_> = variables.iter().map(|v| (v.name.as_str(), v.value.as_str())).collect();
    let expected = [
        ("A", "1"),
        ("B", "two words"),
        ("C", "$x # y"),
        ("D", "a\n\"b\" \\q"),
        ("E", ""),
        ("F", "a#b"),
        ("G", "two\nlines"),
        ("H", "${A}"),
        ("A2", "x=y"),
    ];
    assert_eq!(read, expected);
}

#[test]
fn invalid_dotenv_lines_do_not_hide_others() {
    let text = "A=1\nnonsense\n1B=2\nC D=3\n=4\nE=\"open\nF=6";
    let (variables, problems) = dotenv::read(text, SourceMap::default().add("env", text, None));
    let read: Vec<_> = variables.iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!(read, ["A", "F"]);
    let told: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
    let name = "this is not a valid variable name";
    assert_eq!(told, ["this line sets no variable", name, name, name, "the closing \" is missing"]);
}
