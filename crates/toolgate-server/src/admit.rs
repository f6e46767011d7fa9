//! Who gets in: the one function that every door asks before it does anything else.
//!
//! First the place (a page in a browser must not reach us under a name of its own), then the key, the token of an
//! issuer, or the certificate that the connection showed. Invariant:
//! keys are compared as hashes, all of them, in a time that does not depend on which one fits; guessing them
//! is slow.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use tokio::time::Instant;
use toolgate_types::door::{AnonymousReach, CertificateMatch, HostName};
use toolgate_types::tool::Permission;
use toolgate_types::{Caller, CallerId, DoorRules, ErrorCode, KeyHash};

use crate::accept::tls::Shown;
use crate::accept::{Ends, neighbourhood};
pub use crate::answer::Refusal;
use crate::keys::KeyStore;

mod allowance;
mod callers;
mod failures;
mod jwks;
mod jwt;
mod kept;
pub(crate) mod resource;
mod standing;

use allowance::Allowance;
use failures::Failures;
pub use jwks::KeysError;
use jwt::{Claimed, Rejected, Tokens};
use kept::{KeptCallers, Table};
pub(crate) use standing::Standing;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// What a proxy adds. Who comes through one is not who sits at this machine.
const FORWARDED: [HeaderName; 2] = [header::FORWARDED, HeaderName::from_static("x-forwarded-for")];

/// Who callers are, and by what they are known.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Those that the configuration names.
    pub callers: Vec<Caller>,
    /// Keys. A caller may have more than one.
    pub keys: Vec<(CallerId, KeyHash)>,
    /// Certificates.
    pub certificates: Vec<(CallerId, CertificateMatch)>,
    /// Where callers are kept that are made while it runs.
    pub kept: Option<KeyStore>,
    /// Ids that rules name: who has one may have more than its permissions.
    pub ruled: Vec<String>,
    /// What callers are for, where it is said.
    pub descriptions: BTreeMap<CallerId, String>,
}

/// Knows who may enter.
pub(crate) struct Gate {
    callers: HashMap<CallerId, Arc<Caller>>,
    keys: Vec<(KeyHash, Arc<Caller>)>,
    kept: Option<KeptCallers>,
    ruled: Vec<String>,
    descriptions: BTreeMap<CallerId, String>,
    tokens: Tokens,
    certificates: Vec<(CertificateMatch, Arc<Caller>)>,
    anonymous: Option<Arc<Caller>>,
    reach: AnonymousReach,
    /// The person at the machine.
    owner: Arc<Caller>,
    hosts: Vec<HostName>,
    failures: Failures,
    addresses: Option<Allowance<IpAddr>>,
    requests: Option<Allowance<CallerId>>,
    /// Under which address the world knows us, where that is said.
    url: Option<String>,
}

impl Gate {
    pub(crate) fn new(rules: &DoorRules, known: Known) -> Result<Self, KeysError> {
        let mut callers: HashMap<_, _> =
            known.callers.into_iter().map(|caller| (caller.id.clone(), Arc::new(caller))).collect();
        let owner = Caller::owner();
        let owner = Arc::clone(callers.entry(owner.id.clone()).or_insert_with(|| Arc::new(owner)));
        let find = |id: &CallerId| callers.get(id).map(Arc::clone);
        let keys = known.keys.iter().filter_map(|(id, key)| Some((*key, find(id)?))).collect();
        let certificates = known.certificates.into_iter();
        let certificates = certificates.filter_map(|(id, is)| Some((is, find(&id)?))).collect();
        let anonymous = callers.values().find(|caller| caller.id.as_str() == Caller::ANONYMOUS);
        let anonymous = anonymous.filter(|caller| !caller.permissions.is_empty()).map(Arc::clone);
        Ok(Self {
            keys,
            tokens: Tokens::new(&rules.jwt)?,
            certificates,
            anonymous,
            reach: rules.anonymous,
            owner,
            hosts: rules.hosts.clone(),
            failures: Failures::default(),
            addresses: rules.requests_per_address.map(Allowance::new),
            requests: rules.requests_per_caller.map(Allowance::new),
            url: rules.url.clone(),
            kept: known.kept.map(KeptCallers::new),
            ruled: known.ruled,
            descriptions: known.descriptions,
            callers,
        })
    }

    /// The person at the machine.
    pub(crate) fn owner(&self) -> Arc<Caller> {
        Arc::clone(&self.owner)
    }

    /// The callers that were made while it runs.
    fn made(&self, now: Instant) -> Arc<Table> {
        self.kept.as_ref().map(|kept| kept.table(&self.callers, now)).unwrap_or_default()
    }

    /// A caller by its id.
    pub(crate) fn caller(&self, id: &str) -> Option<Arc<Caller>> {
        let named = id.parse().ok().and_then(|id: CallerId| self.callers.get(&id).map(Arc::clone));
        named.or_else(|| self.made(Instant::now()).find(id).map(|(_, caller)| Arc::clone(caller)))
    }

    /// Whether an address may ask for anything more now.
    pub(crate) fn pace(&self, peer: IpAddr) -> Result<(), Refusal> {
        let Some(addresses) = &self.addresses else { return Ok(()) };
        let spent = addresses.spend(neighbourhood(peer), Instant::now());
        spent.map_err(|wait| too_many("too many requests came from this address", wait))
    }

