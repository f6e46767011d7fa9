//! `_meta` of a request: what the protocol says in it, and what is passed on.

use std::borrow::Cow;

use serde_json::Value;
use toolgate_types::json::{Name, unquoted};

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
    /// What is passed on as it is: all that we do not say ourselves when a request is passed on.
    pub(super) others: Vec<(Box<str>, Raw)>,
}

impl Meta {
    /// Of parameters.
    pub(super) fn of(members: &[(Name, Raw)]) -> Self {
        let mut meta = Self::default();
        let found = members.iter().find(|(name, value)| *name == "_meta" && value.get() != "null");
        let Some((_, found)) = found else { return meta };
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
                "io.modelcontextprotocol/clientInfo" => {}
                _ => meta.others.push((name.into(), found.slice(value))),
            }
        }
        meta
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
