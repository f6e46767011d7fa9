//! The catalog of live tools, and the pipeline that runs every operation on them.
//!
//! [`catalog`] merges own tools and the tools of servers under the operator's settings; [`pipeline`] runs each call.
//! Invariants: the catalog is immutable and swapped atomically, readers never wait, and the pipeline is the only path
//! to a tool.

pub mod builtins;
pub mod catalog;
mod date;
mod metering;
pub mod pins;
pub mod pipeline;
pub mod questions;
pub mod replay;
pub mod results;
pub mod runtime;
mod search;
mod stage;
mod tool_stats;

pub use catalog::{Catalog, CatalogError, CatalogEvent, CatalogTool, ToolState};
pub use pipeline::{CallOrigin, CallOutcome, CallRequest, CallStep, Explanation};
pub use runtime::Runtime;
pub use stage::hints::StatsSnapshot;
/// Re-exported for code that sets up a runtime.
pub use toolgate_policy::{Policy, SchemaValidator};
/// Results of a search.
pub use toolgate_search::{ChoiceDecision, SearchHit, ToolChoice};
/// Lists that servers offer besides tools.
pub use toolgate_upstream::offer::{OfferKinds, OfferedItem, ServerOffer};
/// Request parameters, built-in tools, client features, the trait that asks a person, and the log of server output.
pub use toolgate_upstream::{
    BuiltinTool, ClientFeatures, NoResponder, Params, RawJson, Responder, RpcError, TraceContext,
    log_server_message,
};
