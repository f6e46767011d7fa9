//! The catalog of live tools, and the road to each of them.
//!
//! What own tools and servers offer is put together under the operator's rules in [`catalog`]; a call goes
//! down the [`road`]. Invariant: the catalog is immutable and swapped in one step, a reader never waits,
//! and there is one way to a tool.

pub mod builtins;
pub mod catalog;
mod date;
pub mod desk;
mod metering;
pub mod pins;
pub mod replay;
pub mod results;
pub mod road;
pub mod runtime;
mod search;
mod stage;
mod tally;

pub use catalog::{Catalog, CatalogError, CatalogTool, Event, ToolState};
pub use road::{Approver, CallRequest, Called, Explanation, NobodyApproves, Origin, Step, Verdict};
pub use runtime::Runtime;
pub use stage::hints::Record;
/// What decides, for whoever puts a runtime together.
pub use toolgate_policy::{Policy, Schema};
/// What a search answers.
pub use toolgate_search::{Choice, Decision, Hit};
/// What servers offer beside tools.
pub use toolgate_upstream::offer::{Kinds, Offer, Offered};
/// What callers put together, who answers servers, and where the lines of a server's log go.
pub use toolgate_upstream::{Builtin, Clients, Logins, Nobody, Params, Questions, Raw, RpcError, Trace, log};
