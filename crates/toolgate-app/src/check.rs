//! Problems that loading a project cannot see: they depend on generated tools, on pinned definitions and on the machine.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;
use toolgate_config::{Config, ProblemEntry, Report, Severity, unmatched_patterns};
use toolgate_redact::printable;
use toolgate_runtime::pins::LockFile;
use toolgate_types::ApiDocument;
use toolgate_types::builtins::BuiltinConfig;
use toolgate_upstream::openapi;
use toolgate_upstream::process::sandbox::{MissingLayer, missing_layer};

use crate::project::exposed_places;

/// Returns the warnings about local OpenAPI documents, about profile patterns that match no tool, about a folder and a lock
/// file that other users can change, and about layers of the sandbox that this machine does not have.
pub fn project_warnings(config: &Config, report: &Report) -> Vec<ProblemEntry> {
    let mut found = api_problems(config, report);
    found.extend(unmatched(config));
    found.extend(exposed_places(config).map(|path| exposure_problem(config, &path)));
    found.extend(sandbox_problem(config));
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

/// Returns the layer of the sandbox that is missing, if code runs in the sandbox.
pub(crate) fn missing_sandbox_layer(builtins: &BuiltinConfig) -> Option<MissingLayer> {
    let is_used = builtins.code_execution.as_ref().is_some_and(|code| code.sandbox);
    if is_used { missing_layer() } else { None }
}

fn exposure_problem(config: &Config, path: &Path) -> ProblemEntry {
    let shown = match path.strip_prefix(&config.project) {
        Ok(name) if !name.as_os_str().is_empty() => name,
        _ => path,
    };
    let file = printable(&shown.display().to_string());
    ProblemEntry {
        severity: Severity::Warning,
        message: format!("other users can change `{file}`"),
        file: Some(file),
        line: None,
        column: None,
        hint: Some(
            "they could replace files of the project: make it yours, and run `chmod go-w` on it".to_owned(),
        ),
    }
}

fn sandbox_problem(config: &Config) -> Option<ProblemEntry> {
    let missing = missing_sandbox_layer(&config.builtins)?;
    Some(ProblemEntry {
        severity: Severity::Warning,
        message: missing.to_string(),
        file: config.files.first().cloned(),
        line: None,
        column: None,
        hint: Some(missing.hint().to_owned()),
    })
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
