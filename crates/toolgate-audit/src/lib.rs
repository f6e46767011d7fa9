//! The record of every call: the execution log, and the questions asked of it.
//!
//! A call has two records, one when it was decided on and one when it ended. Both are lines of JSON in a file
//! per day, numbered without gaps and chained by their hashes, so that what is missing or changed shows.
//! Invariant: what [`Log`] acknowledged is there after a crash, no line is ever torn in the middle of a file,
//! and no text reaches a line without having been redacted. The form of a line is in `docs/log.md`.
//!
//! ```
//! # use toolgate_audit::{Begin, Decision, Durability, End, Log, Options, Reader, Status, Unavailable};
//! # use toolgate_types::json::Raw;
//! # async fn road(log: &Log, arguments: &Raw, output: &Raw) -> Result<(), Unavailable> {
//! let id = log.call_id();
//! let begin = Begin {
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
//!     arguments,
//!     secret: None,
//! };
//! // `Synced` for what must not be done twice, `Written` for all else. After an error nothing may be sent.
//! let open = log.begin(&begin, Durability::Synced).await?;
//! // Here the tool runs. Whoever drops `open`, because the client left, has written down that it did.
//! let end = End {
//!     status: Status::Success,
//!     error: None,
//!     attempts: 1,
//!     cached: false,
//!     took: std::time::Duration::from_millis(3),
//!     stages: &[],
//!     output: Some(output),
//!     secret: None,
//! };
//! open.end(&end, Durability::Synced).await
//! # }
//! ```

mod chain;
pub mod clock;
mod fields;
mod folder;
#[doc(hidden)]
pub mod fuzz;
mod histogram;
pub mod log;
mod merge;
pub mod metrics;
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
mod sync;
pub mod verify;
mod writer;

pub use clock::{Clock, SystemClock};
pub use fields::SecretFields;
pub use folder::Torn;
pub use log::{Durability, Log, Open, OpenError, Options, Unavailable};
pub use metrics::{Metrics, ToolMetrics};
pub use project::ProjectLog;
pub use read::history::{History, Recent, SessionKey, ToolRecord};
pub use read::{Call, Filter, Reader};
pub use record::{Begin, Decision, End, Event, Failure, StageTime, Status};
pub use verify::{Fault, FaultKind, Verified};
