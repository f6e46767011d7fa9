//! Authentication: finds the caller of a request, for every front end.
//!
//! The host check comes first, so that a web page cannot reach the gateway under a name of its own (DNS rebinding).
//! Then comes the credential: an API key, a token of an issuer, or a client certificate. Invariant: keys are looked up by
//! their hash, in a time that depends neither on the match nor on the number of keys; wrong keys are rate limited, right
//! ones are not. A request is authenticated by the state of one moment: a change of the configuration or of the stored
//! keys replaces all of it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::Authority;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use toolgate_runtime::credentials::SubjectTokens;
use toolgate_runtime::runtime::AccessRules;
use toolgate_runtime::shared_limit::SharedLimit;
use toolgate_store::callers::{CallerRecords, CallerStore, StoreStamp};
use toolgate_store::cluster::ClusterStores;
use toolgate_types::serve::CertificateMatch;
use toolgate_types::tool::Permission;
use toolgate_types::{Caller, CallerId, ErrorCode, Group, KeyHash, ServeConfig};

use crate::console::{ConsoleSession, SessionCredential};
use crate::listener::tls::PeerCertificate;
use crate::listener::{ConnectionEnds, ConnectionSource, client_key};
pub use crate::response::HttpError;
use crate::routes::EXPLICIT_PERMISSIONS;

mod authenticated;
mod callers;
mod failures;
mod issuer_client;
mod jwks;
mod jwt;
mod lifetime;
mod link_client;
mod oidc;
pub(crate) mod protected_resource;
mod proxies;
mod rules;
mod stored;
mod table;

pub(crate) use authenticated::Authenticated;
use failures::KeyFailures;
pub use jwks::JwksError;
use jwt::TokenError;
pub(crate) use jwt::TokenSession;
pub(crate) use lifetime::{Credential, CredentialLifetime};
pub(crate) use link_client::LinkClient;
pub(crate) use oidc::{LoginSecrets, login_failed};
pub(crate) use proxies::TrustedProxies;
use rules::AuthRules;
pub(crate) use stored::follow_store;
use table::{ActiveKey, CallerTable};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// All callers, with their credentials.
#[derive(Debug, Clone, Default)]
pub struct CallerDirectory {
    /// Callers from the configuration.
    pub callers: Vec<Caller>,
    /// Groups that tokens and certificates can make callers members of.
    pub groups: Vec<Arc<Group>>,
    /// API keys of the configuration, each with its name. A caller may have several.
    pub keys: Vec<(CallerId, KeyHash, String)>,
    /// Client certificates.
    pub certificates: Vec<(CallerId, CertificateMatch)>,
    /// Store of callers created at runtime, and of keys.
    pub store: Option<Arc<dyn CallerStore>>,
    /// Caller ids named in policy rules. Such an id may grant more than the permissions of the caller.
    pub policy_callers: Vec<String>,
    /// Descriptions of callers.
    pub descriptions: BTreeMap<CallerId, String>,
    /// Callers and policy that decide on the calls of these callers. Both are replaced together: a call has the caller and
    /// the policy of one configuration. `None`: the policy that the runtime uses.
    pub access: Option<Arc<AccessRules>>,
}

/// Checks that the keys of all token issuers can be used, as far as that is known without a request.
///
/// # Errors
/// If a file with the keys of an issuer is unusable.
pub fn check_issuers(config: &ServeConfig) -> Result<(), JwksError> {
    jwt::TokenVerifier::new(&config.jwt, None).map(drop)
}

/// Authenticates requests.
pub(crate) struct Authenticator {
    /// The rules and callers in use.
    state: ArcSwap<AuthState>,
    store: Option<Arc<dyn CallerStore>>,
    /// The stored records in use, with their stamp. Locked while the state is replaced.
    records: Mutex<(StoreStamp, CallerRecords)>,
    /// Notifies waiters when the state is replaced.
    changed: watch::Sender<()>,
    failures: KeyFailures,
    /// The same at all replicas of a cluster.
    shared_failures: Option<SharedLimit>,
    /// Tokens of callers, for servers that exchange them.
    subjects: Arc<SubjectTokens>,
}

