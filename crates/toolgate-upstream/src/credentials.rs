//! Credentials that servers get: the shared one, or that of the caller behind a connection.
//!
//! A static credential is sent in a header, or passed to the child process of its caller. OAuth tokens belong to a
//! [`TokenSource`] that all connections of a caller to a server share, so that a token is refreshed once. Invariant: a
//! credential goes only to the URL that it was stored for, and only on connections of its caller.

use std::any::Any;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use toolgate_mcp::network::AddressPolicy;
use toolgate_mcp::oauth::{
    self, BrowserLogin, LoginError, LoginPage, LogoutOutcome, StorageError, TokenSource, TokenStorage,
};
use toolgate_store::credentials::{Credential, CredentialId, CredentialKind, CredentialStore};
pub use toolgate_store::credentials::{CredentialError, CredentialInfo};
use toolgate_types::server::{CredentialTarget, RemoteTransport, Transport};
use toolgate_types::{Caller, CallerId, ConfigString, Secret, ServerName, ServerSpec, UpstreamIdentity};
use url::Url;

use crate::login_tickets::{LoginTickets, TicketError};

mod secrets;

pub use secrets::CredentialSecrets;
use secrets::Holder;

/// Tokens of callers that are remembered. Beyond that, the oldest is forgotten: its caller shows it again.
const MAX_SUBJECTS: usize = 10_000;
/// Number of token sources that triggers the removal of unused ones.
const CLEANUP_SOURCES: usize = 64;

/// Environment of the logins of all servers.
#[derive(Clone, Default)]
pub struct LoginOptions {
    /// Stored credentials; `None` keeps tokens in memory only.
    pub store: Option<Arc<dyn CredentialStore>>,
    /// Interactive login, if a person is present.
    pub browser: Option<BrowserLogin>,
    /// Tokens that callers showed to the gateway.
    pub subjects: Arc<SubjectTokens>,
    /// Logins of callers in a browser, through the gateway.
    pub tickets: Arc<LoginTickets>,
    /// Secrets of credentials in use.
    pub secrets: Arc<CredentialSecrets>,
    /// The person at the browser logs in for any caller, not only for the owner.
    pub any_browser: bool,
    /// Folder with the tokens of earlier versions; they are moved to the store.
    pub legacy_folder: Option<PathBuf>,
}

/// Tokens that callers showed to the gateway, for servers that exchange them.
#[derive(Default)]
pub struct SubjectTokens {
    /// True if a server needs them. Otherwise none is remembered.
    is_needed: AtomicBool,
    tokens: Mutex<SubjectTable>,
}

#[derive(Default)]
struct SubjectTable {
    by_caller: HashMap<CallerId, (u64, Secret)>,
    /// Number of changes so far.
    changes: u64,
}

impl SubjectTokens {
    fn need(&self) {
        self.is_needed.store(true, Ordering::Relaxed);
    }

    /// Remembers the token that authenticated a caller.
    pub fn note(&self, caller: &CallerId, token: &str) {
        if !self.is_needed.load(Ordering::Relaxed) {
            return;
        }
        let mut table = self.tokens.lock();
        if table.by_caller.get(caller).is_some_and(|(_, known)| known.expose() == token) {
            return;
        }
        if table.by_caller.len() >= MAX_SUBJECTS && !table.by_caller.contains_key(caller) {
            let oldest = table.by_caller.iter().min_by_key(|(_, (at, _))| *at);
            if let Some(oldest) = oldest.map(|(caller, _)| caller.clone()) {
                table.by_caller.remove(&oldest);
            }
        }
        table.changes += 1;
        let at = table.changes;
        table.by_caller.insert(caller.clone(), (at, Secret::new(token)));
    }

    fn get(&self, caller: &CallerId) -> Option<Secret> {
        self.tokens.lock().by_caller.get(caller).map(|(_, token)| token.clone())
    }
}

/// The credential of one connection.
#[derive(Clone, Default)]
pub enum ConnectionCredential {
    /// None besides those of the configuration.
    #[default]
    Configured,
    /// OAuth tokens.
    Tokens(Arc<TokenSource>),
    /// A static credential, and its place.
    Static(CredentialTarget, Secret),
}

impl ConnectionCredential {
    pub(crate) fn tokens(&self) -> Option<&Arc<TokenSource>> {
        match self {
            Self::Tokens(tokens) => Some(tokens),
            Self::Configured | Self::Static(..) => None,
        }
    }

