//! Names of a project, for completion: tools, servers, callers and profiles.
//!
//! Invariant: reads files and nothing else. No server is started, and no file is written.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use toolgate_config::Config;
use toolgate_runtime::pins::LockFile;
use toolgate_types::{ApiDocument, Caller};
use toolgate_upstream::openapi;

use crate::callers::ProjectCallers;
use crate::project::StateFolder;

/// Kinds of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    Tool,
    Server,
    Caller,
    Profile,
}

/// Returns the names of a kind, sorted. Tools of servers are those in `toolgate.lock`, by the names that the servers give
/// them.
pub fn known_names(config: &Config, state: &StateFolder, kind: NameKind) -> BTreeSet<String> {
    match kind {
        NameKind::Tool => tool_names(config),
        NameKind::Server => config.servers.iter().map(|server| server.name.to_string()).collect(),
        NameKind::Caller => match ProjectCallers::new(config, state).list() {
            Ok(callers) => callers.into_iter().map(|caller| caller.id.to_string()).collect(),
            // The key file is broken: those of the configuration are known.
            Err(_) => config
                .callers
                .iter()
                .map(|caller| caller.id.to_string())
                .chain([Caller::OWNER.to_owned()])
                .collect(),
        },
        NameKind::Profile => config.profiles.all.iter().map(|profile| profile.name.to_string()).collect(),
    }
}

fn tool_names(config: &Config) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = config.tools.iter().map(|tool| tool.name.to_string()).collect();
    // Other commands report errors of the lock file and of documents.
    let pins = LockFile::in_project(&config.project).read().unwrap_or_default();
    for server in &config.servers {
        names.extend(pins.tool_names(&server.name).map(str::to_owned));
    }
    for api in &config.apis {
        let ApiDocument::File { json, .. } = &api.document else { continue };
        let root: Json = serde_json::from_str(json).unwrap_or_default();
        let Ok(contents) = openapi::read_document(&root, api, None) else { continue };
        let found = contents.operations.iter().filter_map(|operation| operation.definition["name"].as_str());
        names.extend(found.map(str::to_owned));
    }
    names
}
