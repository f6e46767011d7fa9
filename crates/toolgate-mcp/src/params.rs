//! Parameters of a request, assembled from raw JSON parts.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;

use toolgate_json::{MemberName, quote};

use crate::RawJson;
use crate::downstream::{DownstreamClient, Forwarded};
use crate::trace::TraceContext;

/// Space reserved for the serialised trace ids.
const TRACE_BYTES: usize = 192;

type Member = (Cow<'static, str>, MemberValue);

#[derive(Clone)]
enum MemberValue {
    Raw(RawJson),
    /// Constant JSON.
    Fixed(&'static str),
    /// Unquoted string.
    Text(MemberName),
}

/// Members of `params` and of its `_meta`, in order.
#[derive(Clone, Default)]
pub struct Params {
    members: Vec<Member>,
    meta: Vec<Member>,
    pub(crate) mirror_headers: Vec<(String, String)>,
    trace: Option<TraceContext>,
    /// True if the trace ids are written to `_meta`.
    includes_trace: bool,
    client: Option<Arc<dyn DownstreamClient>>,
}

impl Params {
    pub fn none() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: &impl Serialize) -> Self {
        self.members.push((name.into(), MemberValue::Raw(RawJson::from_value(value))));
        self
    }

    #[must_use]
    pub fn with_text(mut self, name: &'static str, value: impl Into<MemberName>) -> Self {
        self.members.push((name.into(), MemberValue::Text(value.into())));
        self
    }

    #[must_use]
    pub fn with_raw(mut self, name: &'static str, value: RawJson) -> Self {
        self.members.push((name.into(), MemberValue::Raw(value)));
        self
    }

    pub fn add_meta(&mut self, name: &'static str, value: &impl Serialize) {
        self.meta.push((name.into(), MemberValue::Raw(RawJson::from_value(value))));
    }

    /// Adds a constant string to `_meta`.
    pub(crate) fn add_meta_text(&mut self, name: &'static str, text: &'static str) {
        self.meta.push((name.into(), MemberValue::Text(MemberName::from_static(text))));
    }

    /// Adds constant JSON to `_meta`.
    pub(crate) fn add_meta_fixed(&mut self, name: &'static str, json: &'static str) {
        self.meta.push((name.into(), MemberValue::Fixed(json)));
    }

    /// Adds all members of an object.
    #[must_use]
    pub fn with_members(mut self, object: &RawJson) -> Self {
        let members = object.members();
        let members = members.iter().map(|(name, value)| (name.to_string().into(), object.slice(value)));
        self.members.extend(members.map(|(name, value)| (name, MemberValue::Raw(value))));
        self
    }

    /// Adds the forwarded parts of a client's request. Members that are already set are not replaced.
    #[must_use]
    pub fn with_forwarded(mut self, along: &Forwarded) -> Self {
        for (name, value) in &along.extra_params {
            if !self.members.iter().any(|(known, _)| **known == **name) {
                self.members.push((name.to_string().into(), MemberValue::Raw(value.clone())));
            }
        }
        let meta = along
            .extra_meta
            .iter()
            .map(|(name, value)| (name.to_string().into(), MemberValue::Raw(value.clone())));
        self.meta.extend(meta);
        self.client.clone_from(&along.client);
        self
    }

    pub(crate) fn client(&self) -> Option<&Arc<dyn DownstreamClient>> {
        self.client.as_ref()
    }

    /// Sets headers that mirror arguments, for transports and revisions that have them.
    #[must_use]
    pub fn with_mirror_headers(mut self, headers: Vec<(String, String)>) -> Self {
        self.mirror_headers = headers;
        self
    }

    /// Sets the trace ids. A request without them gets new ids when it is sent.
    #[must_use]
    pub fn with_trace(mut self, trace: &TraceContext) -> Self {
        self.trace = Some(trace.clone());
        self
    }

    /// Returns the trace ids and includes them in `_meta`.
    pub(crate) fn include_trace(&mut self) -> TraceContext {
        let trace = self.trace.get_or_insert_with(TraceContext::generate).clone();
        self.includes_trace = true;
        trace
    }

    /// Returns a string member, for the headers that name the target of a request.
    pub(crate) fn string_member(&self, name: &str) -> Option<MemberName> {
        let (_, value) = self.members.iter().find(|(member, _)| member == name)?;
        match value {
            MemberValue::Text(text) => Some(text.clone()),
            MemberValue::Raw(raw) => raw.parse::<String>().ok().map(Into::into),
            MemberValue::Fixed(_) => None,
        }
    }

    /// Serialises the params; `None` if there are none.
    pub(crate) fn to_raw(&self) -> Option<RawJson> {
        if self.is_empty() {
            return None;
        }
        let mut out = String::with_capacity(self.estimated_length());
        self.write(&mut out);
        Some(RawJson::from_trusted(out))
    }

    /// Serialises a request with these params.
    pub(crate) fn to_request(&self, id: i64, method: &str) -> String {
        let mut out = String::with_capacity(self.estimated_length() + method.len() + 64);
        let _ = write!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":");
        quote(method, &mut out);
        if !self.is_empty() {
            out.push_str(",\"params\":");
            self.write(&mut out);
        }
        out.push('}');
        out
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.meta.is_empty() && !self.includes_trace
    }

    /// Upper estimate of the serialised length.
    fn estimated_length(&self) -> usize {
        let members = self.members.iter().chain(&self.meta);
        members.map(|(name, value)| name.len() + value.estimated_length() + 8).sum::<usize>() + TRACE_BYTES
    }

    fn write(&self, out: &mut String) {
        write_object(&self.members, out);
        let trace = self.trace.as_ref().filter(|_| self.includes_trace);
        if self.meta.is_empty() && trace.is_none() {
            return;
        }
        out.pop();
        out.push_str(if self.members.is_empty() { "\"_meta\":" } else { ",\"_meta\":" });
        write_object(&self.meta, out);
        if let Some(trace) = trace {
            out.pop();
            out.push_str(if self.meta.is_empty() { "\"traceparent\":\"" } else { ",\"traceparent\":\"" });
            out.push_str(trace.traceparent());
            let _ = write!(out, "\",\"{}\":\"{}\"}}", TraceContext::CORRELATION_ID, trace.correlation_id());
        }
        out.push('}');
    }
}

