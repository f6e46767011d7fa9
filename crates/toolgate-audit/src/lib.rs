//! The execution log: writes a durable record of every call, and reads it back.
//!
//! A call has two records, one when it was decided and one when it ended. Each is a line of JSON in a file per day.
//! Records are numbered without gaps and linked by a hash chain, so missing or changed records are detected.
//! Invariant: a record acknowledged by [`ExecutionLog`] survives a crash, no line is torn in the middle of a file, and
//! every string is redacted before it reaches a line. The format of a line is described in `docs/log.md`.
//!
//! ```
//! # use toolgate_audit::{CallBegin, CallEnd, CallStatus, Decision, Durability, ExecutionLog, LogUnavailable};
//! # use toolgate_json::RawJson;
//! # async fn pipeline(log: &ExecutionLog, arguments: &RawJson, output: &RawJson) -> Result<(), LogUnavailable> {
//! let id = log.new_call_id();
//! let begin = CallBegin {
//!     operation: Default::default(),
//!     tainted: false,
//!     deprecated: false,
//!     user: None,
//!     agent_version: None,
//!     call: &id,
//!     caller: "ann",
//!     tool: "files.write",
//!     session: None,
//!     correlation: "r1",
//!     correlation_from_client: false,
//!     trace: "4bf92f3577b34da6a3ce929d0e0e4736",
//!     server: Some("files"),
//!     definition: None,
//!     decision: Decision::Allow,
//!     rules: &[],
//!     asked: None,
//!     refused_by: None,
//!     identity: Default::default(),
//!     arguments,
//!     secret: None,
//! };
//! // `Synced` for calls that must not be repeated, `Written` for all others. After an error, do not send the call.
//! let mut open = log.begin(&begin, Durability::Synced).await?;
//! open.acknowledged().await?;
//! // The tool runs here. Dropping `open`, because the client disconnected, records the call as abandoned.
//! let end = CallEnd {
//!     status: CallStatus::Success,
//!     error: None,
//!     attempts: 1,
//!     cached: false,
//!     took: std::time::Duration::from_millis(3),
//!     stages: &[],
//!     output: Some(output),
//!     secret: None,
//!     upstream: None,
//! };
//! open.end(&end, Durability::Synced).await
//! # }
//! ```

mod chain;
pub mod clock;
mod fields;
pub mod figures;
mod folder;
#[doc(hidden)]
pub mod fuzz;
mod histogram;
mod index;
pub mod log;
mod merge;
pub mod metrics;
mod part_buffer;
#[cfg(test)]
mod power_loss;
pub mod project;
pub mod read;
pub mod record;
pub mod redact;
mod reserve;
mod retention;
mod scan;
pub mod spans;
pub mod status;
mod storage_errors;
mod sync;
mod terms;
pub mod verify;
mod writer;

pub use clock::{Clock, SystemClock};
pub use fields::SecretFields;
pub use figures::{CallFigures, CallSample, SampleOutcome};
pub use folder::TornTail;
pub use index::LogIndexer;
pub use log::{Durability, ExecutionLog, LogOptions, LogUnavailable, OpenCall, OpenError};
pub use metrics::{Metrics, ToolMetrics};
pub use project::ProjectLog;
pub use read::history::{HistoryWindow, SessionKey, ToolHistory, ToolTotals};
pub use read::{BeginRecord, CallFilter, LogReader, LoggedCall};
pub use record::{CallBegin, CallEnd, CallFailure, CallIdentity, CallStatus, Decision, LogEvent, StageTime};
pub use verify::{FaultKind, LogFault, VerifyReport};
