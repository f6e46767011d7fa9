//! Features of the configuration, one file each: its keys, their resolution into a checked value, and their tests.
//!
//! The doc comments on keys are user documentation: the reference page and the JSON Schemas are generated from them.
//! `docs/dev/add-a-key.md` describes how to add a key. Invariant: a feature reports its own problems and reads the
//! keys of no other feature; checks between features are in `resolve`.

pub(crate) mod agent;
pub(crate) mod audit;
pub(crate) mod callers;
mod checks;
pub(crate) mod cluster;
pub(crate) mod code_execution;
pub(crate) mod credentials;
pub(crate) mod egress;
pub(crate) mod env_file;
pub(crate) mod groups;
pub(crate) mod human_input;
pub(crate) mod inputs;
pub(crate) mod openapi;
pub(crate) mod policy;
pub(crate) mod profiles;
pub(crate) mod registries;
pub(crate) mod results;
pub(crate) mod serve;
pub(crate) mod servers;
pub(crate) mod telemetry;
pub(crate) mod tool_settings;
pub(crate) mod toolbox;
pub(crate) mod tools;
pub(crate) mod web_search;
