//! Files, flags and environment become one checked [`Config`].
//!
//! The only crate that knows file formats, dialects and positions in files. The road: a text is
//! read into a tree (`read`), the environment overrides it (`overrides`), a dialect takes its
//! keys (`dialect`, `file`), rules make servers and tools of them (`settle`).
//! Invariant: every problem is reported, and nothing is started, written or connected.

mod checklist;
mod config;
pub mod connect;
mod context;
mod dialect;
mod file;
#[doc(hidden)]
pub mod fuzz;
mod import;
mod keys;
mod load;
mod node;
mod overrides;
mod problem;
mod profile_words;
mod read;
mod schema;
mod settle;
mod source;
mod variable;

pub use checklist::{Checklist, Rule, checklists};
pub use config::{Config, InputSpec, PolicyFile, Registries};
pub use context::Environment;
pub use import::{Client, Import, ImportedServer, add_servers, plan_import};
pub use load::{Loaded, load, load_over};
pub use problem::{Problem, ProblemEntry, Report, Severity};
pub use profile_words::idle_words;
pub use read::document;
pub use schema::{SchemaOf, reference, schema};
pub use settle::policy::load_rules;
pub use source::{Position, Source, SourceId, Sources, Span};
