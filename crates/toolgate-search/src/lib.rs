//! Tool search: finds the tools that match a query.
//!
//! A [`ToolIndex`] holds descriptions of tools. [`ToolIndex::search`] ranks them for a query; [`ToolIndex::choose`]
//! decides if one of them should be used at all, or if a person must be asked first. [`ExtractedArguments`] finds the
//! arguments of a tool in a sentence, and the missing ones. Invariant: pure CPU. No I/O, no clock, no network; the same
//! entries and words give the same result.

pub mod arguments;
pub mod choice;
pub mod entry;
pub mod eval;
pub mod index;
pub mod values;

mod intent;
mod lexical;
mod masks;
mod model;
mod words;

pub use arguments::ExtractedArguments;
pub use choice::{ChoiceDecision, ToolChoice};
pub use entry::{ToolEntry, ToolParameter, ValueKind};
pub use index::{PreparedEntry, SearchHit, ToolIndex};
