//! Whole configurations through `toolgate_config::load`: the result, or the reported problems. The tests of one feature
//! are in its file in `src/feature`.
//!
//! `fixtures/` holds configurations of other programs, as documented by those programs. No test reads the
//! environment of the process: every test has its own.

#![expect(clippy::unwrap_used, reason = "these are tests, helpers included")]

mod checklist;
mod contract;
mod damage;
mod dialects;
mod every_key;
mod files;
mod import;
mod overlay;
mod overrides;
mod problems;
mod seeds;
#[path = "../../src/test_support.rs"]
mod test_support;
mod variables;

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use test_support::{config, environment, errors, loaded, messages, project};
use toolgate_config::LoadOutcome;

fn fixtures(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder)
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
