//! OAuth towards MCP servers: which token goes with a request, and how one is come by.
//!
//! A request that is refused for want of a token gets another one where none but machines are
//! needed: kept ones, refreshed ones, those of a client that logs in by itself. Where it takes a
//! person, the request fails with a [`Demand`], and whoever has the time calls
//! [`TokenSource::login`] and asks again: no request waits for a person within its own time.
//! Invariant: tokens are never shown, and go to the MCP server they were given for alone.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderValue;
use tokio::time::Instant;
use toolgate_types::oauth::{Grant, Oauth};
use toolgate_types::server::Tls;
use url::Url;

use crate::link::LinkError;

mod callback;
mod file;
mod flow;

use callback::Callback;
use file::{Granted, Kept, TokenFile, Tokens};
use flow::Flow;

/// How often a request may lead to a login before it is given up.
pub const LOGINS: usize = 3;
/// A person who is asked the same so often in so short a time is asked in vain.
const SAME_LOGINS: usize = 2;
const SAME_WITHIN: Duration = Duration::from_secs(600);

/// What logins need from the world around.
#[derive(Clone, Default)]
pub struct Logins {
    /// Where tokens are kept; nowhere beyond this process where it is `None`.
    pub folder: Option<PathBuf>,
    /// Who logs in, where somebody is there.
    pub person: Option<Person>,
}

/// Shows an address to somebody.
pub type Open = dyn Fn(&str, &str) + Send + Sync;

