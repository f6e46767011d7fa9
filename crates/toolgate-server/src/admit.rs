//! Who gets in: the one function that every door asks before it does anything else.
//!
//! First the place (a page in a browser must not reach us under a name of its own), then the key, or the certificate
//! that the connection showed. Invariant:
//! keys are compared as hashes, all of them, in a time that does not depend on which one fits; guessing them
//! is slow.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use tokio::time::Instant;
use toolgate_runtime::Runtime;
use toolgate_types::door::{CertificateMatch, HostName};
use toolgate_types::tool::Permission;
use toolgate_types::{Caller, CallerId, ErrorCode, KeyHash};

use crate::accept::Ends;
use crate::accept::tls::Shown;
pub use crate::answer::Refusal;

mod failures;

use failures::Failures;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// What a proxy adds. Who comes through one is not who sits at this machine.
const FORWARDED: [HeaderName; 2] = [header::FORWARDED, HeaderName::from_static("x-forwarded-for")];

/// By what callers are known.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Keys. A caller may have more than one.
    pub keys: Vec<(CallerId, KeyHash)>,
    /// Certificates.
    pub certificates: Vec<(CallerId, CertificateMatch)>,
}

/// Knows who may enter.
pub(crate) struct Gate {
    keys: Vec<(KeyHash, Arc<Caller>)>,
    certificates: Vec<(CertificateMatch, Arc<Caller>)>,
    anonymous: Option<Arc<Caller>>,
    /// The person at the machine.
    owner: Arc<Caller>,
    hosts: Vec<HostName>,
    failures: Failures,
}

impl Gate {
    pub(crate) fn new(runtime: &Runtime, hosts: Vec<HostName>, by: Known) -> Self {
        let known = |id: &CallerId| match runtime.caller(id.as_str()) {
            Some(caller) => Some(Arc::new(caller.clone())),
            None => (id.as_str() == Caller::OWNER).then(|| Arc::new(Caller::owner())),
        };
        let keys = by.keys.iter().filter_map(|(id, key)| Some((*key, known(id)?))).collect();
        let certificates = by.certificates.into_iter();
        let certificates = certificates.filter_map(|(id, is)| Some((is, known(&id)?))).collect();
        let anonymous = runtime.caller(Caller::ANONYMOUS).filter(|caller| !caller.permissions.is_empty());
        let anonymous = anonymous.map(|caller| Arc::new(caller.clone()));
        let owner = known(&Caller::owner().id).unwrap_or_else(|| Arc::new(Caller::owner()));
        Self { keys, certificates, anonymous, owner, hosts, failures: Failures::default() }
    }

    /// The person at the machine.
    pub(crate) fn owner(&self) -> Arc<Caller> {
        Arc::clone(&self.owner)
    }

