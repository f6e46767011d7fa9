//! Which tools fit these words.
//!
//! An [`Index`] holds what is known of tools, and says which of them fit a query best ([`Index::search`]).
//! Invariant: pure CPU. No I/O, no clock, no network; the same entries and words give the same answer.

pub mod entry;
pub mod index;

mod lexical;
mod words;

pub use entry::{Entry, Kind, Parameter};
pub use index::{Hit, Index};
