//! The nouns of Toolgate: servers, tools, their names and limits.
//!
//! Every other crate builds on these values and none of them can hold something invalid: a name
//! that parsed is a good name, a duration is more than zero, a secret cannot be printed.
//! Invariant: no I/O, no clock, no knowledge of file formats.

pub mod agent;
pub mod api;
pub mod audit;
pub mod builtins;
pub mod call;
pub mod caller;
pub mod clean;
pub mod contract;
pub mod door;
pub mod duration;
pub mod egress;
pub mod gather;
pub mod hints;
pub mod issuer;
pub mod json;
pub mod key;
pub mod limits;
pub mod name;
pub mod network;
pub mod oauth;
pub mod profile;
pub mod redact;
pub mod secret;
pub mod server;
pub mod size;
pub mod telemetry;
pub mod tool;
pub mod wildcard;

pub use agent::{AgentRules, ModelSpec};
pub use api::{ApiDocument, ApiSpec};
pub use audit::{AuditRules, OnFull};
pub use builtins::BuiltinRules;
pub use call::{CallError, ErrorCode, Outcome, Stage, ToolContext, ToolResult};
pub use caller::{Caller, CallerId};
pub use door::DoorRules;
pub use duration::HumanDuration;
pub use egress::EgressRules;
pub use hints::AgentHints;
pub use key::KeyHash;
pub use limits::{Limits, OnCollision};
pub use name::{ServerName, ToolName};
pub use profile::{Profile, Profiles};
pub use secret::{Secret, Text};
pub use server::ServerSpec;
pub use size::ByteSize;
pub use tool::{ToolDefinition, ToolLimits, ToolSettings};
