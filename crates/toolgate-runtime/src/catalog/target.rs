//! Targets of operations that are not in the catalog: resources, prompts and completions of a server, stored results, and
//! tools of a front end.
//!
//! They have the form of a tool, so that every operation takes the same stages. Invariant: all targets of one kind and
//! server share one state, whatever URI or name a caller asks for.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use toolgate_policy::{TargetKind, ToolAttributes};
use toolgate_types::tool::{Category, Permission, RiskLevel, ToolContract};
use toolgate_types::{ServerSpec, ToolLimits};
use toolgate_upstream::invoke::ServerRequest;
use toolgate_upstream::{BuiltinTool, RawJson};

use super::build::required_permissions;
use super::{CatalogTool, ToolState, Upstream};
use crate::stage::hints::FollowUps;

/// Concurrent requests of one kind to one server.
const MAX_REQUESTS: NonZeroU32 = NonZeroU32::new(64).expect("not zero");

/// The part of a permission that names prompts or resources of a server: `{server}:prompts`.
fn permission_action(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Prompt => "prompts",
        TargetKind::Resource | TargetKind::Tool => "resources",
    }
}

/// The attributes of a prompt or resource of a server. `name` is the URI of a resource.
pub(crate) fn server_item(spec: &ServerSpec, kind: TargetKind, name: &str) -> ToolAttributes {
    ToolAttributes {
        kind,
        name: name.to_owned(),
        original: name.to_owned(),
        server: Some(spec.name.to_string()),
        permissions: required_permissions(&[], spec.name.as_str(), permission_action(kind)),
        contract: reads_only(),
        category: Some(Category::Query),
        tags: Vec::new(),
        trusted: spec.trusted,
        definition: None,
    }
}

/// Reading a resource and getting a prompt change nothing, by the protocol.
fn reads_only() -> ToolContract {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    ToolContract { version, risk: RiskLevel::Low, idempotent: true, cacheable: false }
}

impl CatalogTool {
    /// The target of a request to a server.
    pub(crate) fn for_request(
        spec: &ServerSpec,
        kind: TargetKind,
        name: &str,
        request: ServerRequest,
    ) -> Self {
        let permissions = server_item(spec, kind, name).permissions;
        let server = Some(spec.name.clone());
        Self {
            server,
            trusted: spec.trusted,
            limits: ToolLimits {
                parallel_capable: Some(true),
                max_instances: Some(MAX_REQUESTS),
                ..ToolLimits::default()
            },
            ..Self::reading(name, permissions, Upstream::Request(kind, request))
        }
    }

    /// The target of a subscription to a resource.
    pub(crate) fn for_subscription(spec: &ServerSpec, uri: &str) -> Self {
        let target = Self::for_request(spec, TargetKind::Resource, uri, ServerRequest::ReadResource);
        Self { upstream: Upstream::Subscription, ..target }
    }

    /// The tool that logs a caller in to a server. It needs no permission of its own: it is there for callers that may use
    /// something else of the server.
    pub(crate) fn for_login(spec: &ServerSpec, name: &str) -> Self {
        let server = &spec.name;
        let description = format!(
            "Logs you in to `{server}`, or says how to store a credential for it. Its tools are listed once you have one."
        );
        Self {
            server: Some(server.clone()),
            description,
            input_schema: RawJson::from_trusted(
                r#"{"type":"object","properties":{},"additionalProperties":false}"#.to_owned(),
            ),
            ..Self::reading(name, Vec::new(), Upstream::Login)
        }
    }

    /// A stored result of the caller. It needs no permission: the store returns results only to their owner.
    pub(crate) fn for_stored_result(uri: &str) -> Self {
        Self::reading(uri, Vec::new(), Upstream::StoredResult)
    }

    /// A tool that belongs to a front end and is not in the catalog. Callers need the given permission.
    pub fn for_front_end(tool: BuiltinTool, permission: Permission) -> Self {
        let tool = Arc::new(tool);
        Self {
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            limits: ToolLimits {
                parallel_capable: Some(true),
                timeout: tool.timeout,
                max_instances: Some(MAX_REQUESTS),
            },
            ..Self::reading(tool.name.as_str(), vec![permission], Upstream::Builtin(Arc::clone(&tool)))
        }
    }

    /// The tool `base` for a program that calls functions: with the same permissions, rules and limits.
    pub(crate) fn for_program(base: &Self, tool: BuiltinTool) -> Self {
        let tool = Arc::new(tool);
        Self {
            original: base.original.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            contract: base.contract.clone(),
            category: base.category,
            tags: base.tags.clone(),
            hash: base.hash.clone(),
            limits: ToolLimits { timeout: tool.timeout, ..base.limits },
            rate_limit: base.rate_limit,
            response_time: base.response_time,
            deprecated: base.deprecated.clone(),
            trusted: base.trusted,
            ..Self::reading(&base.name, base.permissions.clone(), Upstream::Builtin(Arc::clone(&tool)))
        }
    }

    fn reading(name: &str, permissions: Vec<Permission>, upstream: Upstream) -> Self {
        Self {
            name: name.to_owned(),
            server: None,
            original: name.to_owned(),
            distinct_name: None,
            title: None,
            description: String::new(),
            input_schema: RawJson::from_trusted(r#"{"type":"object"}"#.to_owned()),
            output_schema: None,
            contract: reads_only(),
            category: Some(Category::Query),
            tags: Vec::new(),
            source: None,
            definition: None,
            hash: None,
            limits: ToolLimits { parallel_capable: Some(true), ..ToolLimits::default() },
            permissions,
            rate_limit: None,
            cache_ttl: None,
            response_time: None,
            deprecated: None,
            follow_ups: FollowUps::default(),
            trusted: true,
            declared_read_only: false,
            strict_output: false,
            upstream,
            compiled: Arc::default(),
            shared_state: OnceLock::new(),
            state: ToolState::Ready,
        }
    }

    /// The kind of thing this is to the policy.
    pub(crate) fn target_kind(&self) -> TargetKind {
        match &self.upstream {
            Upstream::Request(kind, _) => *kind,
            Upstream::Subscription | Upstream::StoredResult => TargetKind::Resource,
            Upstream::Builtin(_)
            | Upstream::Script(_)
            | Upstream::Server(_)
            | Upstream::Login
            | Upstream::OpenApi(_) => TargetKind::Tool,
        }
    }

    /// The name of its slots, metrics and statistics: the name of a tool, or the permission that a
    /// request needs. URIs and names of prompts come from callers, so they must not be names of metrics.
    pub(crate) fn state_name(&self) -> Cow<'_, str> {
        match (self.target_kind(), &self.server) {
            (TargetKind::Tool, _) => Cow::Borrowed(&self.name),
            (kind, Some(server)) => Cow::Owned(format!("{server}:{}", permission_action(kind))),
            (_, None) => Cow::Borrowed("results:read"),
        }
    }
}
