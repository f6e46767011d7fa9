//! The values every Toolgate crate shares: servers, tools, callers, their names and limits.
//!
//! Each type enforces its own invariants when it is built: a name that parsed is valid, a duration is more than zero,
//! a secret is never printed. Invariant: no I/O, no clock, no knowledge of file formats.

pub mod agent;
pub mod api;
pub mod audit;
pub mod browser_url;
pub mod builtins;
pub mod call;
pub mod caller;
pub mod contract;
pub mod duration;
pub mod egress;
pub mod hints;
pub mod issuer;
pub mod key;
pub mod limits;
pub mod name;
pub mod network;
pub mod oauth;
pub mod profile;
pub mod secret;
pub mod secret_pattern;
pub mod serve;
pub mod server;
pub mod size;
pub mod telemetry;
pub mod tool;
pub mod wildcard;

pub use agent::{AgentConfig, ModelSpec};
pub use api::{ApiDocument, ApiSpec};
pub use audit::OnFull;
pub use browser_url::BrowserUrl;
pub use builtins::BuiltinConfig;
pub use call::{CallError, ErrorCode, ExecutionState, Stage, ToolContext, ToolResult};
pub use caller::{Caller, CallerId, Group, GroupName, UpstreamIdentity};
pub use duration::HumanDuration;
pub use egress::EgressConfig;
pub use hints::AgentHints;
pub use key::KeyHash;
pub use limits::{CallLimits, OnCollision};
pub use name::{ServerName, ToolName};
pub use profile::{Profile, Profiles};
pub use secret::{ConfigString, Secret};
pub use secret_pattern::{SecretPattern, SecretPatternError};
pub use serve::ServeConfig;
pub use server::ServerSpec;
pub use size::ByteSize;
pub use tool::{ToolDefinition, ToolLimits, ToolSettings};
