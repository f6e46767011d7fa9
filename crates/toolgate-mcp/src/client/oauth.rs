//! OAuth towards MCP servers: the token of a request, and the ways to obtain one.
//!
//! A rejected request is retried with another token if that needs no browser: a stored or refreshed token, or client
//! credentials. If it needs a browser, the request fails with a [`LoginDemand`], and a caller with enough time calls
//! [`TokenSource::login`] and retries: no request waits for a person within its own timeout.
//! Invariant: tokens are never displayed, and are sent only to the MCP server they were issued for.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use tokio::time::Instant;
use toolgate_types::oauth::{OauthConfig, OauthGrant};
use toolgate_types::server::{UpstreamTls, is_same_audience};
use toolgate_types::{BrowserUrl, Secret};
use url::Url;

use crate::link::LinkError;
use crate::network::AddressPolicy;

mod assertion;
mod callback;
mod challenge;
mod discovery;
mod dpop;
pub(crate) use discovery::fuzz_discovery;
mod fetch;
mod flow;
mod registration;
mod token_record;

use callback::CallbackListener;
pub use callback::{CallbackQuery, CallbackResponse};
use challenge::Challenge;
pub(crate) use dpop::DPOP;
use dpop::{DpopKey, ServerNonce};
use flow::{AuthorizationRequest, LoginFlow, LoginTarget};
use token_record::{IssuerGrant, OAuthClient, TokenRecord, TokenSet};
pub use token_record::{StorageError, TokenStorage, legacy_file_name, read_legacy_file};

/// Logins that one request may cause.
pub const MAX_LOGINS: usize = 3;
/// Limit for repeated logins with the same scopes: after this many within `SAME_LOGIN_WINDOW` another one will not help.
const MAX_SAME_LOGINS: usize = 2;
const SAME_LOGIN_WINDOW: Duration = Duration::from_secs(600);
/// After a refresh that failed, requests with the same token fail for this long without another one.
const FAILED_REFRESH_PAUSE: Duration = Duration::from_secs(3);
/// A login or a logout by another process counts after this long.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum length of an account name in records.
const MAX_SUBJECT_CHARS: usize = 256;
/// Maximum size of a file with a token.
const MAX_SUBJECT_BYTES: u64 = 64 << 10;

/// Returns the token that the caller showed to the gateway, if it showed one.
pub type SubjectToken = dyn Fn() -> Option<Secret> + Send + Sync;

/// Environment of a login.
#[derive(Clone, Default)]
pub struct LoginOptions {
    /// Token storage; `None` keeps tokens in memory only.
    pub storage: Option<Arc<dyn TokenStorage>>,
    /// Interactive login, if a person is present.
    pub browser: Option<BrowserLogin>,
    /// Caller that the tokens belong to, if it is not the owner of the machine.
    pub caller: Option<Arc<str>>,
    /// Token of the caller, for grants that exchange it.
    pub subject: Option<Arc<SubjectToken>>,
    /// Sends no request without a token.
    pub required: bool,
    /// Sends the token of the caller itself. The configuration allows it only if the server is its audience.
    pub forward: bool,
}

/// Login page of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginPage {
    /// Name of the server.
    pub server: String,
    pub url: BrowserUrl,
    /// Host of the page, if it is not the host of the server. The server chose it, so a person has to see it.
    pub other_host: Option<String>,
}

/// Shows a login page to the user, and resolves once it is shown.
pub type OpenBrowser = dyn Fn(LoginPage) -> BoxFuture<'static, ()> + Send + Sync;

/// Interactive login in a browser.
#[derive(Clone)]
pub struct BrowserLogin {
    /// Shows the login URL of a server.
    pub open: Arc<OpenBrowser>,
    /// Time to complete the login.
    pub timeout: Duration,
}

