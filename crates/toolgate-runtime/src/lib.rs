//! The catalog of live tools: what own tools and servers offer, under the operator's rules.
//!
//! Invariant: the catalog is immutable and swapped in one step; a reader never waits.

pub mod catalog;
pub mod pins;
pub mod runtime;

pub use catalog::{Catalog, CatalogError, CatalogTool, Event, ToolState};
pub use runtime::Runtime;