impl MemberValue {
    fn estimated_length(&self) -> usize {
        match self {
            Self::Raw(raw) => raw.as_str().len(),
            Self::Fixed(json) => json.len(),
            Self::Text(text) => text.len(),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Raw(raw) => out.push_str(raw.as_str()),
            Self::Fixed(json) => out.push_str(json),
            Self::Text(text) => quote(text, out),
        }
    }
}

fn write_object(members: &[Member], out: &mut String) {
    out.push('{');
    for (index, (name, value)) in members.iter().enumerate() {
        out.push_str(if index > 0 { "," } else { "" });
        quote(name, out);
        out.push(':');
        value.write(out);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assembles_raw_parts() {
        assert_eq!(Params::none().to_raw(), None);
        let mut params = Params::none()
            .with("name", &"echo")
            .with_raw("arguments", RawJson::from_trusted("{\"n\":1.0}".to_owned()));
        params.add_meta("progressToken", &7);
        params.add_meta_fixed("fixed", "{}");
        let raw = params.clone().with_text("t", "a\"b").to_raw().unwrap();
        let t = r#""t":"a\"b","#;
        assert_eq!(
            raw.as_str(),
            format!(
                r#"{{"name":"echo","arguments":{{"n":1.0}},{t}"_meta":{{"progressToken":7,"fixed":{{}}}}}}"#
            )
        );
        assert_eq!(Params::none().to_request(3, "x/y"), r#"{"jsonrpc":"2.0","id":3,"method":"x/y"}"#);
        let request = r#"{"jsonrpc":"2.0","id":3,"method":"m","params":{"t":"v"}}"#;
        let text = Params::none().with_text("t", "v");
        assert_eq!(
            (text.to_request(3, "m").as_str(), text.string_member("t").as_deref()),
            (request, Some("v"))
        );
        params.meta.pop();
        let raw = params.to_raw().unwrap();
        assert_eq!(raw.as_str(), r#"{"name":"echo","arguments":{"n":1.0},"_meta":{"progressToken":7}}"#);
        let mut traced = Params::none().with_trace(&TraceContext::new("c"));
        assert_eq!(traced.to_raw(), None);
        let trace = traced.include_trace();
        let ids = format!(r#""traceparent":"{}","toolgate/correlationId":"c""#, trace.traceparent());
        assert_eq!(traced.to_raw().unwrap().as_str(), format!(r#"{{"_meta":{{{ids}}}}}"#));
        traced.add_meta("a", &1);
        assert_eq!(traced.to_raw().unwrap().as_str(), format!(r#"{{"_meta":{{"a":1,{ids}}}}}"#));
        let mut only_meta = Params::none();
        only_meta.add_meta("a", &1);
        assert_eq!(only_meta.to_raw().unwrap().as_str(), r#"{"_meta":{"a":1}}"#);
    }
}
