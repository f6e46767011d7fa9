//! Loads files, flags and environment variables into one checked [`Config`].
//!
//! The only crate that knows file formats, dialects and positions in files. Loading has four steps: `read`
//! parses a file into a tree, `overrides` applies environment variables to it, `dialect` reads the sections that
//! `file` lists, and `resolve` calls the features in order. A feature, in `feature`, has its keys, their resolution
//! and their tests in one file.
//! Invariant: every problem is reported, and nothing is started, written or connected.

// The helpers of tests name this crate like an outside user.
#[cfg(test)]
extern crate self as toolgate_config;

mod checklist;
mod config;
pub mod connect;
mod context;
mod dialect;
mod feature;
mod file;
#[doc(hidden)]
pub mod fuzz;
mod import;
mod keys;
mod load;
mod node;
mod overrides;
mod problem;
mod profile_patterns;
mod read;
mod resolve;
mod schema;
mod self_listing;
mod source;
#[cfg(test)]
mod test_support;
mod variable;

pub use checklist::{Checklist, ContractRule, checklists};
pub use config::Config;
pub use context::Environment;
pub use feature::audit::AuditConfig;
pub use feature::cluster::ClusterConfig;
pub use feature::credentials::CredentialKey;
pub use feature::inputs::InputSpec;
pub use feature::policy::{PolicyFile, load_rules};
pub use feature::registries::RegistryPaths;
pub use import::{
    ClientProgram, DuplicateServer, ImportPlan, ImportSource, ImportedServer, add_servers, parse_servers,
    plan_import,
};
pub use keys::closest_match;
pub use load::{LoadOutcome, load, load_with_overlay};
pub use problem::{Problem, ProblemEntry, Report, Severity};
pub use profile_patterns::unmatched_patterns;
pub use read::parse_document;
pub use schema::{SchemaKind, reference_page, schema};
pub use source::{Position, Source, SourceId, SourceMap, Span, is_blank};
