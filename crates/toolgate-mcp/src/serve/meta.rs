//! `_meta` of a request: what the protocol says in it, and what is passed on.

use std::borrow::Cow;

use serde_json::Value;
use toolgate_types::json::unquoted;

use super::http::Belongs;
use crate::Raw;
use crate::trace::Trace;

/// What the protocol says in `_meta`.
#[derive(Default)]
pub(super) struct Meta {
    /// Whether there was one at all.
    pub(super) is_there: bool,
    pub(super) version: Option<String>,
    pub(super) capabilities: Option<Value>,
    pub(super) log_level: Option<Box<str>>,
    pub(super) progress: Option<Raw>,
    pub(super) traceparent: Option<String>,
    pub(super) correlation: Option<String>,
}

/// The members that we say ourselves when a request is passed on.
const OURS: [&str; 7] = [
    "progressToken",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/logLevel",
    "traceparent",
    Trace::CORRELATION_ID,
];

impl Meta {
    pub(super) fn read(params: Option<&Raw>) -> Self {
        let mut meta = Self::default();
        let Some(params) = params else { return meta };
        // Most requests of older revisions have none, and need no look inside.
        if !params.get().contains("\"_meta\"") {
            return meta;
        }
        let Some((_, found)) = params.members().into_iter().find(|(name, _)| name == "_meta") else {
            return meta;
        };
        if found == "null" {
            return meta;
        }
        let found = params.slice(found);
        meta.is_there = true;
        for (name, value) in found.members() {
            let text = || unquoted(value).map(Cow::into_owned);
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
                Trace::CORRELATION_ID => meta.correlation = text(),
                _ => {}
            }
        }
        meta
    }

    /// What is passed on as it is.
    pub(super) fn others(meta: &Raw) -> Vec<(Box<str>, Raw)> {
        let members = meta.members().into_iter().filter(|(name, _)| !OURS.contains(&&**name));
        members.map(|(name, value)| (name.into(), meta.slice(value))).collect()
    }

    /// The call that a request belongs to: what its transport says counts more than what it says itself.
    pub(super) fn trace(&self, outer: &Belongs) -> Trace {
        let trace = match (outer, &self.correlation) {
            (Belongs::To(trace), _) => return trace.clone(),
            (_, Some(correlation)) => Trace::new(correlation),
            (Belongs::ElseTo(trace), None) => trace.clone(),
            (Belongs::Unknown, None) => Trace::fresh(),
        };
        match &self.traceparent {
            Some(parent) => trace.within(parent),
            None => trace,
        }
    }
}