    /// Returns true if two connections with these credentials show the same one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Configured, Self::Configured) | (Self::Tokens(_), Self::Tokens(_)) => true,
            (Self::Static(place, one), Self::Static(other_place, other)) => {
                place == other_place && one == other
            }
            _ => false,
        }
    }

    /// The header of a static credential.
    pub(crate) fn header(&self) -> Option<(String, Secret)> {
        match self {
            Self::Static(CredentialTarget::Header(name), secret) => Some((name.clone(), secret.clone())),
            _ => None,
        }
    }

    /// The environment variable of a static credential.
    pub(crate) fn variable(&self) -> Option<(String, ConfigString)> {
        match self {
            Self::Static(CredentialTarget::Env(name), secret) => {
                Some((name.clone(), ConfigString::hidden(secret.expose())))
            }
            _ => None,
        }
    }

    /// The secret itself, to mask it in messages of the server.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        match self {
            Self::Static(_, secret) => vec![secret.clone()],
            Self::Configured | Self::Tokens(_) => Vec::new(),
        }
    }
}

/// Reason why there is no credential for a connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoCredential {
    #[error("caller `{caller}` has stored no credential for it")]
    Missing { server: String, caller: CallerId },
    #[error(transparent)]
    Store(#[from] CredentialError),
}

impl NoCredential {
    /// Returns a suggested fix.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { server, caller } => {
                Some(format!("run `toolgate credentials set {server} --as {caller}`"))
            }
            Self::Store(error) => error.hint().map(str::to_owned),
        }
    }
}