/// Reason why no token was obtained.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// A browser is needed, but no person is present.
    #[error("a login in a browser is needed, and no user is present")]
    NoUser,
    /// Recent logins did not satisfy the server.
    #[error("the server requires another login after {MAX_SAME_LOGINS} recent ones; it asks for {0}")]
    LoginLoop(String),
    /// The server publishes no OAuth metadata.
    #[error("the server requires a token but publishes no OAuth metadata")]
    NoOauth,
    #[error("`grant: client_credentials` needs `client_id` and `client_secret`")]
    NoClient,
    /// Metadata discovery failed.
    #[error("OAuth discovery failed")]
    Discovery(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "the authorization server rejected the client registration; set `oauth.client_id` if it requires one"
    )]
    Registration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The callback port could not be opened.
    #[error("cannot listen for the OAuth redirect on this machine")]
    Listen(#[source] io::Error),
    /// The user or the authorization server rejected the login.
    #[error("the login was rejected: {0}")]
    Refused(String),
    #[error("the login was not completed within {0:?}")]
    TimedOut(Duration),
    /// The token endpoint returned no token.
    #[error("the authorization server issued no token")]
    Exchange(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot store the tokens")]
    Storage(#[source] StorageError),
    #[error("the authorization server did not revoke the tokens")]
    Revocation(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The caller did not authenticate with a token that could be exchanged.
    #[error("the caller showed no token that could be exchanged for one of the server")]
    NoSubject,
    #[error("cannot read the token in `{}`", path.display())]
    SubjectFile { path: PathBuf, source: io::Error },
    #[error("the server rejects the token of the caller")]
    ForwardRejected,
    #[error("the token of the caller is not for this server, so it is not sent")]
    OtherAudience,
}

/// Effect of a logout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogoutOutcome {
    /// True if tokens were stored.
    pub removed: bool,
    /// True if the authorization server revoked them.
    pub revoked: bool,
}

/// Demand of a server for a login.
#[derive(Debug, Clone)]
pub struct LoginDemand {
    server: Arc<str>,
    /// `WWW-Authenticate` header.
    challenge: Option<Arc<str>>,
    /// True if the token is valid but lacks a scope.
    more_scope: bool,
    /// True if there was a login.
    expired: bool,
    /// Caller that has to log in, if it is not the owner of the machine.
    caller: Option<Arc<str>>,
    /// Generation of the rejected token.
    generation: u64,
}

impl fmt::Display for LoginDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { more_scope: true, .. } => f.write_str("the server requires a login with more scopes: ")?,
            Self { expired: true, .. } => {
                f.write_str("the login to the server has expired or was revoked: ")?
            }
            _ => f.write_str("the server requires a login: ")?,
        }
        let Self { server, caller, .. } = self;
        write!(f, "run `toolgate servers login {server}")?;
        if let Some(caller) = caller {
            write!(f, " --as {caller}")?;
        }
        f.write_str("`")
    }
}

/// Headers that authorize one request.
pub(crate) struct Authorization {
    pub(crate) token: Option<HeaderValue>,
    /// Proof of the key that the token is bound to.
    pub(crate) proof: Option<HeaderValue>,
    /// Generation of the token.
    pub(crate) generation: u64,
}

/// A login whose page was not answered yet.
pub struct PendingLogin {
    flow: LoginFlow,
    client: OAuthClient,
    request: AuthorizationRequest,
    page: LoginPage,
}

impl PendingLogin {
    /// The page to show to a person.
    pub fn page(&self) -> &LoginPage {
        &self.page
    }

    /// The state that the response has to repeat.
    pub fn state(&self) -> &str {
        &self.request.state
    }
}

/// OAuth tokens for one server, of one caller.
pub struct TokenSource {
    name: Arc<str>,
    server: Url,
    options: OauthConfig,
    tls: UpstreamTls,
    addresses: AddressPolicy,
    logins: LoginOptions,
    state: Mutex<TokenState>,
    /// Serialises logins and refreshes; waiting requests then use the new token.
    login_lock: tokio::sync::Mutex<()>,
    /// Serialises the first read of the storage.
    load_lock: tokio::sync::Mutex<()>,
    /// The last refresh that failed, with the generation of its token: requests that waited for it fail with it.
    failed_refresh: Mutex<Option<(Instant, u64, LinkError)>>,
    /// Time of the last look at the storage.
    followed_at: Mutex<Option<Instant>>,
    /// Nonce of the server for proofs.
    nonce: ServerNonce,
    /// Recent logins with their scopes.
    recent_logins: Mutex<VecDeque<(Instant, String)>>,
}