/// Rules of the configuration, and the callers and keys that result from them and from the store.
pub(crate) struct AuthState {
    rules: Arc<AuthRules>,
    table: CallerTable,
}

impl AuthState {
    /// The callers and the policy that decide on the calls of its callers.
    pub(crate) fn access(&self) -> Option<Arc<AccessRules>> {
        self.rules.access.clone()
    }

    /// Finds a caller, of the configuration or of the store.
    fn caller(&self, id: &str) -> Option<&Arc<Caller>> {
        let named = id.parse().ok().and_then(|id: CallerId| self.rules.callers.get(&id));
        named.or_else(|| self.table.find(id).map(|(_, caller)| caller))
    }

    /// Counts a request of a caller.
    fn check_caller_quota(&self, caller: &Caller, now: Instant) -> Result<(), HttpError> {
        let Some(quota) = &self.rules.caller_quota else { return Ok(()) };
        let taken = quota.take(caller.id.clone(), 1, now);
        taken.map_err(|wait| rate_limited("too many requests by this caller", wait))
    }
}

impl Authenticator {
    pub(crate) fn new(config: &ServeConfig, directory: CallerDirectory) -> Result<Self, JwksError> {
        let store = directory.store.clone();
        let rules = Arc::new(AuthRules::new(config, directory, None)?);
        let records = Mutex::new((StoreStamp::default(), CallerRecords::default()));
        let table = CallerTable::new(&rules, CallerRecords::default(), &CallerTable::default());
        let state = ArcSwap::from_pointee(AuthState { rules, table });
        let authenticator = Self {
            state,
            store,
            records,
            changed: watch::Sender::new(()),
            failures: KeyFailures::default(),
            shared_failures: None,
            subjects: Arc::default(),
        };
        authenticator.reload_store();
        Ok(authenticator)
    }

    /// Takes over a changed configuration, as a whole. Streams of callers with changed rights end.
    ///
    /// # Errors
    /// If a file with the keys of a token issuer is unusable. Nothing changes then.
    pub(crate) fn replace(&self, config: &ServeConfig, directory: CallerDirectory) -> Result<(), JwksError> {
        let rules = AuthRules::new(config, directory, Some(&self.state.load().rules))?;
        self.rebuild(Some(Arc::new(rules)), &self.records.lock().1);
        Ok(())
    }

    /// Replaces the state. The caller holds the lock of the records.
    fn rebuild(&self, rules: Option<Arc<AuthRules>>, records: &CallerRecords) {
        let before = self.state.load_full();
        let rules = rules.unwrap_or_else(|| Arc::clone(&before.rules));
        let table = CallerTable::new(&rules, records.clone(), &before.table);
        self.state.store(Arc::new(AuthState { rules, table }));
        self.changed.send_replace(());
    }