/// Reason why a credential is not stored or removed.
#[derive(Debug, thiserror::Error)]
pub enum CredentialChangeError {
    #[error("MCP server `{0}` takes no stored credential")]
    NoPlace(ServerName),
    #[error("a credential is one line of text, of at least one character")]
    InvalidSecret,
    #[error(transparent)]
    Store(#[from] CredentialError),
    #[error(transparent)]
    Login(#[from] LoginError),
}

/// Credentials of all callers for one server.
pub struct ServerCredentials {
    spec: Arc<ServerSpec>,
    logins: LoginOptions,
    sources: Mutex<HashMap<CallerId, Weak<TokenSource>>>,
}

impl ServerCredentials {
    pub fn new(spec: Arc<ServerSpec>, logins: LoginOptions) -> Self {
        let exchanges = |remote: &RemoteTransport| {
            let grant = remote.oauth.as_ref().map(|oauth| oauth.grant).unwrap_or_default();
            grant.exchanges_token() && spec.auth.is_per_caller()
        };
        let needs_subjects = match &spec.transport {
            Transport::Http(remote) | Transport::Sse(remote) => exchanges(remote) || spec.auth.forward,
            Transport::Stdio(_) | Transport::Websocket(_) => false,
        };
        if needs_subjects {
            logins.subjects.need();
        }
        Self { spec, logins, sources: Mutex::default() }
    }

    /// Returns true if each caller has its own credentials.
    pub fn is_per_caller(&self) -> bool {
        self.spec.auth.is_per_caller()
    }

    /// Names the credential behind a call of a caller, for its record, with the account that its token names. `None` if
    /// the server gets no stored credential.
    pub fn upstream_identity(&self, caller: &CallerId) -> Option<UpstreamIdentity> {
        let holder = self.credential_caller(Some(caller));
        let account = if self.spec.auth.forward && holder.as_str() != Caller::OWNER {
            self.logins.subjects.get(caller).and_then(|token| oauth::token_subject(token.expose()))
        } else {
            let tokens = self.sources.lock().get(&holder).and_then(Weak::upgrade);
            let has_login = tokens.as_ref().is_some_and(|tokens| tokens.has_token());
            let has_stored = || self.logins.secrets.has_stored(&self.holder(&holder), &self.spec.name);
            if !self.is_per_caller() && !has_login && !has_stored() {
                return None;
            }
            tokens.and_then(|tokens| tokens.account())
        };
        let credential = format!("{holder} at {}", self.spec.name).into();
        Some(UpstreamIdentity { credential, account: account.map(Into::into) })
    }

    /// Reads the static credential behind the calls of a caller, unless it was read before: its secret is masked in the
    /// record of the call.
    pub async fn read_secrets(&self, caller: &CallerId) {
        let caller = self.credential_caller(Some(caller));
        if self.takes_stored() && !self.logins.secrets.has_read(&self.holder(&caller), &self.spec.name) {
            // Boxed, because this is rare: otherwise its size would be part of every call's future.
            if let Err(error) = Box::pin(self.static_credential(&caller)).await {
                tracing::debug!(server = %self.spec.name, %error, "cannot read a credential");
            }
        }
    }

    /// The holder of the credential of a caller: all callers share that of the owner, unless each has its own.
    fn holder(&self, caller: &CallerId) -> Holder {
        self.is_per_caller().then(|| caller.clone())
    }

    /// Caller whose credential a connection gets, for an owner of the connection.
    pub fn credential_caller(&self, owner: Option<&CallerId>) -> CallerId {
        match owner.filter(|_| self.is_per_caller()) {
            Some(owner) => owner.clone(),
            None => owner_id(),
        }
    }

    /// Returns the credential for a connection of an owner.
    ///
    /// # Errors
    /// If the store cannot be read, or the server needs a credential that is not there.
    pub async fn for_connection(
        &self,
        owner: Option<&CallerId>,
    ) -> Result<ConnectionCredential, NoCredential> {
        let caller = self.credential_caller(owner);
        if !self.takes_stored() {
            return Ok(ConnectionCredential::Configured);
        }
        if let Some(secret) = self.static_credential(&caller).await? {
            return Ok(secret);
        }
        match self.token_source(&caller) {
            Some(tokens) => Ok(ConnectionCredential::Tokens(tokens)),
            // The lists of a server may not need a credential; the calls of a caller do.
            None if self.is_per_caller() && owner.is_some() => {
                Err(NoCredential::Missing { server: self.spec.name.to_string(), caller })
            }
            None => Ok(ConnectionCredential::Configured),
        }
    }

    /// Returns true if stored credentials are used: the configuration has no token, and names a place for one.
    fn takes_stored(&self) -> bool {
        match &self.spec.transport {
            Transport::Stdio(_) => self.spec.auth.credential.is_some(),
            Transport::Websocket(remote) => self.is_per_caller() && !has_authorization(remote),
            Transport::Http(remote) | Transport::Sse(remote) => {
                remote.oauth.is_some() || !has_authorization(remote)
            }
        }
    }

    /// Returns true if a stored credential of the caller is used. With `forward`, callers have their own tokens, and the
    /// owner stores one to read the lists with.
    fn may_store(&self, caller: &CallerId) -> bool {
        !self.spec.auth.forward || caller.as_str() == Caller::OWNER
    }

    async fn static_credential(
        &self,
        caller: &CallerId,
    ) -> Result<Option<ConnectionCredential>, CredentialError> {
        let Some(store) = self.logins.store.as_ref().filter(|_| self.may_store(caller)) else {
            return Ok(None);
        };
        let stored = store.get(&self.id(caller)).await?;
        let is_usable = |credential: &Credential| {
            credential.kind == CredentialKind::Static && credential.audience == audience(&self.spec)
        };
        let stored = stored.filter(is_usable).map(|credential| credential.secret);
        self.logins.secrets.note_stored(self.holder(caller), &self.spec.name, stored.as_ref());
        let Some(secret) = stored else { return Ok(None) };
        Ok(Some(match &self.spec.auth.credential {
            Some(target) => ConnectionCredential::Static(target.clone(), secret),
            None => {
                let target = CredentialTarget::Header("Authorization".to_owned());
                ConnectionCredential::Static(target, Secret::new(format!("Bearer {}", secret.expose())))
            }
        }))
    }

    /// Returns the tokens of a caller, if the server may require OAuth.
    pub fn token_source(&self, caller: &CallerId) -> Option<Arc<TokenSource>> {
        let (Transport::Http(remote) | Transport::Sse(remote)) = &self.spec.transport else { return None };
        if has_authorization(remote) && remote.oauth.is_none() || self.spec.auth.credential.is_some() {
            return None;
        }
        let mut sources = self.sources.lock();
        if let Some(known) = sources.get(caller).and_then(Weak::upgrade) {
            return Some(known);
        }
        if sources.len() >= CLEANUP_SOURCES {
            sources.retain(|_, source| source.strong_count() > 0);
        }
        let source = Arc::new(self.new_source(remote, caller)?);
        sources.insert(caller.clone(), Arc::downgrade(&source));
        self.logins.secrets.note_login(self.holder(caller), &self.spec.name, &source);
        Some(source)
    }

    fn new_source(&self, remote: &RemoteTransport, caller: &CallerId) -> Option<TokenSource> {
        let LoginOptions { store, browser, subjects, .. } = &self.logins;
        let url = Url::parse(remote.url.expose()).ok()?;
        let id = self.id(caller);
        let is_owner = caller.as_str() == Caller::OWNER;
        let storage = store.as_ref().map(|store| {
            let legacy_file = self.logins.legacy_folder.as_ref().filter(|_| is_owner);
            let legacy_file = legacy_file.map(|folder| folder.join(oauth::legacy_file_name(&url)));
            let storage =
                StoredTokens { store: Arc::clone(store), id, audience: audience(&self.spec), legacy_file };
            Arc::new(storage) as Arc<dyn TokenStorage>
        });
        let (subjects, subject_caller) = (Arc::clone(subjects), caller.clone());
        let logins = oauth::LoginOptions {
            storage,
            // Callers of a gateway log in at their own browser; the one here is that of the owner.
            browser: browser.clone().filter(|_| is_owner || self.logins.any_browser),
            caller: (!is_owner).then(|| caller.as_str().into()),
            subject: Some(Arc::new(move || subjects.get(&subject_caller))),
            required: self.is_per_caller() && !is_owner,
            forward: self.spec.auth.forward,
        };
        let (options, tls) = (remote.oauth.clone().unwrap_or_default(), remote.tls.clone());
        let addresses = AddressPolicy::of_server(&url, remote.allow_networks.as_deref());
        let source = TokenSource::new(self.spec.name.as_str(), url, options, tls, &logins);
        Some(source.with_addresses(addresses))
    }

    /// Returns a link for the login of a caller at its own browser, if the gateway offers it and a login would help.
    pub fn login_link(&self, caller: &CallerId) -> Option<String> {
        if !self.is_per_caller() || self.spec.auth.forward {
            return None;
        }
        let (Transport::Http(remote) | Transport::Sse(remote)) = &self.spec.transport else { return None };
        let grant = remote.oauth.as_ref().map(|oauth| oauth.grant).unwrap_or_default();
        if !grant.needs_browser() || self.spec.auth.credential.is_some() {
            return None;
        }
        self.logins.tickets.link(&self.spec.name, caller)
    }

    /// Returns a link for the login of the gateway itself, at the browser of a person that may change the server. `None`
    /// if each caller logs in, or if the server takes no login.
    pub fn shared_login_link(&self) -> Option<String> {
        let (Transport::Http(remote) | Transport::Sse(remote)) = &self.spec.transport else { return None };
        let grant = remote.oauth.as_ref().map(|oauth| oauth.grant).unwrap_or_default();
        if self.is_per_caller() || !grant.needs_browser() || self.token_source(&owner_id()).is_none() {
            return None;
        }
        self.logins.tickets.link(&self.spec.name, &owner_id())
    }

    pub fn server(&self) -> &ServerName {
        &self.spec.name
    }

    pub fn tickets(&self) -> &Arc<LoginTickets> {
        &self.logins.tickets
    }

    /// Stores a static credential of a caller.
    ///
    /// # Errors
    /// If the server takes none, or the store cannot be written.
    pub async fn set_static(&self, caller: &CallerId, secret: &str) -> Result<(), CredentialChangeError> {
        let store = self.logins.store.as_ref().filter(|_| self.takes_stored() && self.may_store(caller));
        let store = store.ok_or_else(|| CredentialChangeError::NoPlace(self.spec.name.clone()))?;
        // It becomes a header or a variable.
        if secret.is_empty() || secret.trim() != secret || secret.chars().any(char::is_control) {
            return Err(CredentialChangeError::InvalidSecret);
        }
        let credential = Credential {
            kind: CredentialKind::Static,
            audience: audience(&self.spec),
            stored_at: unix_seconds(),
            expires_at: None,
            secret: Secret::new(secret),
        };
        Ok(store.put(&self.id(caller), credential).await?)
    }

    /// Removes the credential of a caller. A login is revoked, too, if its authorization server offers it.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn remove(&self, caller: &CallerId) -> Result<LogoutOutcome, CredentialChangeError> {
        if let Some(tokens) = self.token_source(caller) {
            return Ok(tokens.logout().await?);
        }
        let removed = match &self.logins.store {
            Some(store) => store.remove(&self.id(caller)).await?,
            None => false,
        };
        Ok(LogoutOutcome { removed, revoked: false })
    }

    /// Opens the login of a ticket. Returns the page of the authorization server, and the cookie of the browser.
    ///
    /// # Errors
    /// If the authorization server cannot be used, or the ticket has expired.
    pub async fn start_login(
        &self,
        ticket: &str,
        caller: &CallerId,
    ) -> Result<(LoginPage, String), TicketError> {
        let tickets = &self.logins.tickets;
        let redirect_uri = tickets.redirect_uri().ok_or(TicketError::Unknown)?;
        let source = self.token_source(caller).ok_or(TicketError::Unknown)?;
        let pending = source.begin_login(None, redirect_uri).await?;
        tickets.start(ticket, pending, source).ok_or(TicketError::Unknown)
    }

    fn id(&self, caller: &CallerId) -> CredentialId {
        CredentialId { caller: caller.clone(), server: self.spec.name.clone() }
    }
}

/// The caller that owns the machine.
fn owner_id() -> CallerId {
    Caller::OWNER.parse().expect("a valid id")
}

fn has_authorization(remote: &RemoteTransport) -> bool {
    remote.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
}

/// URL that a credential of a server is stored for; empty for a child process.
pub fn audience(spec: &ServerSpec) -> String {
    match &spec.transport {
        Transport::Stdio(_) => String::new(),
        Transport::Http(remote) | Transport::Sse(remote) | Transport::Websocket(remote) => {
            remote.url.expose().to_owned()
        }
    }
}

/// Unix time in seconds.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Tokens of one caller and server in the credential store.
struct StoredTokens {
    store: Arc<dyn CredentialStore>,
    id: CredentialId,
    audience: String,
    /// File of an earlier version; it is moved to the store.
    legacy_file: Option<PathBuf>,
}

impl StoredTokens {
    async fn stored(&self) -> Result<Option<Secret>, CredentialError> {
        let stored = self.store.get(&self.id).await?;
        let stored =
            stored.filter(|stored| stored.kind == CredentialKind::Oauth && stored.audience == self.audience);
        Ok(stored.map(|stored| stored.secret))
    }

