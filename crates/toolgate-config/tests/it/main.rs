//! Whole configurations through `toolgate_config::load`: the result, or the reported problems.
//!
//! `fixtures/` holds configurations of other programs, as documented by those programs. No test reads the
//! environment of the process: every test has its own.

#![expect(clippy::unwrap_used, reason = "these are tests, helpers included")]

mod audit;
mod callers;
mod checklist;
mod contract;
mod damage;
mod dialects;
mod egress;
mod entries;
mod every_key;
mod import;
mod overlay;
mod overrides;
mod policy;
mod profiles;
mod seeds;
mod serve;
mod toolbox;
mod variables;

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use toolgate_config::{Environment, LoadOutcome, load};

/// Creates an environment with these variables only.
fn environment(variables: &[(&str, &str)]) -> Environment {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Environment { variables: variables.iter().map(own).collect(), home: Some("/ann".into()) }
}

fn fixtures(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder)
}

/// Creates a project folder with these files.
fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }
    folder
}

/// Loads a folder with these files.
fn loaded(files: &[(&str, &str)], variables: &[(&str, &str)]) -> LoadOutcome {
    load(project(files).path(), None, &environment(variables))
}

/// Returns the configuration as JSON; panics with the messages if there is none.
fn config(loaded: &LoadOutcome) -> Json {
    match &loaded.config {
        Some(config) => serde_json::to_value(config).unwrap(),
        None => panic!("refused:\n{}", messages(loaded)),
    }
}

/// Formats the problems, one per line: `error toolgate.yaml:3:5 unknown key `x` (did you mean `y`?)`.
fn messages(loaded: &LoadOutcome) -> String {
    let entries = serde_json::to_value(loaded.report.entries()).unwrap();
    let line = |entry: &Json| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let mut line = text("severity");
        if !text("file").is_empty() {
            line.push_str(&format!(" {}", text("file")));
        }
        if entry["line"].is_u64() {
            line.push_str(&format!(":{}:{}", entry["line"], entry["column"]));
        }
        line.push_str(&format!(" {}", text("message")));
        if !text("hint").is_empty() {
            line.push_str(&format!(" ({})", text("hint")));
        }
        line
    };
    entries.as_array().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the errors only.
fn errors(loaded: &LoadOutcome) -> Vec<String> {
    let messages = messages(loaded);
    messages.lines().filter_map(|line| line.strip_prefix("error ")).map(str::to_owned).collect()
}

/// Formats the configuration without origins, followed by the messages, for snapshots.
fn outline(loaded: &LoadOutcome) -> String {
    let mut out = String::new();
    if let Some(config) = &loaded.config {
        let mut json = serde_json::to_value(config).unwrap();
        json.as_object_mut()
            .unwrap()
            .retain(|key, _| !["project", "files", "origins"].contains(&key.as_str()));
        write(&json, 0, &mut out);
        out = out.replace(&config.project.display().to_string(), "[project]");
    }
    format!("{}\n---\n{}\n", out.trim_end(), messages(loaded))
}

fn write(json: &Json, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let is_inner = |value: &Json| {
        matches!(value, Json::Object(map) if !map.is_empty())
            || matches!(value, Json::Array(items) if items.iter().any(Json::is_object))
    };
    match json {
        Json::Object(map) => {
            for (key, value) in map {
                if is_inner(value) {
                    out.push_str(&format!("{indent}{key}:\n"));
                    write(value, depth + 1, out);
                } else {
                    out.push_str(&format!("{indent}{key}: {value}\n"));
                }
            }
        }
        Json::Array(items) => {
            for item in items {
                let mut inner = String::new();
                write(item, depth + 1, &mut inner);
                out.push_str(&format!("{indent}- {}", inner.trim_start()));
            }
        }
        other => out.push_str(&format!("{indent}{other}\n")),
    }
}
