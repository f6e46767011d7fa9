//! Problems that loading a project cannot see: they depend on generated tools and on pinned definitions.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use toolgate_config::{Config, ProblemEntry, Report, Severity, unmatched_patterns};
use toolgate_redact::printable;
use toolgate_runtime::pins::LockFile;
use toolgate_types::ApiDocument;
use toolgate_upstream::openapi;

/// Returns the warnings about local OpenAPI documents, and about profile patterns that match no tool.
pub fn project_warnings(config: &Config, report: &Report) -> Vec<ProblemEntry> {
    let mut found = api_problems(config, report);
    found.extend(unmatched(config));
    found
}

/// Returns the problems of local OpenAPI documents. They appear only when tools are generated from them.
fn api_problems(config: &Config, report: &Report) -> Vec<ProblemEntry> {
    let mut found = Vec::new();
    for api in &config.apis {
        let ApiDocument::File { path, json } = &api.document else { continue };
        let root: Json = serde_json::from_str(json).unwrap_or_default();
        let messages = match openapi::read_document(&root, api, None) {
            Ok(contents) => contents.notes,
            Err(error) => vec![format!("API `{}` has no tools: {error}", api.name)],
        };
        found.extend(messages.into_iter().map(|message| ProblemEntry {
            severity: Severity::Warning,
            message: printable(&report.mask_known(&message)),
            file: Some(path.clone()),
            line: None,
            column: None,
            hint: None,
        }));
    }
    found
}

/// Returns patterns of profiles that match no tool, according to the pinned definitions.
fn unmatched(config: &Config) -> Vec<ProblemEntry> {
    // Errors of the lock file are reported when the servers start.
    let pins = LockFile::in_project(&config.project).read().unwrap_or_default();
    let mut pinned = BTreeMap::new();
    for server in &config.servers {
        let names: Vec<String> = pins.tool_names(&server.name).map(str::to_owned).collect();
        if !names.is_empty() {
            pinned.insert(server.name.prefix(), names);
        }
    }
    unmatched_patterns(config, &pinned)
}
