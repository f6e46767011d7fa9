//! Authentication: finds the caller of a request, for every front end.
//!
//! The host check comes first, so that a web page cannot reach the gateway under a name of its own (DNS rebinding).
//! Then comes the credential: an API key, a token of an issuer, or a client certificate. Invariant: keys are looked up by
//! their hash, in a time that depends neither on the match nor on the number of keys; wrong keys are rate limited, right
//! ones are not.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::uri::Authority;
use tokio::time::Instant;
use toolgate_runtime::window_limit::WindowLimit;
use toolgate_types::serve::{AnonymousAccess, CertificateMatch, HostName};
use toolgate_types::tool::{Permission, RateLimit};
use toolgate_types::{Caller, CallerId, ErrorCode, Group, GroupName, KeyHash, ServeConfig};

use crate::keys::KeyStore;
use crate::listener::tls::PeerCertificate;
use crate::listener::{ConnectionEnds, client_key};
pub use crate::response::HttpError;

mod authenticated;
mod callers;
mod failures;
mod jwks;
mod jwt;
mod lifetime;
mod managed;
mod message_quota;
pub(crate) mod protected_resource;
mod proxies;

pub(crate) use authenticated::Authenticated;
use failures::KeyFailures;
pub use jwks::JwksError;
use jwt::{TokenError, TokenIdentity, TokenVerifier};
pub(crate) use lifetime::CredentialLifetime;
use managed::{CallerTable, ManagedCallers};
pub(crate) use message_quota::MessageQuota;
pub(crate) use proxies::TrustedProxies;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Callers, and addresses, whose requests are counted.
const MAX_QUOTA_KEYS: usize = 100_000;

/// All callers, with their credentials.
#[derive(Debug, Clone, Default)]
pub struct CallerDirectory {
    /// Callers from the configuration.
    pub callers: Vec<Caller>,
    /// Groups that tokens and certificates can make callers members of.
    pub groups: Vec<Arc<Group>>,
    /// API keys. A caller may have several.
    pub keys: Vec<(CallerId, KeyHash)>,
    /// Client certificates.
    pub certificates: Vec<(CallerId, CertificateMatch)>,
    /// Store of callers created at runtime.
    pub key_store: Option<KeyStore>,
    /// Caller ids named in policy rules. Such an id may grant more than the permissions of the caller.
    pub policy_callers: Vec<String>,
    /// Descriptions of callers.
    pub descriptions: BTreeMap<CallerId, String>,
}

/// Authenticates requests.
pub(crate) struct Authenticator {
    callers: HashMap<CallerId, Arc<Caller>>,
    groups: Vec<Arc<Group>>,
    keys: HashMap<KeyHash, Arc<Caller>>,
    managed: Option<ManagedCallers>,
    policy_callers: Vec<String>,
    descriptions: BTreeMap<CallerId, String>,
    tokens: TokenVerifier,
    certificates: Vec<(CertificateMatch, Arc<Caller>)>,
    anonymous: Option<Arc<Caller>>,
    anonymous_access: AnonymousAccess,
    /// The local user, authenticated by the Unix socket.
    owner: Arc<Caller>,
    hosts: Vec<HostName>,
    failures: KeyFailures,
    pub(crate) proxies: TrustedProxies,
    address_quota: Option<WindowLimit<IpAddr>>,
    caller_quota: Option<WindowLimit<CallerId>>,
    /// Public URL of the gateway, if configured.
    url: Option<String>,
}

