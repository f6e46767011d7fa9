//! `_meta` of a request: what the protocol says in it, and what is passed on.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

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

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl Meta {
    pub(super) fn read(params: Option<&Raw>) -> Self {
        let mut meta = Self::default();
        let Some(params) = params else { return meta };
        // Most requests of older revisions have none, and need no look inside.
        if !params.get().contains("\"_meta\"") {
            return meta;
        }
        let Some(found) = params.look::<Params<'_>>().ok().and_then(|params| params.meta) else {
            return meta;
        };
        let found = params.slice(found);
        meta.is_there = true;
        for (name, value) in found.members() {
            let text = || serde_json::from_str::<String>(value.get()).ok();
            match &*name {
                "progressToken" => meta.progress = Some(found.slice(value)),
                "io.modelcontextprotocol/protocolVersion" => meta.version = text(),
                "io.modelcontextprotocol/clientCapabilities" => {
                    meta.capabilities = serde_json::from_str(value.get())
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
    pub(super) fn trace(&self, outer: Option<Trace>) -> Trace {
        if let Some(trace) = outer {
            return trace;
        }
        let trace = self.correlation.as_deref().map_or_else(Trace::fresh, Trace::new);
        self.traceparent.as_deref().map_or(trace.clone(), |parent| trace.within(parent))
    }
}
