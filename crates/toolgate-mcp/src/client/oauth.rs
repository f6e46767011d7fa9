//! OAuth towards MCP servers: the token of a request, and the ways to obtain one.
//!
//! A rejected request is retried with another token if that needs no browser: a stored or refreshed token, or client
//! credentials. If it needs a browser, the request fails with a [`LoginDemand`], and a caller with enough time calls
//! [`TokenSource::login`] and retries: no request waits for a person within its own timeout.
//! Invariant: tokens are never displayed, and are sent only to the MCP server they were issued for.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use reqwest::header::HeaderValue;
use tokio::time::Instant;
use toolgate_types::BrowserUrl;
use toolgate_types::oauth::{OauthConfig, OauthGrant};
use toolgate_types::server::UpstreamTls;
use url::Url;

use crate::link::LinkError;
use crate::network::AddressPolicy;

mod assertion;
mod callback;
mod challenge;
mod discovery;
pub(crate) use discovery::fuzz_discovery;
mod fetch;
mod flow;
mod registration;
mod token_file;

use callback::CallbackListener;
use challenge::Challenge;
use flow::{LoginFlow, LoginTarget};
use token_file::{IssuerGrant, TokenFile, TokenRecord, TokenSet};

/// Logins that one request may cause.
pub const MAX_LOGINS: usize = 3;
/// Limit for repeated logins with the same scopes: after this many within `SAME_LOGIN_WINDOW` another one will not help.
const MAX_SAME_LOGINS: usize = 2;
const SAME_LOGIN_WINDOW: Duration = Duration::from_secs(600);

/// Environment of a login.
#[derive(Clone, Default)]
pub struct LoginOptions {
    /// Token storage; `None` keeps tokens in memory only.
    pub folder: Option<PathBuf>,
    /// Interactive login, if a person is present.
    pub browser: Option<BrowserLogin>,
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
    File(#[source] io::Error),
}

/// Demand of a server for a login.
#[derive(Debug, Clone)]
pub struct LoginDemand {
    server: Arc<str>,
    /// `WWW-Authenticate` header.
    challenge: Option<Arc<str>>,
    /// True if the token is valid but lacks a scope.
    more_scope: bool,
    /// Generation of the rejected token.
    generation: u64,
}

impl fmt::Display for LoginDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, more_scope, .. } = self;
        let what = if *more_scope { "a login with more scopes" } else { "a login" };
        write!(f, "the server requires {what}: run `toolgate servers login {server}`")
    }
}

/// OAuth tokens for one server.
pub struct TokenSource {
    name: Arc<str>,
    server: Url,
    options: OauthConfig,
    tls: UpstreamTls,
    addresses: AddressPolicy,
    browser: Option<BrowserLogin>,
    file: TokenFile,
    state: Mutex<TokenState>,
    /// Serialises logins and refreshes; waiting requests then use the new token.
    login_lock: tokio::sync::Mutex<()>,
    /// Recent logins with their scopes.
    recent_logins: Mutex<VecDeque<(Instant, String)>>,
}