    /// The caller of a request that is [meant for us](Self::place), or why there is none.
    pub(crate) async fn admit(
        &self,
        parts: &Parts,
        ends: Ends,
        shown: Option<&Shown>,
    ) -> Result<(Arc<Caller>, Standing), Refusal> {
        let now = Instant::now();
        let (caller, standing) = self.recognised(parts, ends, shown, now).await?;
        if let Some(requests) = &self.requests {
            let spent = requests.spend(caller.id.clone(), now);
            spent.map_err(|wait| too_many("the caller made too many requests", wait))?;
        }
        Ok((caller, standing))
    }

    async fn recognised(
        &self,
        parts: &Parts,
        ends: Ends,
        shown: Option<&Shown>,
        now: Instant,
    ) -> Result<(Arc<Caller>, Standing), Refusal> {
        let Some(Presented { key, bearer }) = presented(&parts.headers)? else {
            let certified = shown.and_then(|shown| self.certified(shown));
            let caller = certified.or_else(|| self.unnamed(&parts.headers, ends.peer));
            let caller = caller.ok_or_else(|| unauthenticated("a key is needed"))?;
            return Ok((caller, Standing::Lasting));
        };
        let slow_down = |wait| too_many("too many wrong keys came from this address", wait);
        // Who guesses is told nothing for a while, not even that it guessed well.
        if let Some(wait) = self.failures.guesses(ends.peer, now) {
            return Err(slow_down(wait));
        }
        let hash = KeyHash::of(key);
        // All of them, whichever fits.
        let mut found = None;
        let made = self.made(now);
        let fixed = self.keys.iter().map(|(key, caller)| (key, caller, Standing::Lasting));
        let made = made.keys().map(|(key, caller)| (key, caller, Standing::Made(*key)));
        for (known, caller, standing) in fixed.chain(made) {
            if *known == hash {
                found = Some((Arc::clone(caller), standing));
            }
        }
        if let Some(found) = found {
            return Ok(found);
        }
        // Nobody guesses a signature, and who comes with a token that has expired gets a new one.
        if bearer && !self.tokens.is_empty() && jwt::looks_like_one(key) {
            return Box::pin(self.claimed(key, ends.peer, now)).await;
        }
        tracing::warn!(peer = %ends.peer, "a request came with a wrong key");
        match self.failures.note(ends.peer, hash.mark(), now) {
            Some(wait) => Err(slow_down(wait)),
            None => Err(unauthenticated("the key is not known")),
        }
    }

    /// Who a token is about. A caller that the configuration names has what it is given there.
    async fn claimed(
        &self,
        token: &str,
        peer: IpAddr,
        now: Instant,
    ) -> Result<(Arc<Caller>, Standing), Refusal> {
        let Claimed { id, permissions, lasts } =
            self.tokens.verify(token, now).await.map_err(|rejected| match rejected {
                Rejected::Wrong(why) => {
                    tracing::warn!(%peer, "a token is refused: {why}");
                    invalid_token(why)
                }
                Rejected::NoKeys => Refusal::unavailable("the keys of the token's issuer cannot be had")
                    .after(std::time::Duration::from_secs(5)),
            })?;
        if [Caller::OWNER, Caller::ANONYMOUS].contains(&id.as_str()) {
            return Err(invalid_token("no token makes somebody the owner, or nobody"));
        }
        let caller = self.caller(id.as_str()).unwrap_or_else(|| Arc::new(Caller { id, permissions }));
        Ok((caller, Standing::Until(now + lasts)))
    }

    /// Who has the certificate that the connection showed.
    fn certified(&self, shown: &Shown) -> Option<Arc<Caller>> {
        let mut callers = self.certificates.iter();
        callers.find(|(certificate, _)| shown.fits(certificate)).map(|(_, caller)| Arc::clone(caller))
    }

    /// Whoever says nothing of itself: there only where the configuration gives it something, and for this
    /// machine alone where it says nothing else.
    fn unnamed(&self, headers: &HeaderMap, peer: IpAddr) -> Option<Arc<Caller>> {
        let here = || peer.is_loopback() && FORWARDED.iter().all(|name| !headers.contains_key(name));
        let comes = self.reach == AnonymousReach::Everywhere || here();
        self.anonymous.as_ref().filter(|_| comes).map(Arc::clone)
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
pub(crate) fn authority(parts: &Parts) -> Option<Authority> {
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

/// What a request shows.
struct Presented<'a> {
    key: &'a str,
    /// Whether it came as a bearer, as tokens do.
    bearer: bool,
}

/// The key that a request shows, if it shows one.
fn presented(headers: &HeaderMap) -> Result<Option<Presented<'_>>, Refusal> {
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
        (Some(key), _) => Ok(Some(Presented { key, bearer: true })),
        (None, Some(key)) => Ok(Some(Presented { key, bearer: false })),
        (None, None) => Ok(None),
    }
}

fn too_many(message: &str, wait: std::time::Duration) -> Refusal {
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::RateLimited.label(), message).after(wait)
}

fn invalid_token(why: &str) -> Refusal {
    let challenge =
        format!("Bearer realm=\"toolgate\", error=\"invalid_token\", error_description=\"{why}\"");
    let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "unauthenticated", why)
        .hint("get a new token from its issuer, for this door");
    Refusal { challenge: Some(challenge), ..refusal }
}

fn unauthenticated(message: &str) -> Refusal {
    let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
        .hint("send `Authorization: Bearer KEY` or `X-API-Key: KEY`");
    Refusal { challenge: Some("Bearer realm=\"toolgate\"".to_owned()), ..refusal }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
