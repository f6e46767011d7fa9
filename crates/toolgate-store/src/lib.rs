//! Where shared state lives: the registry of tools and servers.
//!
//! `text` changes JSON texts entry by entry, `document` knows what a registry file is, `store` says what
//! a place for shared state must do, `file` does it with files, and `registry` is the one queue that all
//! changes go through. Invariant: what was acknowledged is there after a crash, and what is not ours to
//! change in a file stays as it was written.

pub mod document;
pub mod file;
pub mod registry;
pub mod store;
pub mod text;
