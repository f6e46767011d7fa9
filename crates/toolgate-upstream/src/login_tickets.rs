//! Logins of callers in a browser, through the gateway.
//!
//! A caller without a login gets a link with a ticket: a random number that names the caller and the server. The page
//! behind it names both, so that a person with the link of another caller does not log in for
//! it by accident. The browser that opens the login gets a cookie, and only that browser can finish it. Invariant: a
//! ticket is used for one login, of one caller, to one server, and not after ten minutes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
pub use toolgate_mcp::oauth::CallbackQuery;
use toolgate_mcp::oauth::{CallbackResponse, LoginError, LoginPage, PendingLogin, TokenSource};
use toolgate_types::{CallerId, ServerName};

/// Validity of a ticket, from its first link.
const TICKET_LIFETIME: Duration = Duration::from_secs(600);
/// Open tickets. Beyond that, no more links are given.
const MAX_TICKETS: usize = 1_000;
/// Random bytes of a ticket and of a cookie.
const RANDOM_BYTES: usize = 24;

/// Open logins of a gateway.
#[derive(Default)]
pub struct LoginTickets {
    /// Public URL of the gateway; links are given once it is known.
    base_url: OnceLock<String>,
    open: Mutex<HashMap<Box<str>, LoginTicket>>,
}

struct LoginTicket {
    server: ServerName,
    caller: CallerId,
    expires: Instant,
    /// True once the caller has logged in.
    done: watch::Sender<bool>,
    started: Option<StartedLogin>,
}

/// A login whose page was opened.
struct StartedLogin {
    pending: PendingLogin,
    source: Arc<TokenSource>,
    cookie: String,
}

/// A ticket as its page describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketInfo {
    pub server: ServerName,
    pub caller: CallerId,
}

/// Reason why a response of an authorization server is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TicketError {
    #[error("this login is not known, was used before, or has expired")]
    Unknown,
    #[error("this login was opened in another browser")]
    OtherBrowser,
    #[error("the response contains no code")]
    NoCode,
    #[error(transparent)]
    Login(#[from] LoginError),
}

impl LoginTickets {
    /// Sets the public URL of the gateway.
    pub fn set_base_url(&self, url: &str) {
        let _ = self.base_url.set(url.trim_end_matches('/').to_owned());
    }

    /// Returns true if browsers reach the gateway over TLS.
    pub fn is_secure(&self) -> bool {
        self.base_url.get().is_some_and(|base| base.starts_with("https://"))
    }

    /// URL that authorization servers redirect to.
    pub fn redirect_uri(&self) -> Option<String> {
        self.base_url.get().map(|base| format!("{base}/login/callback"))
    }

    /// Returns the link of a caller's login to a server. The link stays the same until it is used or expires.
    pub fn link(&self, server: &ServerName, caller: &CallerId) -> Option<String> {
        let base = self.base_url.get()?;
        let now = Instant::now();
        let mut open = self.open.lock();
        open.retain(|_, ticket| ticket.expires > now);
        let known = open.iter().find(|(_, ticket)| ticket.server == *server && ticket.caller == *caller);
        let name = match known {
            Some((name, _)) => name.clone(),
            None if open.len() >= MAX_TICKETS => return None,
            None => {
                let name: Box<str> = random_name().into();
                let ticket = LoginTicket {
                    server: server.clone(),
                    caller: caller.clone(),
                    expires: now + TICKET_LIFETIME,
                    done: watch::Sender::new(false),
                    started: None,
                };
                open.insert(name.clone(), ticket);
                name
            }
        };
        Some(format!("{base}/login/{name}"))
    }

    /// Describes the ticket of a link.
    pub fn find(&self, name: &str) -> Option<TicketInfo> {
        let open = self.open.lock();
        let ticket = open.get(name).filter(|ticket| ticket.expires > Instant::now())?;
        Some(TicketInfo { server: ticket.server.clone(), caller: ticket.caller.clone() })
    }

    /// Watches the login of a link; true once the caller has logged in. `None` if the link is not known.
    pub fn watch(&self, link: &str) -> Option<watch::Receiver<bool>> {
        let name = link.rsplit('/').next().unwrap_or_default();
        self.open.lock().get(name).map(|ticket| ticket.done.subscribe())
    }

    /// Notes that a browser opens the page of a login. Returns the page and the cookie for the browser. A login that was
    /// opened before can no longer be finished.
    pub fn start(
        &self,
        name: &str,
        pending: PendingLogin,
        source: Arc<TokenSource>,
    ) -> Option<(LoginPage, String)> {
        let mut open = self.open.lock();
        let ticket = open.get_mut(name).filter(|ticket| ticket.expires > Instant::now())?;
        let (page, cookie) = (pending.page().clone(), random_name());
        ticket.started = Some(StartedLogin { pending, source, cookie: cookie.clone() });
        Some((page, cookie))
    }

    /// Completes a login with the response of the authorization server. The ticket cannot be used again.
    ///
    /// # Errors
    /// If no login of this browser waits for the response, or the login fails.
    pub async fn finish(
        &self,
        state: &str,
        cookie: &str,
        response: Option<CallbackResponse>,
    ) -> Result<TicketInfo, TicketError> {
        let ticket = {
            let mut open = self.open.lock();
            let now = Instant::now();
            let name = open.iter().find(|(_, ticket)| {
                ticket.expires > now
                    && ticket.started.as_ref().is_some_and(|started| started.pending.state() == state)
            });
            let (name, ticket) = name.ok_or(TicketError::Unknown)?;
            // The state and the cookie are random and used once, so the time of a comparison says nothing.
            if ticket.started.as_ref().is_none_or(|started| started.cookie != cookie) {
                return Err(TicketError::OtherBrowser);
            }
            let name = name.clone();
            open.remove(&name).ok_or(TicketError::Unknown)?
        };
        let StartedLogin { pending, source, .. } = ticket.started.ok_or(TicketError::Unknown)?;
        source.finish_login(pending, &response.ok_or(TicketError::NoCode)?).await?;
        ticket.done.send_replace(true);
        Ok(TicketInfo { server: ticket.server, caller: ticket.caller })
    }
}

fn random_name() -> String {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(start_paused = true)]
async fn links_name_one_caller_and_expire() {
    let tickets = LoginTickets::default();
    let (server, ann, bob): (ServerName, CallerId, CallerId) =
        ("web".parse().unwrap(), "ann".parse().unwrap(), "bob".parse().unwrap());
    assert_eq!(tickets.link(&server, &ann), None, "the gateway has no URL yet");
    tickets.set_base_url("https://gate.example.com/");
    let link = tickets.link(&server, &ann).unwrap();
    assert_eq!(tickets.link(&server, &ann).as_ref(), Some(&link));
    assert_ne!(tickets.link(&server, &bob).as_ref(), Some(&link));
    let name = link.strip_prefix("https://gate.example.com/login/").unwrap();
    assert_eq!(tickets.find(name).unwrap().caller, ann);
    assert!(tickets.find("guess").is_none());
    let unknown = tickets.finish("", "", None).await;
    assert!(matches!(unknown, Err(TicketError::Unknown)), "no login was opened");
    tokio::time::advance(TICKET_LIFETIME).await;
    assert!(tickets.find(name).is_none());
    assert_ne!(tickets.link(&server, &ann), Some(link));
}
