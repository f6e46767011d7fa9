//! The record of every call: the execution log, and the questions asked of it.
//!
//! A call has two records, one when it was decided on and one when it ended. Both are lines of JSON in a file
//! per day, numbered without gaps and chained by their hashes, so that what is missing or changed shows.
//! Invariant: what [`Log`] acknowledged is there after a crash, no line is ever torn in the middle of a file,
//! and no text reaches a line without having been redacted. The form of a line is in `docs/log.md`.

mod chain;
pub mod clock;
mod folder;
mod histogram;
pub mod log;
mod merge;
pub mod metrics;
pub mod read;
pub mod record;
mod redact;
mod retention;
mod scan;
mod sync;
pub mod verify;
mod writer;

pub use clock::{Clock, SystemClock};
pub use folder::Torn;
pub use log::{Durability, Log, Open, OpenError, Options, Unavailable};
pub use metrics::{Metrics, ToolMetrics};
pub use read::{Call, Filter, Reader};
pub use record::{Begin, Decision, End, Failure, StageTime, Status};
pub use verify::{Fault, FaultKind, Verified};
