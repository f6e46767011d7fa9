//! Rules of authentication, from the configuration.
//!
//! Immutable: a changed configuration makes new rules. They keep the state of the old ones that is still valid: the
//! cached keys of unchanged issuers, and the counts of unchanged quotas.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use http::header::HeaderMap;
use toolgate_runtime::runtime::AccessRules;
use toolgate_runtime::window_limit::WindowLimit;
use toolgate_types::serve::{AnonymousAccess, CertificateMatch, HostName};
use toolgate_types::tool::RateLimit;
use toolgate_types::{Caller, CallerId, Group, GroupName, KeyHash, ServeConfig};

use super::jwt::{TokenIdentity, TokenVerifier};
use super::{AuthState, CallerDirectory, JwksError, TrustedProxies, proxies};
use crate::listener::ConnectionEnds;
use crate::listener::tls::PeerCertificate;

/// Callers, and addresses, whose requests are counted.
const MAX_QUOTA_KEYS: usize = 100_000;

/// Everything that the configuration says about authentication.
pub(crate) struct AuthRules {
    pub(super) callers: HashMap<CallerId, Arc<Caller>>,
    /// Callers and policy that decide on calls.
    pub(super) access: Option<Arc<AccessRules>>,
    pub(super) groups: Vec<Arc<Group>>,
    /// Callers by their configured keys.
    pub(super) keys: Vec<(KeyHash, Arc<Caller>)>,
    pub(super) policy_callers: Vec<String>,
    pub(super) descriptions: BTreeMap<CallerId, String>,
    pub(super) tokens: TokenVerifier,
    pub(super) certificates: Vec<(CertificateMatch, Arc<Caller>)>,
    pub(super) anonymous: Option<Arc<Caller>>,
    pub(super) anonymous_access: AnonymousAccess,
    /// The local user, authenticated by the Unix socket.
    pub(super) owner: Arc<Caller>,
    pub(super) hosts: Vec<HostName>,
    pub(crate) proxies: TrustedProxies,
    pub(super) address_quota: Option<Arc<RequestQuota<IpAddr>>>,
    pub(super) caller_quota: Option<Arc<RequestQuota<CallerId>>>,
    /// Public URL of the gateway, if configured.
    pub(super) url: Option<String>,
}

impl AuthRules {
    pub(super) fn new(
        config: &ServeConfig,
        directory: CallerDirectory,
        before: Option<&Self>,
    ) -> Result<Self, JwksError> {
        let mut callers: HashMap<_, _> =
            directory.callers.into_iter().map(|caller| (caller.id.clone(), Arc::new(caller))).collect();
        let owner = Caller::owner();
        let owner = Arc::clone(callers.entry(owner.id.clone()).or_insert_with(|| Arc::new(owner)));
        let with_credential = |id: &CallerId, credential: String| {
            let caller = callers.get(id)?;
            Some(Caller { credential: Some(credential.into()), ..Caller::clone(caller) })
        };
        let key = |(id, key, name): &(CallerId, KeyHash, String)| {
            Some((*key, Arc::new(with_credential(id, format!("key/{name}"))?)))
        };
        let keys = directory.keys.iter().filter_map(key).collect();
        let groups = directory.groups;
        let certificate = |(id, rule): (CallerId, CertificateMatch)| {
            let mut caller = with_credential(&id, "certificate".to_owned())?;
            add_groups(&mut caller, &rule.groups, &groups);
            Some((rule, Arc::new(caller)))
        };
        let certificates = directory.certificates.into_iter().filter_map(certificate).collect();
        let anonymous = callers.values().find(|caller| caller.id.as_str() == Caller::ANONYMOUS);
        let has_rights = |caller: &&Arc<Caller>| caller.all_permissions().next().is_some();
        let anonymous = anonymous.filter(has_rights).map(Arc::clone);
        Ok(Self {
            keys,
            tokens: TokenVerifier::new(&config.jwt, before.map(|before| &before.tokens))?,
            certificates,
            anonymous,
            anonymous_access: config.anonymous,
            owner: Arc::new(Caller { credential: Some("socket".into()), ..Caller::clone(&owner) }),
            hosts: config.hosts.clone(),
            proxies: TrustedProxies::new(&config.trusted_proxies),
            address_quota: quota(
                config.requests_per_address,
                before.and_then(|before| before.address_quota.as_ref()),
            ),
            caller_quota: quota(
                config.requests_per_caller,
                before.and_then(|before| before.caller_quota.as_ref()),
            ),
            url: config.url.clone(),
            policy_callers: directory.policy_callers,
            descriptions: directory.descriptions,
            access: directory.access,
            callers,
            groups,
        })
    }

    pub(super) fn add_groups(&self, caller: &mut Caller, names: &[GroupName]) {
        add_groups(caller, names, &self.groups);
    }

    pub(super) fn caller_by_certificate(&self, certificate: &PeerCertificate) -> Option<Arc<Caller>> {
        let mut callers = self.certificates.iter();
        callers.find(|(rule, _)| certificate.matches(rule)).map(|(_, caller)| Arc::clone(caller))
    }

    /// The anonymous caller, if the configuration grants it anything. By default it is limited to direct requests from
    /// this machine. A request that passed a proxy is from another machine, and a browser may make one for a page of
    /// another origin.
    pub(super) fn anonymous_caller(&self, headers: &HeaderMap, ends: ConnectionEnds) -> Option<Arc<Caller>> {
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

    pub(super) fn is_own_host(&self, host: &str, local: IpAddr) -> bool {
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

impl AuthState {
    /// The caller of a token. `None` if its issuer is no longer trusted in the same way, or it names a caller that no
    /// token can be.
    pub(super) fn token_caller(&self, identity: &TokenIdentity) -> Option<Caller> {
        if !self.rules.tokens.issuers().any(|issuer| *issuer == *identity.issuer)
            || [Caller::OWNER, Caller::ANONYMOUS].contains(&identity.id.as_str())
        {
            return None;
        }
        let mut caller = match self.caller(identity.id.as_str()) {
            Some(known) => Caller::clone(known),
            None => Caller::new(identity.id.clone(), identity.permissions.clone()),
        };
        self.rules.add_groups(&mut caller, &identity.groups);
        caller.credential = Some(format!("token/{}", identity.issuer.issuer).into());
        caller.person = caller.person.or_else(|| identity.person.clone());
        Some(caller)
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

/// A limit of requests, with its configuration.
pub(super) struct RequestQuota<K> {
    limit: RateLimit,
    window: WindowLimit<K>,
}

impl<K> std::ops::Deref for RequestQuota<K> {
    type Target = WindowLimit<K>;

    fn deref(&self) -> &WindowLimit<K> {
        &self.window
    }
}

/// Limits the requests of many callers or addresses. An unchanged limit goes on counting.
fn quota<K: Eq + std::hash::Hash>(
    limit: Option<RateLimit>,
    before: Option<&Arc<RequestQuota<K>>>,
) -> Option<Arc<RequestQuota<K>>> {
    let limit = limit?;
    let unchanged = before.filter(|before| before.limit == limit).map(Arc::clone);
    let new = || Arc::new(RequestQuota { limit, window: WindowLimit::new(limit, MAX_QUOTA_KEYS) });
    Some(unchanged.unwrap_or_else(new))
}
