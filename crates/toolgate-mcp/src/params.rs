//! The parameters of a request, put together from parts that stay raw.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use crate::Raw;
use crate::behind::{Along, Behind};
use crate::message::quoted;
use crate::trace::Trace;

type Member = (Cow<'static, str>, Raw);

/// Members of `params`, in order, and of its `_meta`.
#[derive(Clone, Default)]
pub struct Params {
    members: Vec<Member>,
    meta: Vec<Member>,
    pub(crate) mirrored: Vec<(String, String)>,
    trace: Option<Trace>,
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
        self.members.push((name.into(), Raw::of(value)));
        self
    }

    /// Adds a member that is JSON already.
    #[must_use]
    pub fn with_raw(mut self, name: &'static str, value: Raw) -> Self {
        self.members.push((name.into(), value));
        self
    }

    /// Adds a member of `_meta`.
    pub fn meta(&mut self, name: &'static str, value: &impl Serialize) {
        self.meta.push((name.into(), Raw::of(value)));
    }

    /// Makes the request one that is passed on for a client. What it brings along does not replace what is
    /// said already.
    #[must_use]
    pub fn along(mut self, along: &Along) -> Self {
        for (name, value) in &along.members {
            if !self.members.iter().any(|(known, _)| **known == **name) {
                self.members.push((name.to_string().into(), value.clone()));
            }
        }
        self.meta.extend(along.meta.iter().map(|(name, value)| (name.to_string().into(), value.clone())));
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
    pub(crate) fn take_trace(&mut self) -> Trace {
        let trace = self.trace.take().unwrap_or_else(Trace::fresh);
        self.meta("traceparent", &trace.traceparent());
        self.meta(Trace::CORRELATION_ID, &trace.correlation_id());
        trace
    }

    /// A text among the members, for the headers that name what a request is about.
    pub(crate) fn text(&self, name: &str) -> Option<Box<str>> {
        let (_, value) = self.members.iter().find(|(member, _)| member == name)?;
        value.parse::<String>().ok().map(Into::into)
    }

    /// The object; `None` where there is nothing in it.
    pub(crate) fn to_raw(&self) -> Option<Raw> {
        if self.members.is_empty() && self.meta.is_empty() {
            return None;
        }
        let mut out = String::new();
        object(&self.members, &mut out);
        if !self.meta.is_empty() {
            out.pop();
            out.push_str(if self.members.is_empty() { "\"_meta\":" } else { ",\"_meta\":" });
            object(&self.meta, &mut out);
            out.push('}');
        }
        Some(Raw::trusted(out))
    }
}

fn object(members: &[Member], out: &mut String) {
    out.push('{');
    for (index, (name, value)) in members.iter().enumerate() {
        out.push_str(if index > 0 { "," } else { "" });
        out.push_str(&quoted(name));
        out.push(':');
        out.push_str(value.get());
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
        let raw = params.to_raw().unwrap();
        assert_eq!(raw.get(), r#"{"name":"echo","arguments":{"n":1.0},"_meta":{"progressToken":7}}"#);
        let mut only_meta = Params::none();
        only_meta.meta("a", &1);
        assert_eq!(only_meta.to_raw().unwrap().get(), r#"{"_meta":{"a":1}}"#);
    }
}
