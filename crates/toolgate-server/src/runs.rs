//! What the door knows of the agent: that it can be given tasks, and what became of them.
//!
//! The agent stands beside the doors in the order of the crates; whoever puts both together gives one to the other.
//! Invariant: a run acts as its caller, and whoever drops its future stops it.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value as Json;
use toolgate_types::Caller;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Something new, in words.
    New(String),
    /// What was begun, by its id.
    Resume(String),
}

/// Why there is no run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRun {
    /// There is none to go on with, for this caller.
    Absent(String),
    /// It goes on elsewhere, or has ended.
    Busy(String),
    /// It cannot be begun.
    Failed(String),
}

/// Who hears what happens: events as JSON, each with its name in `event`.
pub type Heard = Arc<dyn Fn(Json) + Send + Sync>;

/// An agent that can be given tasks.
pub trait Runs: Send + Sync + 'static {
    /// Begins; the future is the run.
    ///
    /// # Errors
    /// When there is nothing to begin.
    fn start(&self, caller: Caller, task: Task, heard: Heard) -> Result<BoxFuture<'static, ()>, NoRun>;

    /// All runs, the newest first, each with its `caller`.
    ///
    /// # Errors
    /// When they cannot be read.
    fn list(&self) -> io::Result<Vec<Json>>;

    /// One of them, with its `caller` and what happened in it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn show(&self, id: &str) -> io::Result<Option<Json>>;
}