    fn credential(&self, record: Secret, expires_at: Option<u64>) -> Credential {
        Credential {
            kind: CredentialKind::Oauth,
            audience: self.audience.clone(),
            stored_at: unix_seconds(),
            expires_at,
            secret: record,
        }
    }

    /// Moves the file of an earlier version to the store. It is removed once it is stored.
    async fn import_legacy(&self) -> Result<Option<Secret>, StorageError> {
        let Some(path) = &self.legacy_file else { return Ok(None) };
        let Some(record) = oauth::read_legacy_file(path, &self.audience)? else { return Ok(None) };
        // One process imports it.
        let _lock = self.store.lock(&self.id).await;
        if let Some(stored) = self.stored().await? {
            return Ok(Some(stored));
        }
        self.store.put(&self.id, self.credential(record.clone(), None)).await?;
        for left in [path.clone(), path.with_extension("lock")] {
            let _ = fs_err::remove_file(left);
        }
        tracing::info!(server = %self.id.server, "moved the login to the encrypted store");
        Ok(Some(record))
    }
}

impl TokenStorage for StoredTokens {
    fn load(&self) -> BoxFuture<'_, Result<Option<Secret>, StorageError>> {
        Box::pin(async move {
            match self.stored().await? {
                Some(stored) => Ok(Some(stored)),
                None => self.import_legacy().await,
            }
        })
    }

    fn save(&self, record: Secret, expires_at: Option<u64>) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move { Ok(self.store.put(&self.id, self.credential(record, expires_at)).await?) })
    }

    fn remove(&self) -> BoxFuture<'_, Result<bool, StorageError>> {
        Box::pin(async move { Ok(self.store.remove(&self.id).await?) })
    }

    fn lock(&self) -> BoxFuture<'_, Option<Box<dyn Any + Send>>> {
        Box::pin(async move { Some(Box::new(self.store.lock(&self.id).await?) as Box<dyn Any + Send>) })
    }
}
