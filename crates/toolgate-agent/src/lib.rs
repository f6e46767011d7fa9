//! The agent: a model in a loop, whose tools are calls of the runtime.
//!
//! A [`model::Model`] says what to do next; whatever it wants to call goes down the one road to a tool, as the caller
//! that the run acts for. Invariant: nothing that a model says is believed before it was bounded and checked, and no
//! key of a model is in an error, a record or a log.

pub mod model;
