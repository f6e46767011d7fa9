//! `_meta` of a request: members of the protocol, and members to forward.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use serde_json::Value;
use toolgate_json::{MemberName, unquote};

use super::http::TraceSource;
use crate::RawJson;
use crate::revision::Revision;
use crate::trace::TraceContext;

/// Parsed `_meta`.
#[derive(Default)]
pub(super) struct RequestMeta {
    /// True if the request has a `_meta`.
    pub(super) is_present: bool,
    pub(super) version: Option<Cow<'static, str>>,
    pub(super) capabilities: Option<Arc<Value>>,
    pub(super) log_level: Option<Box<str>>,
    pub(super) progress: Option<RawJson>,
    pub(super) traceparent: Option<String>,
    pub(super) correlation: Option<String>,
    /// Members to forward unchanged: all that the gateway does not set itself.
    pub(super) extra: Vec<(Box<str>, RawJson)>,
}

/// Longer capabilities are parsed for every request.
const MAX_REMEMBERED: usize = 512;

thread_local! {
    /// The last capabilities that were parsed on this thread. Most clients declare the same ones again and again.
    static LAST_CAPABILITIES: RefCell<(Box<str>, Arc<Value>)> = RefCell::default();
}

/// Parses the capabilities of a client. `None` if they are not an object.
fn parse_capabilities(text: &str) -> Option<Arc<Value>> {
    let last = LAST_CAPABILITIES.with_borrow(|(last, value)| (**last == *text).then(|| Arc::clone(value)));
    if last.is_some() {
        return last;
    }
    let value: Value = serde_json::from_str(text).ok().filter(Value::is_object)?;
    let value = Arc::new(value);
    if text.len() <= MAX_REMEMBERED {
        LAST_CAPABILITIES.set((text.into(), Arc::clone(&value)));
    }
    Some(value)
}

/// The name of the newest revision is not copied.
fn known_version(name: Cow<'_, str>) -> Cow<'static, str> {
    let newest = Revision::NEWEST.name();
    if name == newest { newest.into() } else { name.into_owned().into() }
}

impl RequestMeta {
    pub(super) fn of(members: &[(MemberName, RawJson)]) -> Self {
        let mut meta = Self::default();
        let found = members.iter().find(|(name, value)| *name == "_meta" && value.as_str() != "null");
        let Some((_, found)) = found else { return meta };
        meta.is_present = true;
        for (name, value) in found.iter_members() {
            let text = || unquote(value).map(Cow::into_owned);
            match &*name {
                "progressToken" => meta.progress = Some(found.slice(value)),
                "io.modelcontextprotocol/protocolVersion" => {
                    meta.version = unquote(value).map(known_version);
                }
                "io.modelcontextprotocol/clientCapabilities" => meta.capabilities = parse_capabilities(value),
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
