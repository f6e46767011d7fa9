//! The agent: a model in a loop, whose tools are calls of the runtime.
//!
//! A [`model::Model`] says what to do next; whatever it wants to call goes down the one road to a tool, as the caller
//! that the run acts for. Invariant: nothing that a model says is believed before it was bounded and checked, and no
//! key of a model is in an error, a record or a log.

pub mod answering;
mod content;
pub mod event;
pub mod journal;
pub mod model;
pub mod planner;
pub mod run;
pub mod skills;
pub mod tape;
pub mod toolbox;

pub use event::{Ended, Event, Reason, Spent};
pub use journal::{RunError, Runs};
pub use run::{Agent, Hands, Run};
pub use skills::Skills;
pub use tape::Tape;