impl Authenticator {
    pub(crate) fn new(config: &ServeConfig, directory: CallerDirectory) -> Result<Self, JwksError> {
        let mut callers: HashMap<_, _> =
            directory.callers.into_iter().map(|caller| (caller.id.clone(), Arc::new(caller))).collect();
        let owner = Caller::owner();
        let owner = Arc::clone(callers.entry(owner.id.clone()).or_insert_with(|| Arc::new(owner)));
        let with_credential = |id: &CallerId, credential: &str| {
            let caller = callers.get(id)?;
            Some(Caller { credential: Some(credential.into()), ..Caller::clone(caller) })
        };
        let key = |(id, key): &(CallerId, KeyHash)| {
            Some((*key, Arc::new(with_credential(id, "key/toolgate.yaml")?)))
        };
        let keys = directory.keys.iter().filter_map(key).collect();
        let groups = directory.groups;
        let certificate = |(id, rule): (CallerId, CertificateMatch)| {
            let mut caller = with_credential(&id, "certificate")?;
            add_groups(&mut caller, &rule.groups, &groups);
            Some((rule, Arc::new(caller)))
        };
        let certificates = directory.certificates.into_iter().filter_map(certificate).collect();
        let owner = Arc::new(Caller { credential: Some("socket".into()), ..Caller::clone(&owner) });
        let anonymous = callers.values().find(|caller| caller.id.as_str() == Caller::ANONYMOUS);
        let anonymous = anonymous.filter(|caller| !caller.permissions.is_empty()).map(Arc::clone);
        Ok(Self {
            keys,
            tokens: TokenVerifier::new(&config.jwt)?,
            certificates,
            anonymous,
            anonymous_access: config.anonymous,
            owner,
            hosts: config.hosts.clone(),
            failures: KeyFailures::default(),
            proxies: TrustedProxies::new(&config.trusted_proxies),
            address_quota: config.requests_per_address.map(quota),
            caller_quota: config.requests_per_caller.map(quota),
            url: config.url.clone(),
            managed: directory.key_store.map(ManagedCallers::new),
            policy_callers: directory.policy_callers,
            descriptions: directory.descriptions,
            callers,
            groups,
        })
    }

    pub(crate) fn owner(&self) -> Arc<Caller> {
        Arc::clone(&self.owner)
    }

    /// Callers created at runtime.
    fn managed_callers(&self, now: Instant) -> Arc<CallerTable> {
        self.managed.as_ref().map(|managed| managed.table(&self.callers, now)).unwrap_or_default()
    }

    /// Returns true if two callers count as one for approvals.
    pub(crate) fn have_same_origin(&self, one: &CallerId, other: &CallerId) -> bool {
        self.managed_callers(Instant::now()).have_same_origin(one, other)
    }

    pub(crate) fn caller(&self, id: &str) -> Option<Arc<Caller>> {
        let named = id.parse().ok().and_then(|id: CallerId| self.callers.get(&id).map(Arc::clone));
        named.or_else(|| self.managed_callers(Instant::now()).find(id).map(|(_, caller)| Arc::clone(caller)))
    }

    /// Checks the request quota of a client address.
    pub(crate) fn check_address_quota(&self, client: IpAddr) -> Result<(), HttpError> {
        let Some(quota) = &self.address_quota else { return Ok(()) };
        let taken = quota.take(client_key(client), 1, Instant::now());
        taken.map_err(|wait| rate_limited("too many requests from this address", wait))
    }

    /// Authenticates a request that passed the [host check](Self::check_host).
    pub(crate) async fn authenticate(
        &self,
        parts: &Parts,
        ends: ConnectionEnds,
        certificate: Option<&PeerCertificate>,
    ) -> Result<(Arc<Caller>, CredentialLifetime), HttpError> {
        let now = Instant::now();
        let (caller, lifetime) = self.identify(parts, ends, certificate, now).await?;
        if let Some(quota) = &self.caller_quota {
            let taken = quota.take(caller.id.clone(), 1, now);
            taken.map_err(|wait| rate_limited("too many requests by this caller", wait))?;
        }
        Ok((caller, lifetime))
    }

    async fn identify(
        &self,
        parts: &Parts,
        ends: ConnectionEnds,
        certificate: Option<&PeerCertificate>,
        now: Instant,
    ) -> Result<(Arc<Caller>, CredentialLifetime), HttpError> {
        let Some(PresentedKey { key, bearer }) = presented_key(&parts.headers)? else {
            let by_certificate = certificate.and_then(|certificate| self.caller_by_certificate(certificate));
            let caller = by_certificate.or_else(|| self.anonymous_caller(&parts.headers, ends));
            let caller = caller.ok_or_else(|| unauthenticated("authentication is required"))?;
            return Ok((caller, CredentialLifetime::Permanent));
        };
        let hash = KeyHash::of(key);
        // The tables have a secret hash function and compare in constant time, so the time of a lookup does not
        // reveal the similarity of a wrong key to a right one.
        if let Some(caller) = self.keys.get(&hash) {
            return Ok((Arc::clone(caller), CredentialLifetime::Permanent));
        }
        if let Some(caller) = self.managed_callers(now).find_by_key(&hash) {
            return Ok((Arc::clone(caller), CredentialLifetime::ManagedKey(hash)));
        }
        // Checked after the keys and not counted as a guess: signatures cannot be guessed, and expired tokens are
        // normal.
        if bearer && !self.tokens.is_empty() && jwt::looks_like_jwt(key) {
            return Box::pin(self.authenticate_token(key, ends.client, now)).await;
        }
        tracing::warn!(client = %ends.client, "request with an unknown API key");
        match self.failures.record(ends.client, now) {
            Some(wait) => Err(rate_limited("too many wrong keys from this address", wait)),
            None => Err(unauthenticated("the API key is unknown")),
        }
    }

