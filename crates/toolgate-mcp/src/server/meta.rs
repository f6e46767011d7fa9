//! `_meta` of a request: members of the protocol, and members to forward.

use std::borrow::Cow;

use serde_json::Value;
use toolgate_json::{MemberName, unquote};

use super::http::TraceSource;
use crate::RawJson;
use crate::trace::TraceContext;

/// Parsed `_meta`.
#[derive(Default)]
pub(super) struct RequestMeta {
    /// True if the request has a `_meta`.
    pub(super) is_present: bool,
    pub(super) version: Option<String>,
    pub(super) capabilities: Option<Value>,
    pub(super) log_level: Option<Box<str>>,
    pub(super) progress: Option<RawJson>,
    pub(super) traceparent: Option<String>,
    pub(super) correlation: Option<String>,
    /// Members to forward unchanged: all that the gateway does not set itself.
    pub(super) extra: Vec<(Box<str>, RawJson)>,
}

impl RequestMeta {
    pub(super) fn of(members: &[(MemberName, RawJson)]) -> Self {
        let mut meta = Self::default();
        let found = members.iter().find(|(name, value)| *name == "_meta" && value.as_str() != "null");
        let Some((_, found)) = found else { return meta };
        meta.is_present = true;
        for (name, value) in found.members() {
            let text = || unquote(value).map(Cow::into_owned);
            match &*name {
                "progressToken" => meta.progress = Some(found.slice(value)),
                "io.modelcontextprotocol/protocolVersion" => meta.version = text(),
                "io.modelcontextprotocol/clientCapabilities" => {
                    meta.capabilities = serde_json::from_str(value)
                        .ok()
                        .filter(|capabilities: &Value| capabilities.is_object());
                }
                "io.modelcontextprotocol/logLevel" => meta.log_level = text().map(Into::into),
                "traceparent" => meta.traceparent = text(),
                TraceContext::CORRELATION_ID => meta.correlation = text(),
                "io.modelcontextprotocol/clientInfo" => {}
                _ => meta.extra.push((name.into(), found.slice(value))),
            }
        }
        meta
    }

    /// Returns the trace context. The transport's takes precedence over `_meta`.
    pub(super) fn trace(&self, outer: &TraceSource) -> TraceContext {
        let trace = match (outer, &self.correlation) {
            (TraceSource::To(trace), _) => return trace.clone(),
            (_, Some(correlation)) => TraceContext::new(correlation),
            (TraceSource::Fallback(trace), None) => trace.clone(),
            (TraceSource::Unknown, None) => TraceContext::generate(),
        };
        match &self.traceparent {
            Some(parent) => trace.with_parent(parent),
            None => trace,
        }
    }
}
