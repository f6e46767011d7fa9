//! Which tools fit these words.
//!
//! An [`Index`] holds what is known of tools, and answers two questions: which of them fit a query best
//! ([`Index::search`]), and whether one of them should be used at all, or a person asked first ([`Index::choose`]).
//! [`Arguments`] says what a sentence gives to a tool, and what is missing. Invariant: pure CPU. No I/O, no clock, no
//! network; the same entries and words give the same answer.

pub mod arguments;
pub mod choice;
pub mod entry;
pub mod eval;
pub mod index;
pub mod said;

mod leaning;
mod lexical;
mod masks;
mod model;
mod words;

pub use arguments::Arguments;
pub use choice::{Choice, Decision};
pub use entry::{Entry, Kind, Parameter};
pub use index::{Hit, Index};