    /// Authenticates a token. If the configuration names the caller, its permissions come from there.
    async fn authenticate_token(
        &self,
        token: &str,
        client: IpAddr,
        now: Instant,
    ) -> Result<(Arc<Caller>, CredentialLifetime), HttpError> {
        let TokenIdentity { id, permissions, groups, person, issuer, valid_for } =
            self.tokens.verify(token, now).await.map_err(|rejected| match rejected {
                TokenError::Invalid(reason) => {
                    tracing::warn!(%client, "token rejected: {reason}");
                    invalid_token(reason)
                }
                TokenError::KeysUnavailable => {
                    HttpError::unavailable("the keys of the token issuer are unavailable")
                        .retry_after(std::time::Duration::from_secs(5))
                }
            })?;
        if [Caller::OWNER, Caller::ANONYMOUS].contains(&id.as_str()) {
            return Err(invalid_token("a token cannot authenticate as `owner` or `anonymous`"));
        }
        let mut caller = match self.caller(id.as_str()) {
            Some(configured) => Caller::clone(&configured),
            None => Caller::new(id, permissions),
        };
        add_groups(&mut caller, &groups, &self.groups);
        caller.credential = Some(format!("token/{issuer}").into());
        caller.person = caller.person.or(person);
        Ok((Arc::new(caller), CredentialLifetime::Until(now + valid_for)))
    }

    fn caller_by_certificate(&self, certificate: &PeerCertificate) -> Option<Arc<Caller>> {
        let mut callers = self.certificates.iter();
        callers.find(|(rule, _)| certificate.matches(rule)).map(|(_, caller)| Arc::clone(caller))
    }

    /// The anonymous caller, if the configuration grants it anything. By default it is limited to direct requests from
    /// this machine. A request that passed a proxy is from another machine, and a browser may make one for a page of
    /// another origin.
    fn anonymous_caller(&self, headers: &HeaderMap, ends: ConnectionEnds) -> Option<Arc<Caller>> {
        let is_trusted = self.proxies.contains(ends.peer);
        let is_allowed = !proxies::is_cross_site(headers)
            && match self.anonymous_access {
                // Not even without a header: a proxy may have been told not to add one.
                AnonymousAccess::Loopback => {
                    ends.peer.is_loopback() && !is_trusted && !proxies::has_proxy_header(headers)
                }
                AnonymousAccess::Everywhere => is_trusted || !proxies::has_proxy_header(headers),
            };
        self.anonymous.as_ref().filter(|_| is_allowed).map(Arc::clone)
    }

    /// Checks that the request is for a host name of this gateway, and that its `Origin`, if any, is the same host.
    pub(crate) fn check_host(&self, parts: &Parts, ends: ConnectionEnds) -> Result<(), HttpError> {
        let forbidden = |message: &str| {
            HttpError::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message.to_owned())
                .hint("`serve.hosts` in toolgate.yaml lists the host names of this gateway")
        };
        let authority =
            authority(parts).ok_or_else(|| forbidden("the request has no valid `Host` header"))?;
        if !self.is_own_host(authority.host(), ends.local) {
            return Err(forbidden(&format!("unknown host `{}`", authority.host())));
        }
        let mut origins = parts.headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(()) };
        let same = |origin: &str| {
            let plain = || origin.strip_prefix("http://").filter(|_| !ends.secure);
            let of = origin.strip_prefix("https://").or_else(plain);
            of.is_some_and(|of| of.eq_ignore_ascii_case(authority.as_str()))
        };
        let ours = origins.next().is_none() && origin.to_str().is_ok_and(same);
        if ours { Ok(()) } else { Err(forbidden("cross-origin requests are not allowed")) }
    }

    fn is_own_host(&self, host: &str, local: IpAddr) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        // DNS can point any name at this machine, so names need a list. Addresses do not.
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = address.to_canonical();
            return address == local || address.is_loopback() && local.is_loopback();
        }
        let named = |known: &HostName| known.as_str().eq_ignore_ascii_case(host);
        (host.eq_ignore_ascii_case("localhost") && local.is_loopback()) || self.hosts.iter().any(named)
    }
}