/// Somebody with a browser.
#[derive(Clone)]
pub struct Person {
    /// Shows an address: the server's name, and where its login is.
    pub open: Arc<Open>,
    /// How long a login may take.
    pub patience: Duration,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// It takes a person, and none is there.
    #[error("nobody is there to log in")]
    Nobody,
    /// It was done, and did not help.
    #[error("the server wants another login although {SAME_LOGINS} have just been made; it asks for {0}")]
    Useless(String),
    /// The server says nowhere how.
    #[error("the server wants a token, but does not say where one can be had")]
    NoOauth,
    /// A client that logs in by itself must be known.
    #[error("`grant: client_credentials` needs `client_id` and `client_secret`")]
    NoClient,
    /// Where to log in could not be found out.
    #[error("cannot find out where to log in")]
    Discovery(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The authorization server does not know us.
    #[error("the authorization server does not take us as a client; `oauth.client_id` may be needed")]
    Registration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The way back from the browser is closed.
    #[error("cannot wait for the browser on this machine")]
    Listen(#[source] io::Error),
    /// The person, or the authorization server, said no.
    #[error("the login was refused: {0}")]
    Refused(String),
    /// Nothing happened.
    #[error("the login was not finished within {0:?}")]
    TimedOut(Duration),
    /// There was an answer, but no token for it.
    #[error("the authorization server gave no token")]
    Exchange(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The tokens could not be read or kept.
    #[error("cannot keep the tokens")]
    File(#[source] io::Error),
}

/// What a server wants before it does what it was asked.
#[derive(Debug, Clone)]
pub struct Demand {
    server: Arc<str>,
    /// What it says it wants.
    challenge: Option<Arc<str>>,
    /// Whether the token is good, but not for this.
    more_scope: bool,
    /// The token that it refused.
    generation: u64,
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, more_scope, .. } = self;
        let what = if *more_scope { "a login with more rights" } else { "a login" };
        write!(f, "the server wants {what}: `toolgate servers login {server}`")
    }
}

/// The tokens for one server.
pub struct TokenSource {
    name: Arc<str>,
    server: Url,
    options: Oauth,
    tls: Tls,
    person: Option<Person>,
    file: TokenFile,
    held: Mutex<Held>,
    /// One at a time gets tokens; the others then use what it got.
    turn: tokio::sync::Mutex<()>,
    /// What a person was asked for of late.
    asked: Mutex<VecDeque<(Instant, String)>>,
}

/// What is known of the tokens.
#[derive(Default)]
struct Held {
    loaded: bool,
    kept: Kept,
    /// Counts the changes.
    generation: u64,
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TokenSource {
    /// Tokens for the server at an address.
    pub fn new(name: &str, server: Url, options: Oauth, tls: Tls, logins: &Logins) -> Self {
        let file = TokenFile::new(logins.folder.as_deref(), &server);
        let person = logins.person.clone();
        let (held, turn, asked) = (Mutex::default(), tokio::sync::Mutex::default(), Mutex::default());
        Self { name: name.into(), server, options, tls, person, file, held, turn, asked }
    }

    /// The header for a request, where there is a token, and which token it is.
    pub(crate) async fn authorization(&self) -> (Option<HeaderValue>, u64) {
        let (nearly_over, generation) = {
            let held = self.held();
            (held.kept.tokens().is_some_and(Tokens::nearly_over), held.generation)
        };
        if nearly_over {
            // Where that fails the server decides whether the old one will do.
            let demand =
                Demand { server: Arc::clone(&self.name), challenge: None, more_scope: false, generation };
            let _ = Box::pin(self.renew(&demand)).await;
        }
        let held = self.held();
        let header = held.kept.tokens().and_then(|tokens| {
            let mut header = HeaderValue::try_from(format!("Bearer {}", tokens.access_token)).ok()?;
            header.set_sensitive(true);
            Some(header)
        });
        (header, held.generation)
    }

    /// What an answer wants, if it wants a login.
    pub(crate) fn demand(&self, status: u16, challenge: Option<String>, generation: u64) -> Option<Demand> {
        let more_scope = challenge.as_deref().is_some_and(|text| flow::wants_more_scope(text, &self.server));
        let wanted = status == 401 || (status == 403 && more_scope);
        let server = Arc::clone(&self.name);
        wanted.then(|| Demand { server, challenge: challenge.map(Into::into), more_scope, generation })
    }

    /// Gets another token without a person, where that can be done.
    pub(crate) async fn renew(&self, demand: &Demand) -> Result<(), LinkError> {
        let _turn = self.turn.lock().await;
        let outdated = self.held().generation != demand.generation;
        if outdated || self.reload() {
            return Ok(());
        }
        let challenge = demand.challenge.as_deref();
        let got = if self.options.grant == Grant::ClientCredentials {
            self.by_itself(challenge).await.map(|()| true)
        } else if demand.more_scope {
            Ok(false)
        } else {
            self.refresh(challenge).await
        };
        match got {
            Ok(true) => Ok(()),
            Ok(false) => Err(LinkError::Login(demand.clone())),
            Err(error) => Err(LinkError::LoginFailed(Arc::new(error))),
        }
    }

    /// Lets a person log in. Returns at once where the demand is out of date.
    ///
    /// # Errors
    /// When nobody is there, or the login comes to nothing.
    pub async fn login(&self, demand: Option<&Demand>) -> Result<(), LoginError> {
        let _turn = self.turn.lock().await;
        if demand.is_some_and(|demand| demand.generation != self.held().generation) {
            return Ok(());
        }
        let challenge = demand.and_then(|demand| demand.challenge.as_deref());
        if self.options.grant == Grant::ClientCredentials {
            return self.by_itself(challenge).await;
        }
        let Some(person) = &self.person else { return Err(LoginError::Nobody) };
        self.not_again(flow::challenged_scopes(challenge, &self.server).join(" "))?;
        let mut flow = Flow::discover(&self.server, &self.tls, challenge).await?;
        let known = self.held().kept.grants.get(&flow.issuer).cloned();
        let (known, tokens) = known.map_or((None, None), |known| (Some(known.client), known.tokens));
        let granted = tokens.filter(|_| demand.is_some()).map(|tokens| tokens.scopes).unwrap_or_default();
        let scopes = flow.scopes(&self.options.scopes, &granted, challenge).await;
        let callback = self.listen(known.as_ref()).await.map_err(LoginError::Listen)?;
        let client = flow.client(&self.options, known.as_ref(), callback.redirect_uri(), &scopes).await?;
        let url = flow.authorization_url(&scopes).await?;
        let state = url.query_pairs().find(|(name, _)| name == "state").map(|(_, state)| state.into_owned());
        let state = state.expect("every login has a state");
        (person.open)(&self.name, url.as_str());
        let answer = callback.wait(&state, person.patience).await.map_err(LoginError::Listen)?;
        let answer = answer.ok_or(LoginError::TimedOut(person.patience))?;
        let tokens = flow.exchange(&answer).await?;
        self.keep(&flow.issuer, client, tokens)
    }

    /// Whether there is a token.
    pub fn has_token(&self) -> bool {
        self.held().kept.tokens().is_some()
    }

    /// Whether a login can be made here and now.
    pub fn has_person(&self) -> bool {
        self.person.is_some() || self.options.grant == Grant::ClientCredentials
    }

    /// Forgets all tokens; says whether there were any.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn forget(&self) -> Result<bool, LoginError> {
        let mut held = self.held();
        held.kept = Kept::new(&self.server);
        held.generation += 1;
        self.file.remove().map_err(LoginError::File)
    }

    /// A client that registered itself is known with the port it had then.
    async fn listen(&self, known: Option<&file::Client>) -> io::Result<Callback> {
        if let Some(port) = self.options.redirect_port {
            return Callback::bind(port).await;
        }
        let port = known.and_then(|known| Url::parse(&known.redirect_uri).ok()?.port());
        match port {
            Some(port) => match Callback::bind(port).await {
                Ok(callback) => Ok(callback),
                Err(_) => Callback::bind(0).await,
            },
            None => Callback::bind(0).await,
        }
    }

    /// A person is not asked for the same again and again.
    fn not_again(&self, wanted: String) -> Result<(), LoginError> {
        let now = Instant::now();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.retain(|(when, _)| now.duration_since(*when) < SAME_WITHIN);
        if asked.iter().filter(|(_, before)| *before == wanted).count() >= SAME_LOGINS {
            let wanted =
                if wanted.is_empty() { "no rights in particular".to_owned() } else { format!("`{wanted}`") };
            return Err(LoginError::Useless(wanted));
        }
        asked.push_back((now, wanted));
        Ok(())
    }

    async fn by_itself(&self, challenge: Option<&str>) -> Result<(), LoginError> {
        let flow = Flow::discover(&self.server, &self.tls, challenge).await?;
        let scopes = flow.scopes(&self.options.scopes, &[], challenge).await;
        let issuer = flow.issuer.clone();
        let (client, tokens) = flow.client_credentials(&self.options, scopes).await?;
        self.keep(&issuer, client, tokens)
    }

    /// Whether that brought a new token.
    async fn refresh(&self, challenge: Option<&str>) -> Result<bool, LoginError> {
        let (issuer, granted) = {
            let held = self.held();
            (held.kept.issuer.clone(), held.kept.grants.get(&held.kept.issuer).cloned())
        };
        let Some(Granted { client, tokens: Some(tokens) }) = granted else { return Ok(false) };
        if tokens.refresh_token.is_none() {
            return Ok(false);
        }
        // A refresh token is often good for one use: of two processes, the second takes what the
        // first one got.
        let _alone = self.file.alone().await;
        if self.reload() {
            return Ok(true);
        }
        let mut flow = Flow::discover(&self.server, &self.tls, challenge).await?;
        // Another authorization server must not see what this one gave.
        if flow.issuer != issuer {
            return Ok(false);
        }
        let Some(tokens) = flow.refresh(&client, &tokens).await? else { return Ok(false) };
        self.keep(&issuer, client, tokens)?;
        Ok(true)
    }

    fn keep(&self, issuer: &str, client: file::Client, tokens: Tokens) -> Result<(), LoginError> {
        let mut held = self.held();
        held.kept.issuer = issuer.to_owned();
        held.kept.grants.insert(issuer.to_owned(), Granted { client, tokens: Some(tokens) });
        held.generation += 1;
        self.file.write(&held.kept).map_err(LoginError::File)
    }

    /// Whether another process has got other tokens since.
    fn reload(&self) -> bool {
        let Ok(Some(kept)) = self.file.read(&self.server) else { return false };
        let mut held = self.held();
        let mine = held.kept.tokens().map(|tokens| tokens.access_token.as_str());
        if kept.tokens().is_none() || kept.holds(mine) {
            return false;
        }
        held.kept = kept;
        held.generation += 1;
        true
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.loaded {
            held.loaded = true;
            let kept = self.file.read(&self.server).ok().flatten();
            held.kept = kept.unwrap_or_else(|| Kept::new(&self.server));
        }
        held
    }
}

#[cfg(test)]
mod tests;
