//! Shared state: the registry of tools and servers, callers with their keys, and the credentials of callers.
//!
//! `text` edits JSON entry by entry, `document` models a registry file, `store` defines the interface of a storage
//! backend, `file` implements it with files, and `registry` is the queue that all changes go through. `callers` has the
//! callers created at runtime and the keys of all callers. `credentials` has their credentials for servers, encrypted.
//! `cluster` has the traits of other state that the replicas of a cluster share.
//! Invariant: an acknowledged change survives a crash, and parts of a file that a change does not touch stay as they were
//! written.

pub mod callers;
pub mod cluster;
pub mod credentials;
pub mod document;
pub mod file;
pub mod registry;
pub mod store;
pub mod text;
