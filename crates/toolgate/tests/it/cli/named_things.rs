//! Pages name only what exists: metrics, REST endpoints, configuration keys, options, variables and permissions.
//!
//! `code_blocks` checks commands. The words are those between backticks; blocks are checked as what they are.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value as Json;

use super::code_blocks::{files_below, pages};
use super::docs::{read, root};

/// Words of the form `name: value` that are no configuration: a CORS header, an event, and members of JSON documents.
const OTHER_FORMS: [&str; 4] = ["extensions", "event", "cookie", "format"];

/// The code between backticks of all pages for users, each with its page. Generated pages have it from the program
/// itself, and pages for contributors show examples.
fn inline_code() -> Vec<(String, String)> {
    let others = ["docs/reference/", "docs/configuration.md", "docs/dev/", "CONTRIBUTING.md"];
    let is_checked = |page: &str| !others.iter().any(|other| page.starts_with(other));
    let mut found = Vec::new();
    for (page, text) in pages().into_iter().filter(|(page, _)| is_checked(page)) {
        let mut in_block = false;
        for line in text.lines() {
            in_block ^= line.trim_start().starts_with("```");
            if !in_block {
                found.extend(line.split('`').skip(1).step_by(2).map(|code| (page.clone(), code.to_owned())));
            }
        }
    }
    found
}

/// Fails with all problems, and if there was little to check.
fn assert_all(checked: usize, at_least: usize, problems: &BTreeSet<String>) {
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(checked >= at_least, "only {checked} were checked");
}

fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

/// The names of the metrics, from the page that the program writes.
pub(super) fn metrics() -> BTreeSet<String> {
    let row = pattern(r"(?m)^\| `([a-z_]+)` \| ([a-z]+) ");
    let page = read("docs/reference/metrics.md");
    let mut names = BTreeSet::new();
    for row in row.captures_iter(&page) {
        names.insert(row[1].to_owned());
        if &row[2] == "histogram" {
            names.extend(["bucket", "sum", "count"].map(|part| format!("{}_{part}", &row[1])));
        }
    }
    names
}

#[test]
fn metrics_exist() {
    let known = metrics();
    // Not `toolgate_sdk::serve` or a file `toolgate_0.1.0_amd64.deb`.
    let metric = pattern(r"\btoolgate_[a-z][a-z_]*\b(::|-)?");
    let (mut checked, mut problems) = (0, BTreeSet::new());
    let deployed = ["yml", "json"].map(|kind| files_below("deploy", kind)).concat();
    let deployed = deployed
        .iter()
        .map(|file| (file.display().to_string(), fs_err::read_to_string(file).expect("a text file")));
    for (page, text) in inline_code().into_iter().chain(deployed) {
        for found in metric.captures_iter(&text).filter(|found| found.get(1).is_none()) {
            let is_crate = root().join("crates").join(found[0].replace('_', "-")).is_dir();
            checked += usize::from(!is_crate);
            if !is_crate && !known.contains(&found[0]) {
                problems.insert(format!("{page}: {}", &found[0]));
            }
        }
    }
    assert_all(checked, 25, &problems);
}

/// The requests of the REST page.
fn requests() -> Vec<(String, String)> {
    let row = pattern(r"(?m)^\| `([A-Z]+) (/[^`]*)` \|");
    let page = read("docs/reference/rest.md");
    row.captures_iter(&page).map(|row| (row[1].to_owned(), row[2].to_owned())).collect()
}

#[test]
fn endpoints_exist() {
    let known = requests();
    let request =
        pattern(r"^(?:([A-Z]+(?:, [A-Z]+)*) )?(/v1(?:/[^ ?]*)?|/healthz|/readyz|/metrics)(?:\?.*)?$");
    let segments = |path: &str| path.trim_end_matches("/…").split('/').map(str::to_owned).collect::<Vec<_>>();
    let (mut checked, mut problems) = (0, BTreeSet::new());
    for (page, code) in inline_code() {
        let Some(found) = request.captures(&code) else { continue };
        checked += 1;
        let named = segments(&found[2]);
        // `/v1/tools/…` names all below it.
        let is_open = found[2].ends_with("/…") || &found[2] == "/v1";
        let fits = |method: &str| {
            known.iter().any(|(own, path)| {
                let path = segments(path);
                (method.is_empty() || method == own)
                    && (path.len() == named.len() || is_open && path.len() > named.len())
                    && path.iter().zip(&named).all(|(own, named)| own == named || own.starts_with('{'))
            })
        };
        let methods = found.get(1).map_or("", |methods| methods.as_str());
        if !methods.split(", ").all(fits) {
            problems.insert(format!("{page}: {code}"));
        }
    }
    assert_all(checked, 45, &problems);
}