/// Loaded tokens.
#[derive(Default)]
struct TokenState {
    loaded: bool,
    record: TokenRecord,
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
        let file = TokenFile::new(logins.folder.as_deref(), &server);
        let browser = logins.browser.clone();
        let (state, login_lock, recent_logins) =
            (Mutex::default(), tokio::sync::Mutex::default(), Mutex::default());
        let addresses = AddressPolicy::of_server(&server, None);
        Self {
            name: name.into(),
            server,
            options,
            tls,
            addresses,
            browser,
            file,
            state,
            login_lock,
            recent_logins,
        }
    }

    /// Sets the addresses that the server may have. They also limit the URLs of a login.
    #[must_use]
    pub fn with_addresses(mut self, addresses: AddressPolicy) -> Self {
        self.addresses = addresses;
        self
    }

    async fn discover(&self, challenge: Option<&str>) -> Result<LoginFlow, LoginError> {
        let Self { server, tls, addresses, .. } = self;
        let issuer = self.options.issuer.as_deref();
        LoginFlow::discover(LoginTarget { server, tls, addresses, issuer }, challenge).await
    }

    /// Returns the `Authorization` header, if there is a token, and the generation of the token.
    pub(crate) async fn authorization(&self) -> (Option<HeaderValue>, u64) {
        let (is_expiring, generation) = {
            let state = self.state();
            (state.record.tokens().is_some_and(TokenSet::is_expiring), state.generation)
        };
        if is_expiring {
            // If this fails, the server decides whether it still accepts the old token.
            let demand = LoginDemand {
                server: Arc::clone(&self.name),
                challenge: None,
                more_scope: false,
                generation,
            };
            let _ = Box::pin(self.renew(&demand)).await;
        }
        let state = self.state();
        let header = state.record.tokens().and_then(|tokens| {
            let mut header = HeaderValue::try_from(format!("Bearer {}", tokens.access_token)).ok()?;
            header.set_sensitive(true);
            Some(header)
        });
        (header, state.generation)
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
        let server = Arc::clone(&self.name);
        needs_login.then(|| LoginDemand {
            server,
            challenge: challenge.map(Into::into),
            more_scope,
            generation,
        })
    }

    /// Obtains another token if that needs no browser.
    pub(crate) async fn renew(&self, demand: &LoginDemand) -> Result<(), LinkError> {
        let _lock = self.login_lock.lock().await;
        let is_outdated = self.state().generation != demand.generation;
        if is_outdated || self.reload() {
            return Ok(());
        }
        let challenge = demand.challenge.as_deref();
        let obtained = if self.options.grant == OauthGrant::ClientCredentials {
            self.login_client_credentials(challenge).await.map(|()| true)
        } else if demand.more_scope {
            Ok(false)
        } else {
            self.refresh(challenge).await
        };
        match obtained {
            Ok(true) => Ok(()),
            Ok(false) => Err(LinkError::LoginRequired(demand.clone())),
            Err(error) => Err(LinkError::LoginFailed(Arc::new(error))),
        }
    }

    /// Logs in with a browser. Returns at once if the token has changed since the demand.
    ///
    /// # Errors
    /// No person is present, or the login failed.
    pub async fn login(&self, demand: Option<&LoginDemand>) -> Result<(), LoginError> {
        let _lock = self.login_lock.lock().await;
        if demand.is_some_and(|demand| demand.generation != self.state().generation) {
            return Ok(());
        }
        let challenge = demand.and_then(|demand| demand.challenge.as_deref());
        if self.options.grant == OauthGrant::ClientCredentials {
            return self.login_client_credentials(challenge).await;
        }
        let Some(browser) = &self.browser else { return Err(LoginError::NoUser) };
        self.check_login_loop(flow::challenged_scopes(challenge).join(" "))?;
        let flow = self.discover(challenge).await?;
        let known = self.state().record.grants.get(&flow.issuer).cloned();
        let (known, tokens) = known.map_or((None, None), |known| (Some(known.client), known.tokens));
        let granted = tokens.filter(|_| demand.is_some()).map(|tokens| tokens.scopes).unwrap_or_default();
        let scopes = flow.scopes(&self.options.scopes, &granted, challenge);
        let callback = self.listen(known.as_ref()).await.map_err(LoginError::Listen)?;
        let client = flow.client(&self.options, known.as_ref(), callback.redirect_uri(), &scopes).await?;
        let request = flow.authorization_request(&client, scopes)?;
        let is_own_host = request.url.host() == own_host(&self.server);
        let other_host = (!is_own_host).then(|| request.url.host());
        let page = LoginPage { server: self.name.to_string(), url: request.url.clone(), other_host };
        (browser.open)(page).await;
        let response = callback.wait(&request.state, browser.timeout).await.map_err(LoginError::Listen)?;
        let response = response.ok_or(LoginError::TimedOut(browser.timeout))?;
        let tokens = flow.exchange(&client, request, &response).await?;
        self.store(&flow.issuer, client, tokens)
    }

    pub fn has_token(&self) -> bool {
        self.state().record.tokens().is_some()
    }

    /// True if a login is possible now.
    pub fn can_login(&self) -> bool {
        self.browser.is_some() || self.options.grant == OauthGrant::ClientCredentials
    }

    /// Removes all tokens; returns true if there were any.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove_tokens(&self) -> Result<bool, LoginError> {
        let mut state = self.state();
        state.record = TokenRecord::new(&self.server);
        state.generation += 1;
        self.file.remove().map_err(LoginError::File)
    }

    /// Opens the callback listener, on the port of the client's registration if it is free.
    async fn listen(&self, known: Option<&token_file::OAuthClient>) -> io::Result<CallbackListener> {
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

    async fn login_client_credentials(&self, challenge: Option<&str>) -> Result<(), LoginError> {
        let flow = self.discover(challenge).await?;
        let scopes = flow.scopes(&self.options.scopes, &[], challenge);
        let (client, tokens) = flow.client_credentials(&self.options, scopes).await?;
        self.store(&flow.issuer, client, tokens)
    }

    /// Refreshes the token; returns true if there is a new one.
    async fn refresh(&self, challenge: Option<&str>) -> Result<bool, LoginError> {
        let (issuer, granted) = {
            let state = self.state();
            (state.record.issuer.clone(), state.record.grants.get(&state.record.issuer).cloned())
        };
        let Some(IssuerGrant { client, tokens: Some(tokens) }) = granted else { return Ok(false) };
        if tokens.refresh_token.is_none() {
            return Ok(false);
        }
        // Refresh tokens are often single-use: of two processes, the second one takes the token that the first one got.
        let _file_lock = self.file.lock().await;
        if self.reload() {
            return Ok(true);
        }
        let flow = self.discover(challenge).await?;
        // A refresh token must not be sent to another authorization server.
        if flow.issuer != issuer {
            return Ok(false);
        }
        let Some(tokens) = flow.refresh(&client, &tokens).await? else { return Ok(false) };
        self.store(&issuer, client, tokens)?;
        Ok(true)
    }

    fn store(
        &self,
        issuer: &str,
        client: token_file::OAuthClient,
        tokens: TokenSet,
    ) -> Result<(), LoginError> {
        let mut state = self.state();
        state.record.issuer = issuer.to_owned();
        state.record.grants.insert(issuer.to_owned(), IssuerGrant { client, tokens: Some(tokens) });
        state.generation += 1;
        self.file.write(&state.record).map_err(LoginError::File)
    }

    /// Reloads the file; returns true if another process stored a different token.
    fn reload(&self) -> bool {
        let Ok(Some(record)) = self.file.read(&self.server) else { return false };
        let mut state = self.state();
        let current = state.record.tokens().map(|tokens| tokens.access_token.as_str());
        if record.tokens().is_none() || record.has_access_token(current) {
            return false;
        }
        state.record = record;
        state.generation += 1;
        true
    }

    fn state(&self) -> MutexGuard<'_, TokenState> {
        let mut state = self.state.lock();
        if !state.loaded {
            state.loaded = true;
            let record = self.file.read(&self.server).ok().flatten();
            state.record = record.unwrap_or_else(|| TokenRecord::new(&self.server));
        }
        state
    }
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