    /// The caller of a request, or why there is none.
    pub(crate) fn admit(&self, parts: &Parts, ends: Ends) -> Result<Arc<Caller>, Refusal> {
        self.place(parts, ends)?;
        let now = Instant::now();
        let Some(key) = presented(&parts.headers)? else {
            let certified = parts.extensions.get::<Arc<Shown>>().and_then(|shown| self.certified(shown));
            let caller = certified.or_else(|| self.unnamed(&parts.headers, ends.peer));
            return caller.ok_or_else(|| unauthenticated("a key is needed"));
        };
        let slow_down = |wait| {
            Refusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                ErrorCode::RateLimited.label(),
                "too many wrong keys came from this address",
            )
            .after(wait)
        };
        // Who guesses is told nothing for a while, not even that it guessed well.
        if let Some(wait) = self.failures.guesses(ends.peer, now) {
            return Err(slow_down(wait));
        }
        let hash = KeyHash::of(key);
        // All of them, whichever fits.
        let mut found = None;
        for (known, caller) in &self.keys {
            if *known == hash {
                found = Some(caller);
            }
        }
        if let Some(caller) = found {
            return Ok(Arc::clone(caller));
        }
        tracing::warn!(peer = %ends.peer, "a request came with a wrong key");
        match self.failures.note(ends.peer, hash.mark(), now) {
            Some(wait) => Err(slow_down(wait)),
            None => Err(unauthenticated("the key is not known")),
        }
    }

    /// Who has the certificate that the connection showed.
    fn certified(&self, shown: &Shown) -> Option<Arc<Caller>> {
        let mut callers = self.certificates.iter();
        callers.find(|(certificate, _)| shown.fits(certificate)).map(|(_, caller)| Arc::clone(caller))
    }

    /// Whoever says nothing of itself: there only where the configuration gives it something, and for this
    /// machine alone.
    fn unnamed(&self, headers: &HeaderMap, peer: IpAddr) -> Option<Arc<Caller>> {
        let direct = peer.is_loopback() && FORWARDED.iter().all(|name| !headers.contains_key(name));
        self.anonymous.as_ref().filter(|_| direct).map(Arc::clone)
    }

    /// Whether a request is meant for us: its host is a name of ours, and the page that sent it, where one
    /// did, is of ours too.
    pub(crate) fn place(&self, parts: &Parts, ends: Ends) -> Result<(), Refusal> {
        let refuse = |what: &str| {
            Refusal::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), what.to_owned())
                .hint("`serve.hosts` in toolgate.yaml names the hosts under which this is reached")
        };
        let authority =
            authority(parts).ok_or_else(|| refuse("the request does not say which host it is for"))?;
        if !self.is_ours(authority.host(), ends.local) {
            return Err(refuse("the request is for another host"));
        }
        let mut origins = parts.headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(()) };
        let same = |origin: &str| {
            let plain = || origin.strip_prefix("http://").filter(|_| !ends.secure);
            let of = origin.strip_prefix("https://").or_else(plain);
            of.is_some_and(|of| of.eq_ignore_ascii_case(authority.as_str()))
        };
        let ours = origins.next().is_none() && origin.to_str().is_ok_and(same);
        if ours { Ok(()) } else { Err(refuse("the request comes from a page of another origin")) }
    }

    fn is_ours(&self, host: &str, local: IpAddr) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        // A name can be made to lead here; an address is what it is.
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = address.to_canonical();
            return address == local || address.is_loopback() && local.is_loopback();
        }
        let named = |known: &HostName| known.as_str().eq_ignore_ascii_case(host);
        (host.eq_ignore_ascii_case("localhost") && local.is_loopback()) || self.hosts.iter().any(named)
    }
}

/// Whether a caller has a permission of ours.
pub(crate) fn demand(caller: &Caller, permission: &str) -> Result<(), Refusal> {
    let permission: Permission = permission.parse().expect("what we demand is a permission");
    if caller.has(&permission) { Ok(()) } else { Err(Refusal::lacks(&permission)) }
}

/// Whether a caller was given a permission of ours by its name.
pub(crate) fn demand_by_name(caller: &Caller, permission: &str) -> Result<(), Refusal> {
    let permission: Permission = permission.parse().expect("what we demand is a permission");
    if caller.has_by_name(&permission) { Ok(()) } else { Err(Refusal::lacks(&permission)) }
}

/// What a request is for, where it says so once.
fn authority(parts: &Parts) -> Option<Authority> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return None;
    }
    let named = host.map(|host| host.to_str().ok()?.parse::<Authority>().ok());
    match (parts.uri.authority(), named) {
        (Some(authority), None) => Some(authority.clone()),
        (Some(authority), Some(Some(named))) => (*authority == named).then_some(named),
        (None, Some(named)) => named,
        (Some(_), Some(None)) | (None, None) => None,
    }
}

/// The key that a request shows, if it shows one.
fn presented(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let one = |name: &HeaderName| {
        let mut all = headers.get_all(name).iter();
        let first = all.next();
        if all.next().is_some() {
            return Err(Refusal::invalid(format!("there is more than one header `{name}`")));
        }
        first.map(|value| value.to_str().map_err(|_| unauthenticated("the key is not known"))).transpose()
    };
    let bearer = |value: &'_ str| -> Option<usize> {
        let (scheme, _) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(scheme.len() + 1)
    };
    let authorization = match one(&header::AUTHORIZATION)? {
        Some(value) => {
            let at = bearer(value).ok_or_else(|| unauthenticated("a key is sent as `Bearer`"))?;
            Some(value[at..].trim())
        }
        None => None,
    };
    match (authorization, one(&API_KEY)?) {
        (Some(one), Some(other)) if one != other => Err(Refusal::invalid("two different keys were sent")),
        (Some(key), _) | (None, Some(key)) => Ok(Some(key)),
        (None, None) => Ok(None),
    }
}

fn unauthenticated(message: &str) -> Refusal {
    let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
        .hint("send `Authorization: Bearer KEY` or `X-API-Key: KEY`");
    Refusal { challenge: Some("Bearer realm=\"toolgate\"".to_owned()), ..refusal }
}

#[cfg(test)]
mod tests;