/// Adds all paths of keys of a schema: `serve`, `serve.hosts`. Entries of lists and maps have no name.
fn key_paths(schema: &Json, root: &Json, path: &str, depth: usize, paths: &mut BTreeSet<String>) {
    if depth > 12 {
        return;
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")) {
        key_paths(&root["$defs"][name], root, path, depth + 1, paths);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if paths.insert(path.clone()) || schema["$ref"].is_string() {
            key_paths(property, root, &path, depth + 1, paths);
        }
    }
    for nested in ["items", "additionalProperties"] {
        key_paths(&schema[nested], root, path, depth + 1, paths);
    }
    for nested in ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|nested| schema[nested].as_array()) {
        for nested in nested {
            key_paths(nested, root, path, depth + 1, paths);
        }
    }
}

#[test]
fn keys_exist() {
    let mut paths = BTreeSet::new();
    for name in ["toolgate", "tools", "mcp", "agent"] {
        let schema: Json =
            serde_json::from_str(&read(&format!("docs/schema/{name}.schema.json"))).expect("JSON");
        key_paths(&schema, &schema, "", 0, &mut paths);
    }
    let sections: BTreeSet<_> = paths.iter().filter(|path| !path.contains('.')).cloned().collect();
    let names: BTreeSet<_> = paths.iter().filter_map(|path| path.rsplit('.').next()).collect();
    // `serve.hosts`, and `isolation: caller` with a value; not a file, such as `policy.cedar`.
    let file = pattern(r"\.(json|yaml|cedar|rs|md|py)$");
    let dotted = pattern(r"^([a-z_]+)\.[a-z_]+(\.[a-z_]+)*(: .*)?$");
    let single = pattern(r"^[a-z]+(_[a-z]+)*: [^ ].*$");
    let (mut checked, mut problems) = (0, BTreeSet::new());
    for (page, code) in inline_code() {
        let path = code.split(": ").next().unwrap_or_default();
        let is_dotted = dotted.captures(path).is_some_and(|found| sections.contains(&found[1]));
        let exists = if is_dotted && !file.is_match(path) {
            // The schema may have the section in another place.
            paths.contains(path) || paths.iter().any(|known| known.ends_with(&format!(".{path}")))
        } else if single.is_match(&code) {
            names.contains(path)
        } else {
            continue;
        };
        checked += 1;
        if !exists && !OTHER_FORMS.contains(&path) {
            problems.insert(format!("{page}: {code}"));
        }
    }
    assert_all(checked, 80, &problems);
}

#[test]
fn options_exist() {
    let page = read("docs/reference/commands.md");
    let options: BTreeSet<_> =
        pattern(r"--[a-z][a-z-]*").find_iter(&page).map(|found| found.as_str()).collect();
    let option = pattern(r"^(--[a-z][a-z-]*)(?:[ =][^`]*)?$");
    let (mut checked, mut problems) = (0, BTreeSet::new());
    for (page, code) in inline_code() {
        let Some(found) = option.captures(&code) else { continue };
        checked += 1;
        if !options.contains(&found[1]) {
            problems.insert(format!("{page}: {code}"));
        }
    }
    assert_all(checked, 40, &problems);
}

/// Variables of Toolgate's own. `TOOLGATE__SERVE__LISTEN` is a key of the configuration.
#[test]
fn variables_exist() {
    let sources: String = files_below("crates", "rs")
        .into_iter()
        .map(|file| fs_err::read_to_string(file).expect("a text file"))
        .collect();
    let variable = pattern(r"\bTOOLGATE_[A-Z][A-Z0-9_]*\b");
    let (mut checked, mut problems) = (0, BTreeSet::new());
    for (page, code) in inline_code() {
        for found in variable.find_iter(&code) {
            checked += 1;
            if !sources.contains(&format!("\"{}", found.as_str())) {
                problems.insert(format!("{page}: {}", found.as_str()));
            }
        }
    }
    assert_all(checked, 15, &problems);
}