/// Makes a caller a member of groups, besides those that it is in.
fn add_groups(caller: &mut Caller, names: &[GroupName], groups: &[Arc<Group>]) {
    for group in groups.iter().filter(|group| names.contains(&group.name)) {
        if !caller.is_in_group(group.name.as_str()) {
            caller.groups.push(Arc::clone(group));
        }
    }
}

/// Limits the requests of many callers or addresses.
fn quota<K: Eq + std::hash::Hash>(limit: RateLimit) -> WindowLimit<K> {
    WindowLimit::new(limit, MAX_QUOTA_KEYS)
}

/// Checks that a caller has a permission.
fn require_permission(caller: &Caller, permission: &str) -> Result<(), HttpError> {
    let permission: Permission = permission.parse().expect("required permissions are valid");
    if caller.has_permission(&permission) { Ok(()) } else { Err(HttpError::missing_permission(&permission)) }
}

/// Checks that a caller has a permission by its exact name; wildcards do not count.
pub(crate) fn require_explicit_permission(caller: &Caller, permission: &str) -> Result<(), HttpError> {
    let permission: Permission = permission.parse().expect("required permissions are valid");
    if caller.has_explicit_permission(&permission) {
        Ok(())
    } else {
        Err(HttpError::missing_permission(&permission))
    }
}

/// Authority of a request. `None` if it is missing, repeated or contradictory.
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

/// An API key or token sent with a request.
struct PresentedKey<'a> {
    key: &'a str,
    /// True if sent as a bearer credential, as tokens are.
    bearer: bool,
}

/// Reads the credential from the headers.
fn presented_key(headers: &HeaderMap) -> Result<Option<PresentedKey<'_>>, HttpError> {
    let one = |name: &HeaderName| {
        let mut all = headers.get_all(name).iter();
        let first = all.next();
        if all.next().is_some() {
            return Err(HttpError::invalid(format!("duplicate header `{name}`")));
        }
        first.map(|value| value.to_str().map_err(|_| unauthenticated("the API key is unknown"))).transpose()
    };
    let bearer = |value: &'_ str| -> Option<usize> {
        let (scheme, _) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(scheme.len() + 1)
    };
    let authorization = match one(&header::AUTHORIZATION)? {
        Some(value) => {
            let at =
                bearer(value).ok_or_else(|| unauthenticated("the `Authorization` scheme is not `Bearer`"))?;
            Some(value[at..].trim())
        }
        None => None,
    };
    match (authorization, one(&API_KEY)?) {
        (Some(one), Some(other)) if one != other => {
            Err(HttpError::invalid("`Authorization` and `X-API-Key` hold different keys"))
        }
        (Some(key), _) => Ok(Some(PresentedKey { key, bearer: true })),
        (None, Some(key)) => Ok(Some(PresentedKey { key, bearer: false })),
        (None, None) => Ok(None),
    }
}

fn rate_limited(message: &str, wait: std::time::Duration) -> HttpError {
    HttpError::new(StatusCode::TOO_MANY_REQUESTS, ErrorCode::RateLimited.label(), message).retry_after(wait)
}

fn invalid_token(reason: &str) -> HttpError {
    let challenge =
        format!("Bearer realm=\"toolgate\", error=\"invalid_token\", error_description=\"{reason}\"");
    let refusal = HttpError::new(StatusCode::UNAUTHORIZED, "unauthenticated", reason)
        .hint("get a new token for this gateway from the issuer");
    HttpError { challenge: Some(challenge), ..refusal }
}

fn unauthenticated(message: &str) -> HttpError {
    let refusal = HttpError::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
        .hint("send `Authorization: Bearer KEY` or `X-API-Key: KEY`");
    HttpError { challenge: Some("Bearer realm=\"toolgate\"".to_owned()), ..refusal }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
