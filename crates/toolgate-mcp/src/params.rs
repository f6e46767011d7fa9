//! The parameters of a request, put together from parts that stay raw.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;

use toolgate_types::json::quote;

use crate::Raw;
use crate::behind::{Along, Behind};
use crate::trace::Trace;

/// What the ids of a trace take, and a little more.
const TRACE: usize = 192;

type Member = (Cow<'static, str>, Said);

/// What a member is.
#[derive(Clone)]
enum Said {
    /// JSON.
    Raw(Raw),
    /// JSON that never changes.
    Fixed(&'static str),
    /// A text, as it is read.
    Text(Cow<'static, str>),
}

/// Members of `params`, in order, and of its `_meta`.
#[derive(Clone, Default)]
pub struct Params {
    members: Vec<Member>,
    meta: Vec<Member>,
    pub(crate) mirrored: Vec<(String, String)>,
    trace: Option<Trace>,
    /// Whether they are to be said.
    tells_trace: bool,
    client: Option<Arc<dyn Behind>>,
}

impl Params {
    /// No parameters.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a member.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &impl Serialize) -> Self {
        self.members.push((name.into(), Said::Raw(Raw::of(value))));
        self
    }

    /// Adds a member that is a text.
    #[must_use]
    pub fn with_text(mut self, name: &'static str, value: &str) -> Self {
        self.members.push((name.into(), Said::Text(value.to_owned().into())));
        self
    }

    /// Adds a member that is JSON already.
    #[must_use]
    pub fn with_raw(mut self, name: &'static str, value: Raw) -> Self {
        self.members.push((name.into(), Said::Raw(value)));
        self
    }

    /// Adds a member of `_meta`.
    pub fn meta(&mut self, name: &'static str, value: &impl Serialize) {
        self.meta.push((name.into(), Said::Raw(Raw::of(value))));
    }

    /// Adds a member of `_meta` that is one of a few texts.
    pub(crate) fn meta_text(&mut self, name: &'static str, text: &'static str) {
        self.meta.push((name.into(), Said::Text(text.into())));
    }

    /// Adds a member of `_meta` that is JSON and always the same.
    pub(crate) fn meta_fixed(&mut self, name: &'static str, json: &'static str) {
        self.meta.push((name.into(), Said::Fixed(json)));
    }

    /// Makes the request one that is passed on for a client. What it brings along does not replace what is
    /// said already.
    #[must_use]
    pub fn along(mut self, along: &Along) -> Self {
        for (name, value) in &along.members {
            if !self.members.iter().any(|(known, _)| **known == **name) {
                self.members.push((name.to_string().into(), Said::Raw(value.clone())));
            }
        }
        let meta = along.meta.iter().map(|(name, value)| (name.to_string().into(), Said::Raw(value.clone())));
        self.meta.extend(meta);
        self.client.clone_from(&along.client);
        self
    }

    /// The client that it is passed on for.
    pub(crate) fn client(&self) -> Option<&Arc<dyn Behind>> {
        self.client.as_ref()
    }

    /// Headers that mirror arguments, where the transport and the revision have them.
    #[must_use]
    pub fn mirroring(mut self, headers: Vec<(String, String)>) -> Self {
        self.mirrored = headers;
        self
    }

    /// Makes the request part of a call. One that is part of none gets ids of its own when it is sent.
    #[must_use]
    pub fn traced(mut self, trace: &Trace) -> Self {
        self.trace = Some(trace.clone());
        self
    }

    /// The ids of the request, which are in its `_meta` from now on.
    pub(crate) fn told_trace(&mut self) -> Trace {
        let trace = self.trace.get_or_insert_with(Trace::fresh).clone();
        self.tells_trace = true;
        trace
    }

    /// A text among the members, for the headers that name what a request is about.
    pub(crate) fn text(&self, name: &str) -> Option<Box<str>> {
        let (_, value) = self.members.iter().find(|(member, _)| member == name)?;
        match value {
            Said::Text(text) => Some((**text).into()),
            Said::Raw(raw) => raw.parse::<String>().ok().map(Into::into),
            Said::Fixed(_) => None,
        }
    }

    /// The object; `None` where there is nothing in it.
    pub(crate) fn to_raw(&self) -> Option<Raw> {
        if self.is_empty() {
            return None;
        }
        let mut out = String::with_capacity(self.length());
        self.write(&mut out);
        Some(Raw::trusted(out))
    }

    /// The message that asks with them.
    pub(crate) fn to_request(&self, id: i64, method: &str) -> String {
        let mut out = String::with_capacity(self.length() + method.len() + 64);
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
        self.members.is_empty() && self.meta.is_empty() && !self.tells_trace
    }

    /// How long they are when they are written, or a little more.
    fn length(&self) -> usize {
        let members = self.members.iter().chain(&self.meta);
        members.map(|(name, value)| name.len() + value.length() + 8).sum::<usize>() + TRACE
    }

    fn write(&self, out: &mut String) {
        object(&self.members, out);
        let trace = self.trace.as_ref().filter(|_| self.tells_trace);
        if self.meta.is_empty() && trace.is_none() {
            return;
        }
        out.pop();
        out.push_str(if self.members.is_empty() { "\"_meta\":" } else { ",\"_meta\":" });
        object(&self.meta, out);
        if let Some(trace) = trace {
            out.pop();
            out.push_str(if self.meta.is_empty() { "\"traceparent\":\"" } else { ",\"traceparent\":\"" });
            out.push_str(trace.traceparent());
            let _ = write!(out, "\",\"{}\":\"{}\"}}", Trace::CORRELATION_ID, trace.correlation_id());
        }
        out.push('}');
    }
}

impl Said {
    fn length(&self) -> usize {
        match self {
            Self::Raw(raw) => raw.get().len(),
            Self::Fixed(json) => json.len(),
            Self::Text(text) => text.len(),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Raw(raw) => out.push_str(raw.get()),
            Self::Fixed(json) => out.push_str(json),
            Self::Text(text) => quote(text, out),
        }
    }
}

fn object(members: &[Member], out: &mut String) {
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
    fn an_object_of_raw_parts() {
        assert_eq!(Params::none().to_raw(), None);
        let mut params = Params::none()
            .with("name", &"echo")
            .with_raw("arguments", Raw::trusted("{\"n\":1.0}".to_owned()));
        params.meta("progressToken", &7);
        params.meta_fixed("fixed", "{}");
        let raw = params.clone().with_text("t", "a\"b").to_raw().unwrap();
        let t = r#""t":"a\"b","#;
        assert_eq!(
            raw.get(),
            format!(
                r#"{{"name":"echo","arguments":{{"n":1.0}},{t}"_meta":{{"progressToken":7,"fixed":{{}}}}}}"#
            )
        );
        assert_eq!(Params::none().to_request(3, "x/y"), r#"{"jsonrpc":"2.0","id":3,"method":"x/y"}"#);
        let request = r#"{"jsonrpc":"2.0","id":3,"method":"m","params":{"t":"v"}}"#;
        let text = Params::none().with_text("t", "v");
        assert_eq!((text.to_request(3, "m").as_str(), text.text("t").as_deref()), (request, Some("v")));
        params.meta.pop();
        let raw = params.to_raw().unwrap();
        assert_eq!(raw.get(), r#"{"name":"echo","arguments":{"n":1.0},"_meta":{"progressToken":7}}"#);
        let mut traced = Params::none().traced(&Trace::new("c"));
        assert_eq!(traced.to_raw(), None);
        let trace = traced.told_trace();
        let ids = format!(r#""traceparent":"{}","toolgate/correlationId":"c""#, trace.traceparent());
        assert_eq!(traced.to_raw().unwrap().get(), format!(r#"{{"_meta":{{{ids}}}}}"#));
        traced.meta("a", &1);
        assert_eq!(traced.to_raw().unwrap().get(), format!(r#"{{"_meta":{{"a":1,{ids}}}}}"#));
        let mut only_meta = Params::none();
        only_meta.meta("a", &1);
        assert_eq!(only_meta.to_raw().unwrap().get(), r#"{"_meta":{"a":1}}"#);
    }
}
