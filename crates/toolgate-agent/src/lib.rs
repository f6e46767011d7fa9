//! The agent: a model in a loop. Its tool calls are operations of the runtime.
//!
//! A [`model::Model`] decides the next step. Every tool call it makes goes through the pipeline, as the caller that the
//! run acts for. Invariant: the output of a model is bounded and validated before it is used, and no model key appears
//! in an error, a record or a log.

mod content;
pub mod event;
pub mod journal;
pub mod model;
pub mod planner;
pub mod recording;
pub mod run;
pub mod server_requests;
pub mod skills;
pub mod toolbox;

pub use event::{EndReason, RunEvent, RunOutcome, RunUsage};
pub use journal::{RunError, RunStore};
pub use recording::Recording;
pub use run::{Agent, Executor, Run, RunPerson};
pub use skills::SkillSet;
