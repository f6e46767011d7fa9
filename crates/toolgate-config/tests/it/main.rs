//! Whole configurations through `toolgate_config::load`: what each of them comes to, or what is told.
//!
//! `fixtures/` holds the configurations that people bring, as their documents write them. Nothing here
//! reads the environment of the process: every test brings its own.

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
mod overrides;
mod policy;
mod profiles;
mod seeds;
mod serve;
mod texts;
mod toolbox;
mod variables;

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use toolgate_config::{Environment, Loaded, load};

/// A world with these variables and nothing else.
fn environment(variables: &[(&str, &str)]) -> Environment {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Environment { variables: variables.iter().map(own).collect(), home: Some("/ann".into()) }
}

fn fixtures(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder)
}

/// A project folder with these files.
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
fn loaded(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Loaded {
    load(project(files).path(), None, &environment(variables))
}

/// The configuration as JSON; what is told where there is none.
fn config(loaded: &Loaded) -> Json {
    match &loaded.config {
        Some(config) => serde_json::to_value(config).unwrap(),
        None => panic!("refused:\n{}", told(loaded)),
    }
}

/// What is told, a line for each: `error toolgate.yaml:3:5 unknown key `x` (did you mean `y`?)`.
fn told(loaded: &Loaded) -> String {
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

/// The errors alone.
fn errors(loaded: &Loaded) -> Vec<String> {
    let told = told(loaded);
    told.lines().filter_map(|line| line.strip_prefix("error ")).map(str::to_owned).collect()
}

/// The configuration without places, then what is told: one text to compare.
fn outline(loaded: &Loaded) -> String {
    let mut out = String::new();
    if let Some(config) = &loaded.config {
        let mut json = serde_json::to_value(config).unwrap();
        json.as_object_mut()
            .unwrap()
            .retain(|key, _| !["project", "files", "origins"].contains(&key.as_str()));
        write(&json, 0, &mut out);
        out = out.replace(&config.project.display().to_string(), "[project]");
    }
    format!("{}\n---\n{}\n", out.trim_end(), told(loaded))
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
