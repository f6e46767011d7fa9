//! Everything that a runtime is created from.

use std::sync::Arc;

use serde_json::Value;
use toolgate_audit::spans::SpanExporter;
use toolgate_audit::{ExecutionLog, ToolHistory};
use toolgate_policy::Policy;
use toolgate_store::cluster::ClusterStores;
use toolgate_types::egress::EgressConfig;
use toolgate_types::{
    ApiSpec, CallLimits, Caller, Profiles, Secret, ServerSpec, ToolDefinition, ToolSettings,
};
use toolgate_upstream::openapi::TextParser;
use toolgate_upstream::{BuiltinTool, LoginOptions, NoResponder, Responder};

use crate::pins::LockFile;
use crate::results::ResultStore;

/// Everything needed to create a [`Runtime`](super::Runtime). The default has no tools and no servers, and records nothing.
pub struct RuntimeSetup {
    pub builtins: Vec<BuiltinTool>,
    /// Tools defined in this project.
    pub own: Vec<Arc<ToolDefinition>>,
    /// The operator's settings for individual tools.
    pub settings: Vec<ToolSettings>,
    pub servers: Vec<ServerSpec>,
    pub apis: Vec<ApiSpec>,
    /// Parses the text of an OpenAPI document.
    pub read_document: TextParser,
    /// Limits shared by all tools.
    pub limits: CallLimits,
    /// Stored credentials and logins for servers. Without a store, tokens last as long as the runtime.
    pub logins: LoginOptions,
    /// Asks a person: for approval of calls, for answers to servers, for logins.
    pub responder: Arc<dyn Responder>,
    /// Client capabilities to declare to servers if the clients of calls answer their requests. Without them, the
    /// responder does.
    pub forwarded_features: Option<Value>,
    /// State that the replicas of a cluster share.
    pub cluster: Option<ClusterStores>,
    /// The lock file with the pins. Without it, pins last as long as the runtime.
    pub lock: Option<LockFile>,
    /// Values that are redacted from all output.
    pub secrets: Vec<Secret>,
    /// Configured callers and their permissions.
    pub callers: Vec<Caller>,
    pub policy: Policy,
    /// Rules for secrets in outgoing arguments.
    pub egress: EgressConfig,
    /// Store for results that are too large to return inline. Without it, results are never truncated.
    pub results: Option<Arc<ResultStore>>,
    /// Named subsets of the tools, as shown by the front ends.
    pub profiles: Arc<Profiles>,
    /// The execution log. Without it, calls are not recorded.
    pub log: Option<ExecutionLog>,
    /// Statistics of earlier processes, from the log.
    pub history: ToolHistory,
    /// Exporter of the spans of calls.
    pub spans: Option<SpanExporter>,
}

impl Default for RuntimeSetup {
    fn default() -> Self {
        Self {
            builtins: Vec::new(),
            own: Vec::new(),
            settings: Vec::new(),
            servers: Vec::new(),
            apis: Vec::new(),
            read_document: |_| Err("no parser for OpenAPI documents is set up".to_owned()),
            limits: CallLimits::default(),
            logins: LoginOptions::default(),
            responder: Arc::new(NoResponder),
            forwarded_features: None,
            cluster: None,
            lock: None,
            secrets: Vec::new(),
            callers: Vec::new(),
            policy: Policy::default(),
            egress: EgressConfig::default(),
            results: None,
            profiles: Arc::default(),
            log: None,
            history: ToolHistory::default(),
            spans: None,
        }
    }
}