/// Loaded tokens.
#[derive(Default)]
struct TokenState {
    loaded: bool,
    record: TokenRecord,
    /// The key of the record.
    dpop_key: Option<Arc<DpopKey>>,
    /// Incremented with every change.
    generation: u64,
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TokenSource {
    pub fn new(
        name: &str,
        server: Url,
        options: OauthConfig,
        tls: UpstreamTls,
        logins: &LoginOptions,
    ) -> Self {
        let addresses = AddressPolicy::of_server(&server, None);
        Self {
            name: name.into(),
            server,
            options,
            tls,
            addresses,
            logins: logins.clone(),
            state: Mutex::default(),
            login_lock: tokio::sync::Mutex::default(),
            load_lock: tokio::sync::Mutex::default(),
            failed_refresh: Mutex::default(),
            followed_at: Mutex::default(),
            nonce: ServerNonce::default(),
            recent_logins: Mutex::default(),
        }
    }

    /// Sets the addresses that the server may have. They also limit the URLs of a login.
    #[must_use]
    pub fn with_addresses(mut self, addresses: AddressPolicy) -> Self {
        self.addresses = addresses;
        self
    }

    fn discover<'a>(&'a self, challenge: Option<&'a str>) -> BoxFuture<'a, Result<LoginFlow, LoginError>> {
        Box::pin(async move {
            let Self { server, tls, addresses, .. } = self;
            let issuer = self.options.issuer.as_deref();
            let mut flow =
                LoginFlow::discover(LoginTarget { server, tls, addresses, issuer }, challenge).await?;
            let known = self.state.lock().record.dpop_key.clone();
            flow.enable_dpop(self.options.dpop, known.as_deref())?;
            Ok(flow)
        })
    }

    /// Returns the headers that authorize a request. Renews the token if it expires soon.
    pub(crate) async fn authorize(&self, method: &str, url: &Url) -> Result<Authorization, LinkError> {
        if self.logins.forward {
            return self.forwarded_token();
        }
        // Boxed, because they are rare: otherwise their size would be part of every request's future.
        if !self.state.lock().loaded {
            Box::pin(self.ensure_loaded()).await;
        }
        if self.is_follow_due() {
            Box::pin(self.follow_storage()).await;
        }
        let (is_expiring, is_missing, generation) = {
            let state = self.state.lock();
            let tokens = state.record.tokens();
            (tokens.is_some_and(TokenSet::is_expiring), tokens.is_none(), state.generation)
        };
        if is_expiring || is_missing && self.logins.required {
            let demand = self.new_demand(None, false, !is_missing, generation);
            let renewed = Box::pin(self.renew(&demand)).await;
            // If a refresh fails, the server decides whether it still accepts the old token.
            if is_missing {
                renewed?;
            }
        }
        let state = self.state.lock();
        let generation = state.generation;
        let Some(tokens) = state.record.tokens() else {
            return Ok(Authorization { token: None, proof: None, generation });
        };
        let proof = state.dpop_key.as_ref().filter(|_| tokens.dpop).map(|key| {
            let proof = key.proof(method, url, self.nonce.get().as_deref(), Some(&tokens.access_token));
            HeaderValue::try_from(proof).expect("base64 is a header value")
        });
        let scheme = if proof.is_some() { "DPoP" } else { "Bearer" };
        let token = sensitive_header(&format!("{scheme} {}", tokens.access_token));
        Ok(Authorization { token, proof, generation })
    }

    /// Returns the token of the caller itself.
    fn forwarded_token(&self) -> Result<Authorization, LinkError> {
        let subject = self.logins.subject.as_ref().and_then(|subject| subject());
        let subject = subject.ok_or_else(|| LinkError::LoginFailed(Arc::new(LoginError::NoSubject)))?;
        if !names_audience(subject.expose(), self.server.as_str()) {
            return Err(LinkError::LoginFailed(Arc::new(LoginError::OtherAudience)));
        }
        let token = sensitive_header(&format!("Bearer {}", subject.expose()));
        Ok(Authorization { token, proof: None, generation: 0 })
    }

    /// Takes the nonce of a response. Returns true if the request has to be sent again with it.
    pub(crate) fn take_nonce(&self, headers: &HeaderMap, challenge: Option<&str>) -> bool {
        let is_new = self.nonce.update(headers);
        is_new && challenge.is_some_and(|challenge| Challenge::parse(challenge).wants_nonce())
    }

    fn new_demand(
        &self,
        challenge: Option<String>,
        more_scope: bool,
        expired: bool,
        generation: u64,
    ) -> LoginDemand {
        LoginDemand {
            server: Arc::clone(&self.name),
            challenge: challenge.map(Into::into),
            more_scope,
            expired,
            caller: self.logins.caller.clone(),
            generation,
        }
    }

    /// Converts an error status to a login demand, if it is one.
    pub(crate) fn demand(
        &self,
        status: u16,
        challenge: Option<String>,
        generation: u64,
    ) -> Option<LoginDemand> {
        let more_scope = challenge.as_deref().is_some_and(|text| Challenge::parse(text).wants_more_scope());
        let needs_login = status == 401 || (status == 403 && more_scope);
        let expired = self.has_token();
        needs_login.then(|| self.new_demand(challenge, more_scope, expired, generation))
    }

    /// Obtains another token if that needs no browser.
    pub(crate) async fn renew(&self, demand: &LoginDemand) -> Result<(), LinkError> {
        if self.logins.forward {
            return Err(LinkError::LoginFailed(Arc::new(LoginError::ForwardRejected)));
        }
        self.ensure_loaded().await;
        let _lock = self.login_lock.lock().await;
        let is_outdated = self.state.lock().generation != demand.generation;
        if is_outdated || self.reload().await {
            return Ok(());
        }
        let now = Instant::now();
        if let Some((failed_at, generation, error)) = &*self.failed_refresh.lock()
            && *generation == demand.generation
            && now.duration_since(*failed_at) < FAILED_REFRESH_PAUSE
        {
            return Err(error.clone());
        }
        let challenge = demand.challenge.as_deref();
        let obtained = if !self.options.grant.needs_browser() {
            self.login_without_browser(challenge).await.map(|()| true)
        } else if demand.more_scope {
            Ok(false)
        } else {
            self.refresh(challenge).await
        };
        match obtained {
            Ok(true) => Ok(()),
            Ok(false) => Err(LinkError::LoginRequired(demand.clone())),
            Err(error) => {
                let error = LinkError::LoginFailed(Arc::new(error));
                *self.failed_refresh.lock() = Some((Instant::now(), demand.generation, error.clone()));
                Err(error)
            }
        }
    }

    /// Logs in with a browser. Returns at once if the token has changed since the demand.
    ///
    /// # Errors
    /// No person is present, or the login failed.
    pub async fn login(&self, demand: Option<&LoginDemand>) -> Result<(), LoginError> {
        self.ensure_loaded().await;
        let _lock = self.login_lock.lock().await;
        if demand.is_some_and(|demand| demand.generation != self.state.lock().generation) {
            return Ok(());
        }
        let challenge = demand.and_then(|demand| demand.challenge.as_deref());
        if !self.options.grant.needs_browser() {
            return self.login_without_browser(challenge).await;
        }
        let Some(browser) = &self.logins.browser else { return Err(LoginError::NoUser) };
        self.check_login_loop(flow::challenged_scopes(challenge).join(" "))?;
        let flow = self.discover(challenge).await?;
        let known = self.state.lock().record.grants.get(&flow.issuer).map(|known| known.client.clone());
        let callback = self.listen(known.as_ref()).await.map_err(LoginError::Listen)?;
        let pending = self.prepare(flow, demand, callback.redirect_uri()).await?;
        (browser.open)(pending.page.clone()).await;
        let response = callback.wait(pending.state(), browser.timeout).await.map_err(LoginError::Listen)?;
        let response = response.ok_or(LoginError::TimedOut(browser.timeout))?;
        self.complete(pending, &response).await
    }

    /// Begins a login whose response comes to a URL of the gateway.
    ///
    /// # Errors
    /// The authorization server cannot be used.
    pub async fn begin_login(
        &self,
        demand: Option<&LoginDemand>,
        redirect_uri: String,
    ) -> Result<PendingLogin, LoginError> {
        self.ensure_loaded().await;
        let flow = self.discover(demand.and_then(|demand| demand.challenge.as_deref())).await?;
        self.prepare(flow, demand, redirect_uri).await
    }

    /// Completes a login with the response of the authorization server.
    ///
    /// # Errors
    /// The person or the authorization server rejected the login, or the response is not for it.
    pub async fn finish_login(
        &self,
        pending: PendingLogin,
        response: &CallbackResponse,
    ) -> Result<(), LoginError> {
        let _lock = self.login_lock.lock().await;
        self.complete(pending, response).await
    }

    fn prepare<'a>(
        &'a self,
        flow: LoginFlow,
        demand: Option<&'a LoginDemand>,
        redirect_uri: String,
    ) -> BoxFuture<'a, Result<PendingLogin, LoginError>> {
        Box::pin(async move {
            let challenge = demand.and_then(|demand| demand.challenge.as_deref());
            let known = self.state.lock().record.grants.get(&flow.issuer).cloned();
            let (known, tokens) = known.map_or((None, None), |known| (Some(known.client), known.tokens));
            let granted = tokens.filter(|_| demand.is_some()).map(|tokens| tokens.scopes).unwrap_or_default();
            let scopes = flow.scopes(&self.options.scopes, &granted, challenge);
            let client = flow.client(&self.options, known.as_ref(), redirect_uri, &scopes).await?;
            let request = flow.authorization_request(&client, scopes)?;
            let is_own_host = request.url.host() == own_host(&self.server);
            let other_host = (!is_own_host).then(|| request.url.host());
            let page = LoginPage { server: self.name.to_string(), url: request.url.clone(), other_host };
            Ok(PendingLogin { flow, client, request, page })
        })
    }

    fn complete<'a>(
        &'a self,
        pending: PendingLogin,
        response: &'a CallbackResponse,
    ) -> BoxFuture<'a, Result<(), LoginError>> {
        Box::pin(async move {
            let PendingLogin { flow, client, request, .. } = pending;
            let tokens = flow.exchange(&client, request, response).await?;
            self.store(&flow, client, tokens).await
        })
    }

    /// True if tokens are loaded.
    pub fn has_token(&self) -> bool {
        self.state.lock().record.tokens().is_some()
    }

    /// Returns the account that the access token names. Most tokens are opaque and name none.
    pub fn account(&self) -> Option<String> {
        let state = self.state.lock();
        state.record.tokens().and_then(|tokens| token_subject(&tokens.access_token))
    }

    /// Returns the tokens themselves, to mask them where a server echoes them.
    pub fn secrets(&self) -> Vec<Secret> {
        let state = self.state.lock();
        let tokens = state.record.tokens().into_iter();
        let tokens = tokens.flat_map(|tokens| [Some(&tokens.access_token), tokens.refresh_token.as_ref()]);
        tokens.flatten().map(Secret::new).collect()
    }

    /// True if a login is possible now.
    pub fn can_login(&self) -> bool {
        self.logins.browser.is_some() || !self.options.grant.needs_browser()
    }

    /// Removes all tokens, and revokes them if the authorization server offers it.
    ///
    /// # Errors
    /// The tokens cannot be removed. A failed revocation is logged.
    pub async fn logout(&self) -> Result<LogoutOutcome, LoginError> {
        self.ensure_loaded().await;
        let _lock = self.login_lock.lock().await;
        let record = {
            let mut state = self.state.lock();
            state.generation += 1;
            state.dpop_key = None;
            std::mem::replace(&mut state.record, TokenRecord::new(&self.server))
        };
        let removed = match &self.logins.storage {
            Some(storage) => storage.remove().await.map_err(LoginError::Storage)?,
            None => record.tokens().is_some(),
        };
        let revoked = match record.grants.get(&record.issuer) {
            Some(IssuerGrant { client, tokens: Some(tokens) }) => {
                self.revoke(&record, client, tokens).await.unwrap_or_else(|error| {
                    tracing::warn!(server = %self.name, %error, "the tokens were removed, but not revoked");
                    false
                })
            }
            _ => false,
        };
        Ok(LogoutOutcome { removed, revoked })
    }

    fn revoke<'a>(
        &'a self,
        record: &'a TokenRecord,
        client: &'a OAuthClient,
        tokens: &'a TokenSet,
    ) -> BoxFuture<'a, Result<bool, LoginError>> {
        Box::pin(async move {
            let flow = self.discover(None).await?;
            // Tokens are not sent to another authorization server.
            if flow.issuer != record.issuer {
                return Ok(false);
            }
            let secret = self.options.client_secret.as_ref().map(|secret| secret.expose());
            flow.revoke(client, secret, tokens).await
        })
    }

    /// Opens the callback listener, on the port of the client's registration if it is free.
    async fn listen(&self, known: Option<&OAuthClient>) -> io::Result<CallbackListener> {
        if let Some(port) = self.options.redirect_port {
            return CallbackListener::bind(port).await;
        }
        let port = known.and_then(|known| Url::parse(&known.redirect_uri).ok()?.port());
        match port {
            Some(port) => match CallbackListener::bind(port).await {
                Ok(callback) => Ok(callback),
                Err(_) => CallbackListener::bind(0).await,
            },
            None => CallbackListener::bind(0).await,
        }
    }

    /// Rejects repeated logins with the same scopes.
    fn check_login_loop(&self, scopes_wanted: String) -> Result<(), LoginError> {
        let now = Instant::now();
        let mut recent_logins = self.recent_logins.lock();
        recent_logins.retain(|(when, _)| now.duration_since(*when) < SAME_LOGIN_WINDOW);
        if recent_logins.iter().filter(|(_, before)| *before == scopes_wanted).count() >= MAX_SAME_LOGINS {
            let scopes_wanted = if scopes_wanted.is_empty() {
                "no particular scopes".to_owned()
            } else {
                format!("`{scopes_wanted}`")
            };
            return Err(LoginError::LoginLoop(scopes_wanted));
        }
        recent_logins.push_back((now, scopes_wanted));
        Ok(())
    }

    /// Obtains a token with a grant that needs no person.
    fn login_without_browser<'a>(
        &'a self,
        challenge: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), LoginError>> {
        Box::pin(async move {
            let Self { options, tls, .. } = self;
            if options.grant == OauthGrant::ClientCredentials {
                let flow = self.discover(challenge).await?;
                let scopes = flow.scopes(&options.scopes, &[], challenge);
                let (client, tokens) = flow.client_credentials(options, scopes).await?;
                return self.store(&flow, client, tokens).await;
            }
            let subject = self.subject_token()?;
            let flow = self.discover(challenge).await?;
            let scopes = flow.scopes(&options.scopes, &[], challenge);
            let (client, tokens) = flow.exchange_subject(options, scopes, &subject, tls).await?;
            self.store(&flow, client, tokens).await
        })
    }

    /// Returns the token to exchange: that of the caller. The file has the one of the owner of the machine.
    fn subject_token(&self) -> Result<Secret, LoginError> {
        let is_caller = self.logins.caller.is_some() && self.options.grant.exchanges_token();
        let Some(path) = self.options.subject_token_file.as_ref().filter(|_| !is_caller) else {
            let subject = self.logins.subject.as_ref().and_then(|subject| subject());
            return subject.ok_or(LoginError::NoSubject);
        };
        let failed = |source| LoginError::SubjectFile { path: path.clone(), source };
        let mut text = String::new();
        let file = fs_err::File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")));
        }
        file.take(MAX_SUBJECT_BYTES).read_to_string(&mut text).map_err(failed)?;
        match text.trim() {
            "" => Err(failed(io::Error::new(io::ErrorKind::InvalidData, "it is empty"))),
            token => Ok(Secret::new(token)),
        }
    }

    /// Refreshes the token; returns true if there is a new one.
    fn refresh<'a>(&'a self, challenge: Option<&'a str>) -> BoxFuture<'a, Result<bool, LoginError>> {
        Box::pin(async move {
            let (issuer, granted) = {
                let state = self.state.lock();
                (state.record.issuer.clone(), state.record.grants.get(&state.record.issuer).cloned())
            };
            let Some(IssuerGrant { client, tokens: Some(tokens) }) = granted else { return Ok(false) };
            if tokens.refresh_token.is_none() {
                return Ok(false);
            }
            // Refresh tokens are often single-use: of two processes, the second one takes the token that the first one got.
            let _storage_lock = match &self.logins.storage {
                Some(storage) => storage.lock().await,
                None => None,
            };
            if self.reload().await {
                return Ok(true);
            }
            let flow = self.discover(challenge).await?;
            // A refresh token must not be sent to another authorization server.
            if flow.issuer != issuer {
                return Ok(false);
            }
            let Some(tokens) = flow.refresh(&client, &tokens).await? else { return Ok(false) };
            self.store(&flow, client, tokens).await?;
            Ok(true)
        })
    }

    async fn store(&self, flow: &LoginFlow, client: OAuthClient, tokens: TokenSet) -> Result<(), LoginError> {
        let record = {
            let mut state = self.state.lock();
            state.record.issuer.clone_from(&flow.issuer);
            state.record.grants.insert(flow.issuer.clone(), IssuerGrant { client, tokens: Some(tokens) });
            if let Some(key) = flow.dpop_key() {
                state.record.dpop_key = Some(key.to_owned());
            }
            state.read_dpop_key();
            state.generation += 1;
            state.record.clone()
        };
        match &self.logins.storage {
            // A token that was exchanged for one of the caller lasts no longer than the process: only a caller that
            // shows its own token again gets another one.
            Some(storage) if self.is_stored() => {
                let saved = storage.save(record.to_secret(), record.expires_at()).await;
                saved.map_err(LoginError::Storage)
            }
            _ => Ok(()),
        }
    }

    fn is_stored(&self) -> bool {
        matches!(self.options.grant, OauthGrant::AuthorizationCode | OauthGrant::ClientCredentials)
    }

    async fn load(&self) -> Option<TokenRecord> {
        let storage = self.logins.storage.as_ref().filter(|_| self.is_stored())?;
        match storage.load().await {
            Ok(text) => TokenRecord::parse(&text?, &self.server),
            Err(error) => {
                tracing::warn!(server = %self.name, %error, "cannot read the stored login");
                None
            }
        }
    }

    /// Reloads the record; returns true if another process stored a different token.
    async fn reload(&self) -> bool {
        let Some(record) = self.load().await else { return false };
        let mut state = self.state.lock();
        let current = state.record.tokens().map(|tokens| tokens.access_token.as_str());
        if record.tokens().is_none() || record.has_access_token(current) {
            return false;
        }
        state.record = record;
        state.read_dpop_key();
        state.generation += 1;
        true
    }

    /// Returns true if the storage has to be looked at: at most once per interval.
    fn is_follow_due(&self) -> bool {
        if self.logins.storage.is_none() || !self.is_stored() {
            return false;
        }
        let now = Instant::now();
        let mut followed_at = self.followed_at.lock();
        let is_due = followed_at.is_none_or(|last| now.duration_since(last) >= FOLLOW_INTERVAL);
        if is_due {
            *followed_at = Some(now);
        }
        is_due
    }

    /// Takes over a login or a logout by another process.
    async fn follow_storage(&self) {
        let Some(storage) = &self.logins.storage else { return };
        // A login or a refresh in progress stores its own tokens.
        let Ok(_lock) = self.login_lock.try_lock() else { return };
        let Ok(stored) = storage.load().await else { return };
        let record = stored.and_then(|text| TokenRecord::parse(&text, &self.server));
        let record = record.unwrap_or_else(|| TokenRecord::new(&self.server));
        let mut state = self.state.lock();
        let current = state.record.tokens().map(|tokens| tokens.access_token.as_str());
        if !record.has_access_token(current) {
            state.record = record;
            state.read_dpop_key();
            state.generation += 1;
        }
    }

    /// Reads the storage before the first use.
    async fn ensure_loaded(&self) {
        if self.state.lock().loaded {
            return;
        }
        let _lock = self.load_lock.lock().await;
        if self.state.lock().loaded {
            return;
        }
        let record = self.load().await;
        let mut state = self.state.lock();
        state.loaded = true;
        *self.followed_at.lock() = Some(Instant::now());
        state.record = record.unwrap_or_else(|| TokenRecord::new(&self.server));
        state.read_dpop_key();
    }
}