    /// The rules in use.
    /// Notifies of changes to callers and their credentials.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn rules(&self) -> Arc<AuthRules> {
        Arc::clone(&self.state.load().rules)
    }

    /// Passes verified tokens on to servers that exchange them.
    pub(crate) fn with_subjects(mut self, subjects: &Arc<SubjectTokens>) -> Self {
        self.subjects = Arc::clone(subjects);
        self
    }

    /// Counts wrong keys at all replicas of a cluster.
    pub(crate) fn with_cluster(mut self, cluster: Option<&ClusterStores>) -> Self {
        self.shared_failures = cluster.map(|cluster| {
            SharedLimit::new(Arc::clone(&cluster.limits), "wrong-keys".to_owned(), failures::limit())
        });
        self
    }

    pub(crate) fn owner(&self) -> Arc<Caller> {
        Arc::clone(&self.state.load().rules.owner)
    }

    /// Returns true if this is the state in use.
    fn has_state(&self, state: &Arc<AuthState>) -> bool {
        Arc::ptr_eq(&self.state.load(), state)
    }

    /// The state in use.
    fn state(&self) -> Arc<AuthState> {
        self.state.load_full()
    }

    /// Returns true if two callers count as one for approvals.
    pub(crate) fn have_same_origin(&self, one: &CallerId, other: &CallerId) -> bool {
        self.state.load().table.have_same_origin(one, other)
    }

    pub(crate) fn caller(&self, id: &str) -> Option<Arc<Caller>> {
        self.state.load().caller(id).map(Arc::clone)
    }

    /// Checks the request quota of a client address.
    pub(crate) fn check_address_quota(&self, client: IpAddr) -> Result<(), HttpError> {
        let state = self.state.load();
        let Some(quota) = &state.rules.address_quota else { return Ok(()) };
        let taken = quota.take(client_key(client), 1, Instant::now());
        taken.map_err(|wait| rate_limited("too many requests from this address", wait))
    }

    /// Authenticates a request that passed the [host check](Self::check_host).
    pub(crate) async fn authenticate(
        &self,
        parts: &Parts,
        ends: ConnectionEnds,
        certificate: Option<&Arc<PeerCertificate>>,
    ) -> Result<(Arc<Caller>, CredentialLifetime, Arc<AuthState>), HttpError> {
        let now = Instant::now();
        let state = self.state.load_full();
        let (caller, lifetime) = self.identify(&state, parts, ends, certificate, now).await?;
        state.check_caller_quota(&caller, now)?;
        Ok((caller, lifetime, state))
    }

    /// Authenticates a session of the console. It ends with its key or token.
    pub(crate) async fn authenticate_session(
        &self,
        session: Option<ConsoleSession>,
        source: &ConnectionSource,
    ) -> Result<(Arc<Caller>, CredentialLifetime, Arc<AuthState>), HttpError> {
        let now = Instant::now();
        let state = self.state.load_full();
        let ended = || unauthenticated("authentication is required");
        let session = session.ok_or_else(ended)?;
        let (caller, credential, credential_end) = match &session.credential {
            SessionCredential::Key(key) => {
                let active = state.table.find_by_key(key).ok_or_else(ended)?;
                let client = match source {
                    ConnectionSource::Network(ends, _) => ends.client,
                    ConnectionSource::LocalSocket => IpAddr::from([127, 0, 0, 1]),
                };
                let end = self.use_key(*key, active, client, now).await?;
                (Arc::clone(&active.caller), Credential::Key(*key), end)
            }
            SessionCredential::Token(token) => {
                let identity = state.rules.tokens.session_identity(token).ok_or_else(ended)?;
                let caller = state.token_caller(&identity).ok_or_else(ended)?;
                let end = now + identity.valid_for;
                (Arc::new(caller), Credential::Token(Arc::new(identity)), Some(end))
            }
        };
        let left = session.end.saturating_sub(Timestamp::now().as_second());
        let session_end = now + std::time::Duration::from_secs(u64::try_from(left).unwrap_or_default());
        let end = credential_end.map_or(session_end, |end| end.min(session_end));
        state.check_caller_quota(&caller, now)?;
        let lifetime = CredentialLifetime::new(credential, &caller, Some(end));
        Ok((caller, lifetime, state))
    }

    /// Checks a key that was entered at a login, with the same limit of failures as the keys of requests.
    pub(crate) async fn check_login(&self, key: &str, ends: ConnectionEnds) -> Result<KeyHash, HttpError> {
        let value = HeaderValue::from_str(key).map_err(|_| unauthenticated("the API key is unknown"))?;
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.headers.insert(API_KEY, value);
        self.authenticate(&parts, ends, None).await?;
        Ok(KeyHash::of(key))
    }

    /// Returns true if the client of a request uses TLS, up to this gateway or up to its trusted proxy.
    pub(crate) fn is_secure(&self, source: &ConnectionSource) -> bool {
        let ConnectionSource::Network(ends, _) = source else { return false };
        let rules = &self.state.load().rules;
        let behind_tls = || rules.url.as_ref().is_some_and(|url| url.starts_with("https://"));
        ends.secure || rules.proxies.contains(ends.peer) && behind_tls()
    }

    async fn identify(
        &self,
        state: &AuthState,
        parts: &Parts,
        ends: ConnectionEnds,
        certificate: Option<&Arc<PeerCertificate>>,
        now: Instant,
    ) -> Result<(Arc<Caller>, CredentialLifetime), HttpError> {
        let rules = &state.rules;
        let Some(PresentedKey { key, bearer }) = presented_key(parts)? else {
            let found = |caller: Arc<Caller>, credential| {
                let lifetime = CredentialLifetime::new(credential, &caller, None);
                (caller, lifetime)
            };
            if let Some(certificate) = certificate
                && let Some(caller) = rules.caller_by_certificate(certificate)
            {
                return Ok(found(caller, Credential::Certificate(Arc::clone(certificate))));
            }
            let caller = rules.anonymous_caller(&parts.headers, ends);
            let caller = caller.ok_or_else(|| unauthenticated("authentication is required"))?;
            return Ok(found(caller, Credential::Anonymous(rules.anonymous_access)));
        };
        let hash = KeyHash::of(key);
        if let Some(active) = state.table.find_by_key(&hash) {
            let caller = Arc::clone(&active.caller);
            let end = self.use_key(hash, active, ends.client, now).await?;
            let lifetime = CredentialLifetime::new(Credential::Key(hash), &caller, end);
            return Ok((caller, lifetime));
        }
        // Checked after the keys and not counted as a guess: signatures cannot be guessed, and expired tokens are
        // normal.
        if bearer && !rules.tokens.is_empty() && jwt::looks_like_jwt(key) {
            return Box::pin(self.authenticate_token(state, key, ends.client, now)).await;
        }
        tracing::warn!(client = %ends.client, "request with an unknown API key");
        let too_many = |wait| rate_limited("too many wrong keys from this address", wait);
        if let Some(wait) = self.failures.record(ends.client, now) {
            return Err(too_many(wait));
        }
        if let Some(shared) = &self.shared_failures {
            shared.take(&client_key(ends.client).to_string(), now).await.map_err(too_many)?;
        }
        Err(unauthenticated("the API key is unknown"))
    }

    /// Notes the use of a stored key. Returns its expiry.
    async fn use_key(
        &self,
        hash: KeyHash,
        active: &ActiveKey,
        client: IpAddr,
        now: Instant,
    ) -> Result<Option<Instant>, HttpError> {
        // Keys of the configuration have neither a usage nor an expiry, and need no clock.
        let Some(usage) = &active.usage else { return Ok(None) };
        if self.store.as_ref().is_some_and(|store| store.is_stale()) {
            let message = "stored API keys do not count while the database of the cluster is unavailable";
            return Err(HttpError::unavailable(message).retry_after(std::time::Duration::from_secs(5)));
        }
        let time = Timestamp::now();
        let second = time.as_second();
        if active.expires.is_some_and(|expires| expires <= second) {
            tracing::warn!(%client, caller = %active.caller.id, "request with an expired API key");
            let error = unauthenticated("the API key has expired");
            return Err(error.hint("ask for a new one: `toolgate callers keys rotate`"));
        }
        if active.is_first_use() && active.caller.id.as_str() == Caller::OWNER {
            // Before anything is done with it: the next start replaces a key that was never used.
            self.save_first_use(hash, time).await;
        }
        usage.record(second);
        Ok(active.expires.map(|expires| {
            now + std::time::Duration::from_secs(u64::try_from(expires - second).unwrap_or_default())
        }))
    }

    /// Authenticates a token. If the configuration names the caller, its permissions come from there.
    async fn authenticate_token(
        &self,
        state: &AuthState,
        token: &str,
        client: IpAddr,
        now: Instant,
    ) -> Result<(Arc<Caller>, CredentialLifetime), HttpError> {
        let identity = state.rules.tokens.verify(token, now).await.map_err(|rejected| match rejected {
            TokenError::Invalid(reason) => {
                tracing::warn!(%client, "token rejected: {reason}");
                invalid_token(reason)
            }
            TokenError::KeysUnavailable => {
                HttpError::unavailable("the keys of the token issuer are unavailable")
                    .retry_after(std::time::Duration::from_secs(5))
            }
        })?;
        let forbidden = || invalid_token("a token cannot authenticate as `owner` or `anonymous`");
        let caller = Arc::new(state.token_caller(&identity).ok_or_else(forbidden)?);
        self.subjects.note(&caller.id, token);
        let end = now + identity.valid_for;
        let lifetime = CredentialLifetime::new(Credential::Token(Arc::new(identity)), &caller, Some(end));
        Ok((caller, lifetime))
    }

    /// Checks that the request is for a host name of this gateway, and that its `Origin`, if any, is the same host.
    pub(crate) fn check_host(&self, parts: &Parts, ends: ConnectionEnds) -> Result<(), HttpError> {
        let forbidden = |message: &str| {
            HttpError::new(StatusCode::FORBIDDEN, ErrorCode::Unauthorized.label(), message.to_owned())
                .hint("`serve.hosts` in toolgate.yaml lists the host names of this gateway")
        };
        let authority =
            authority(parts).ok_or_else(|| forbidden("the request has no valid `Host` header"))?;
        if !self.state.load().rules.is_own_host(authority.host(), ends.local) {
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
}

/// Checks that a caller has a permission for management. Wildcards do not count for [`EXPLICIT_PERMISSIONS`].
pub(crate) fn require_permission(caller: &Caller, permission: &str) -> Result<(), HttpError> {
    let is_explicit = EXPLICIT_PERMISSIONS.contains(&permission);
    let permission: Permission = permission.parse().expect("required permissions are valid");
    let has = if is_explicit {
        caller.has_explicit_permission(&permission)
    } else {
        caller.has_permission(&permission)
    };
    if has { Ok(()) } else { Err(HttpError::missing_permission(&permission)) }
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

/// Subprotocol that carries a key, for WebSocket clients that cannot send headers.
const KEY_PROTOCOL: &str = "bearer.";

/// Returns the key among the subprotocols of a WebSocket request. It must not appear in any other request: there, the
/// header means nothing.
fn websocket_key(parts: &Parts) -> Result<Option<&str>, HttpError> {
    let path = parts.uri.path();
    if path != "/ws" && !path.starts_with("/ws/") {
        return Ok(None);
    }
    let offers = parts.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let offers = offers.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut keys = offers.filter_map(|offer| offer.trim().strip_prefix(KEY_PROTOCOL));
    let first = keys.next();
    if keys.next().is_some() {
        return Err(HttpError::invalid("the WebSocket subprotocols hold more than one key"));
    }
    Ok(first)
}

/// Reads the credential of a request.
fn presented_key(parts: &Parts) -> Result<Option<PresentedKey<'_>>, HttpError> {
    let by_header = header_key(&parts.headers)?;
    let Some(key) = websocket_key(parts)? else { return Ok(by_header) };
    match by_header {
        Some(other) if other.key != key => {
            Err(HttpError::invalid("the headers and the WebSocket subprotocol hold different keys"))
        }
        _ => Ok(Some(PresentedKey { key, bearer: true })),
    }
}

/// Reads the credential from the headers.
fn header_key(headers: &HeaderMap) -> Result<Option<PresentedKey<'_>>, HttpError> {
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
