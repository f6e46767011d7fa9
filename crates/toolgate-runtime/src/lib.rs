//! The catalog of live tools, and the pipeline that runs every operation on them.
//!
//! [`catalog`] merges own tools and the tools of servers under the operator's settings; [`pipeline`] runs each operation.
//! Invariants: the catalog is immutable and swapped atomically, readers never wait, and the pipeline is the only path
//! to a tool, a resource or a prompt.

pub mod access_diff;
pub mod builtins;
pub mod catalog;
pub mod code_mode;
mod date;
mod metering;
pub mod misfits;
mod operation;
pub mod pins;
pub mod pipeline;
pub mod provider_schema;
pub mod questions;
pub mod replay;
pub mod results;
mod running_calls;
pub mod runtime;
pub mod search;
mod session_approvals;
pub mod shared_limit;
mod stage;
mod taint;
mod tasks;
mod tool_stats;
pub mod window_limit;

pub use catalog::{Catalog, CatalogError, CatalogEvent, CatalogTool, ToolState};
pub use operation::{CallApprover, CallOrigin, CompletionTarget, Operation, OperationTarget, SessionId};
pub use pipeline::{ActionableHints, CallOutcome, CallResult, Explanation, ListRequest, VisibleItem};
pub use running_calls::{RunningCall, RunningCalls};
pub use runtime::{ListFilter, ListViewer, Runtime};
pub use stage::hints::{StatsSnapshot, SuggestedAction};
/// A completed stage of a call.
pub use toolgate_audit::StageTime;
/// Re-exported for code that sets up a runtime.
pub use toolgate_policy::{Policy, SchemaValidator};
/// Results of a search.
pub use toolgate_search::{ChoiceDecision, SearchHit, ToolChoice};
/// Request parameters, built-in tools, client features, the trait that asks a person, and the log of server output.
pub use toolgate_upstream::builtin::{BuiltinCall, BuiltinResult};
/// Lists that servers offer besides tools.
pub use toolgate_upstream::invoke::TaskMethod;
pub use toolgate_upstream::offer::{OfferKinds, OfferedItem, ServerOffer};
pub use toolgate_upstream::{
    BuiltinTool, ClientFeatures, DownstreamClient, LogLimit, NoResponder, Params, RawJson, ResourceUpdate,
    Responder, RpcError, TraceContext, log_server_message,
};
/// Credentials of callers for servers, and their logins.
pub use toolgate_upstream::{credentials, login_tickets};