impl TokenState {
    fn read_dpop_key(&mut self) {
        self.dpop_key = self.record.dpop_key.as_deref().and_then(DpopKey::parse).map(Arc::new);
    }
}

/// Returns the subject of a token, if it is a JWT. The signature is not verified: the token came from its issuer, or was
/// verified before.
pub fn token_subject(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct SubjectClaim {
        sub: String,
    }
    let subject = token_claims::<SubjectClaim>(token)?.sub;
    let is_name = (1..=MAX_SUBJECT_CHARS).contains(&subject.chars().count());
    (is_name && !subject.chars().any(char::is_control)).then_some(subject)
}

/// Reads claims of a JWT.
fn token_claims<T: serde::de::DeserializeOwned>(token: &str) -> Option<T> {
    let payload = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok())?;
    serde_json::from_slice(&payload).ok()
}

/// Returns true if a JWT names an audience. Its signature was verified when the caller authenticated.
fn names_audience(token: &str, server: &str) -> bool {
    #[derive(Deserialize)]
    struct AudienceClaim {
        aud: OneOrMany,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    match token_claims::<AudienceClaim>(token) {
        Some(AudienceClaim { aud: OneOrMany::One(aud) }) => is_same_audience(&aud, server),
        Some(AudienceClaim { aud: OneOrMany::Many(all) }) => {
            all.iter().any(|aud| is_same_audience(aud, server))
        }
        None => false,
    }
}

fn sensitive_header(value: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::try_from(value).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Host of a server, in the form of [`BrowserUrl::host`].
fn own_host(server: &Url) -> String {
    let port = server.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", server.host_str().unwrap_or_default())
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
