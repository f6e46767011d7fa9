//! Sessions of the console: a login with a key or a token becomes a sealed cookie.
//!
//! The cookie holds the hash of the key, so a session ends with its key, and has the permissions that the key has now.
//! Of a token it holds the claims that make the caller, so a session ends when the token expires, and has the
//! permissions that the configuration of now gives to them. Invariant: only the console reads the cookie; REST and MCP
//! accept none. A session has one token that every form sends back.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{self, HeaderMap};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toolgate_mcp::server::SessionKeys;
use toolgate_store::callers::StoreStamp;
use toolgate_store::cluster::DocumentStore;
use toolgate_store::credentials::SealingKey;
use toolgate_types::KeyHash;

use super::form::Notice;
use crate::auth::{HttpError, TokenSession};

/// Lifetime of a session, in seconds.
pub(crate) const LIFETIME: i64 = 12 * 60 * 60;
/// Lifetime of a message for the next page, in seconds.
const NOTICE_LIFETIME: i64 = 60;
/// Time that a person has for a login at an issuer, in seconds.
pub(super) const LOGIN_LIFETIME: i64 = 600;
/// Sessions that were logged out before their end.
const MAX_ENDED: usize = 10_000;
/// Longest cookie that is opened.
const MAX_COOKIE: usize = 4_096;
/// Separates the keys of the console from those of MCP sessions.
const PURPOSE: &[u8] = b"toolgate console cookie";
/// Purposes of sealed texts.
const SESSION: &str = "session";
const NOTICE: &str = "notice";
const LOGIN: &str = "oidc";
/// First byte of a session: the kind of its credential.
const KEY_SESSION: u8 = 1;
const TOKEN_SESSION: u8 = 2;

const HASH_BYTES: usize = 32;
const ID_BYTES: usize = 16;

/// The credential that a session began with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionCredential {
    Key(KeyHash),
    Token(TokenSession),
}

impl SessionCredential {
    /// Hash that all sessions with this credential share.
    fn hash(&self) -> KeyHash {
        match self {
            Self::Key(key) => *key,
            Self::Token(token) => token.hash(),
        }
    }
}

/// A session, as the cookie holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsoleSession {
    pub(crate) credential: SessionCredential,
    /// Random. Also the token of forms, because pages of other origins cannot read it.
    id: [u8; ID_BYTES],
    /// Unix time of its end.
    pub(crate) end: i64,
}

impl ConsoleSession {
    pub(crate) fn start(credential: SessionCredential, now: Timestamp) -> Self {
        let mut id = [0; ID_BYTES];
        getrandom(&mut id);
        Self { credential, id, end: now.as_second() + LIFETIME }
    }

    /// Token that every form of this session sends back.
    pub(crate) fn token(&self) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.id);
        URL_SAFE_NO_PAD.encode(&hmac::sign(&key, b"form token").as_ref()[..ID_BYTES])
    }

    /// Compares a token in constant time.
    pub(crate) fn has_token(&self, sent: &str) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(sent.as_bytes(), self.token().as_bytes()).is_ok()
    }

    fn to_bytes(&self) -> Vec<u8> {
        let (kind, credential) = match &self.credential {
            SessionCredential::Key(key) => (KEY_SESSION, key.as_bytes().to_vec()),
            SessionCredential::Token(token) => (TOKEN_SESSION, serde_json::to_vec(token).unwrap_or_default()),
        };
        [&[kind], self.id.as_slice(), &self.end.to_be_bytes(), &credential].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (id, rest) = rest.split_first_chunk::<ID_BYTES>()?;
        let (end, credential) = rest.split_first_chunk::<8>()?;
        let credential = match *kind {
            KEY_SESSION => SessionCredential::Key(KeyHash::from_bytes(credential.try_into().ok()?)),
            TOKEN_SESSION => SessionCredential::Token(serde_json::from_slice(credential).ok()?),
            _ => return None,
        };
        Some(Self { credential, id: *id, end: i64::from_be_bytes(*end) })
    }
}

fn getrandom(bytes: &mut [u8]) {
    aws_lc_rs::rand::fill(bytes).expect("the system has random numbers");
}

/// Seals and opens the cookies of the console.
pub(crate) struct ConsoleSessions {
    /// The current key first.
    keys: ArcSwap<Vec<SealingKey>>,
    /// Sessions that were logged out, with their end.
    ended: Mutex<HashMap<[u8; ID_BYTES], i64>>,
    /// Credentials with the end of their sessions that are over: logouts that found no room above. At most one entry each.
    ended_credentials: Mutex<HashMap<[u8; HASH_BYTES], i64>>,
    /// The logouts at all replicas of a cluster, in place of both.
    shared: Option<SharedLogouts>,
}

impl ConsoleSessions {
    pub(crate) fn new(keys: &SessionKeys, shared: Option<SharedLogouts>) -> Self {
        Self {
            keys: ArcSwap::from_pointee(sealing_keys(keys)),
            ended: Mutex::default(),
            ended_credentials: Mutex::default(),
            shared,
        }
    }

    /// Replaces the keys. Cookies that only a removed key opens are invalid from now on.
    pub(crate) fn set_keys(&self, keys: &SessionKeys) {
        self.keys.store(std::sync::Arc::new(sealing_keys(keys)));
    }

    fn seal(&self, purpose: &str, text: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.keys.load()[0].seal(purpose, text))
    }

    fn open(&self, purpose: &str, sealed: &str) -> Option<Vec<u8>> {
        let sealed =
            URL_SAFE_NO_PAD.decode(Some(sealed).filter(|sealed| sealed.len() <= MAX_COOKIE)?).ok()?;
        self.keys.load().iter().find_map(|key| key.open(purpose, &sealed))
    }

    /// Returns the cookie of a session. `None` if its claims are too long for one.
    pub(crate) fn cookie(&self, session: &ConsoleSession, secure: bool) -> Option<String> {
        let value = self.seal(SESSION, &session.to_bytes());
        let cookie = format!("{}={value}; {}; Max-Age={LIFETIME}", name(SESSION, secure), attributes(secure));
        (cookie.len() <= MAX_COOKIE).then_some(cookie)
    }

    /// Returns the cookie of a login that has begun with an issuer. The response of the issuer comes from another site,
    /// so `SameSite=Strict` would withhold it.
    pub(super) fn login_cookie(&self, login: &impl Serialize, secure: bool) -> String {
        let value = self.seal(LOGIN, &serde_json::to_vec(login).unwrap_or_default());
        let attributes = attributes(secure).replace("SameSite=Strict", "SameSite=Lax");
        format!("{}={value}; {attributes}; Max-Age={LOGIN_LIFETIME}", name(LOGIN, secure))
    }

    /// Returns the login that this browser has begun.
    pub(super) fn login<T: DeserializeOwned>(&self, headers: &HeaderMap, secure: bool) -> Option<T> {
        let sealed = cookie(headers, &name(LOGIN, secure))?;
        serde_json::from_slice(&self.open(LOGIN, sealed)?).ok()
    }

    /// Finds the session of a request. `None` without a cookie, and after its end.
    pub(crate) fn find(&self, headers: &HeaderMap, secure: bool, now: Timestamp) -> Option<ConsoleSession> {
        let sealed = cookie(headers, &name(SESSION, secure))?;
        let session = ConsoleSession::from_bytes(&self.open(SESSION, sealed)?)?;
        let is_over = session.end <= now.as_second()
            || self.ended.lock().contains_key(&session.id)
            || self.has_ended_credential(&session)
            || self.shared.as_ref().is_some_and(|shared| shared.contains(&session));
        (!is_over).then_some(session)
    }

    fn has_ended_credential(&self, session: &ConsoleSession) -> bool {
        let ended = self.ended_credentials.lock();
        !ended.is_empty()
            && ended.get(session.credential.hash().as_bytes()).is_some_and(|end| session.end <= *end)
    }

    /// Ends a session before its time. Other copies of its cookie are invalid, too.
    ///
    /// # Errors
    /// If the other replicas of a cluster cannot be told.
    pub(crate) fn end(&self, session: &ConsoleSession, now: Timestamp) -> io::Result<()> {
        if let Some(shared) = &self.shared {
            return shared.insert(session, now);
        }
        let mut ended = self.ended.lock();
        if ended.len() >= MAX_ENDED {
            ended.retain(|_, end| *end > now.as_second());
        }
        if ended.len() < MAX_ENDED {
            ended.insert(session.id, session.end);
        } else {
            // Thousands of logouts by one caller must not keep the cookies of another one valid.
            self.ended_credentials.lock().insert(*session.credential.hash().as_bytes(), session.end);
        }
        Ok(())
    }

    /// Returns the cookie with a message for the next page. Sealed, so that only this gateway writes messages.
    pub(crate) fn notice_cookie(&self, notice: &Notice, secure: bool) -> String {
        let value = self.seal(NOTICE, &serde_json::to_vec(notice).unwrap_or_default());
        format!("{}={value}; {}; Max-Age={NOTICE_LIFETIME}", name(NOTICE, secure), attributes(secure))
    }

    /// Returns the message for this page.
    pub(crate) fn notice(&self, headers: &HeaderMap, secure: bool) -> Option<Notice> {
        let sealed = cookie(headers, &name(NOTICE, secure))?;
        serde_json::from_slice(&self.open(NOTICE, sealed)?).ok()
    }
}

/// Name of the text with the logouts of a cluster.
const LOGOUTS: &str = "logouts";

/// The logouts at all replicas of a cluster: sessions and credentials with the end of their sessions that are over.
pub(crate) struct SharedLogouts {
    documents: Arc<dyn DocumentStore>,
    /// The text as it was last read, with its stamp.
    read: Mutex<(StoreStamp, HashMap<String, i64>)>,
}

impl SharedLogouts {
    pub(crate) fn new(documents: Arc<dyn DocumentStore>) -> Self {
        Self { documents, read: Mutex::default() }
    }

    fn session_key(session: &ConsoleSession) -> String {
        format!("s{}", URL_SAFE_NO_PAD.encode(session.id))
    }

    fn credential_key(session: &ConsoleSession) -> String {
        format!("c{}", URL_SAFE_NO_PAD.encode(session.credential.hash().as_bytes()))
    }

    fn contains(&self, session: &ConsoleSession) -> bool {
        let mut read = self.read.lock();
        let stamp = self.documents.stamp(LOGOUTS);
        if read.0 != stamp {
            let text = self.documents.read(LOGOUTS);
            let Ok(logouts) = serde_json::from_str(text.as_deref().unwrap_or("{}")) else { return true };
            *read = (stamp, logouts);
        }
        read.1.contains_key(&Self::session_key(session))
            || read.1.get(&Self::credential_key(session)).is_some_and(|end| session.end <= *end)
    }

    fn insert(&self, session: &ConsoleSession, now: Timestamp) -> io::Result<()> {
        self.documents.update(LOGOUTS, &mut |text| {
            let mut logouts: HashMap<String, i64> = serde_json::from_str(text.unwrap_or("{}"))?;
            logouts.retain(|_, end| *end > now.as_second());
            let is_full = logouts.len() >= MAX_ENDED;
            let key = if is_full { Self::credential_key(session) } else { Self::session_key(session) };
            logouts.insert(key, session.end);
            Ok(Some(serde_json::to_string(&logouts)?))
        })
    }
}

/// Returns the header values that remove the cookies of a session.
pub(crate) fn removed_session(secure: bool) -> String {
    format!("{}=; {}; Max-Age=0", name(SESSION, secure), attributes(secure))
}

pub(crate) fn removed_notice(secure: bool) -> String {
    format!("{}=; {}; Max-Age=0", name(NOTICE, secure), attributes(secure))
}

pub(super) fn removed_login(secure: bool) -> String {
    format!("{}=; {}; Max-Age=0", name(LOGIN, secure), attributes(secure))
}

/// Under TLS, no other host and no plain connection can set this cookie.
fn name(purpose: &str, secure: bool) -> String {
    let prefix = if secure { "__Host-" } else { "" };
    format!("{prefix}toolgate_{purpose}")
}

pub(super) fn attributes(secure: bool) -> &'static str {
    if secure { "Path=/; HttpOnly; SameSite=Strict; Secure" } else { "Path=/; HttpOnly; SameSite=Strict" }
}

/// Returns a cookie of a request.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| {
        let (known, value) = pair.trim().split_once('=')?;
        (known == name).then_some(value)
    })
}

fn sealing_keys(keys: &SessionKeys) -> Vec<SealingKey> {
    let derive = |key: &[u8; SessionKeys::BYTES]| {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), PURPOSE);
        SealingKey::new(tag.as_ref().try_into().expect("SHA-256 has the length of a key"))
    };
    std::iter::once(&keys.current).chain(&keys.previous).map(derive).collect()
}

/// Logs failed logins with the address, never the key.
pub(super) fn log_refusal(client: IpAddr, error: &HttpError) {
    tracing::warn!(%client, "login to the console refused: {}", error.message);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(key: &str, now: Timestamp) -> ConsoleSession {
        ConsoleSession::start(SessionCredential::Key(KeyHash::of(key)), now)
    }

    fn headers(cookie: &str) -> HeaderMap {
        let pair = cookie.split(';').next().unwrap_or_default();
        [(header::COOKIE, format!("other=1; {pair}").parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_session_lives_until_its_end() {
        let (keys, now) = (SessionKeys::random(), Timestamp::now());
        let sessions = ConsoleSessions::new(&keys, None);
        let session = start("key", now);
        for secure in [false, true] {
            let cookie = sessions.cookie(&session, secure).unwrap();
            assert_eq!(cookie.starts_with("__Host-"), secure);
            assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
            assert_eq!(sessions.find(&headers(&cookie), secure, now), Some(session.clone()));
            assert_eq!(sessions.find(&headers(&cookie), !secure, now), None, "the name says how it was set");
            let later = Timestamp::from_second(session.end).unwrap();
            assert_eq!(sessions.find(&headers(&cookie), secure, later), None);
        }
        let cookie = sessions.cookie(&session, false).unwrap();
        sessions.set_keys(&keys.rotated());
        assert!(sessions.find(&headers(&cookie), false, now).is_some(), "the key before still opens it");
        sessions.end(&session, now).unwrap();
        assert!(sessions.find(&headers(&cookie), false, now).is_none(), "after the logout");
        sessions.set_keys(&SessionKeys::random());
        assert!(sessions.open(SESSION, cookie.split(['=', ';']).nth(1).unwrap()).is_none(), "another key");
    }

    #[test]
    fn a_logout_counts_after_many_others() {
        let (sessions, now) = (ConsoleSessions::new(&SessionKeys::random(), None), Timestamp::now());
        for _ in 0..MAX_ENDED {
            sessions.end(&start("busy", now), now).unwrap();
        }
        let (one, other) = (start("key", now), start("other", now));
        sessions.end(&one, now).unwrap();
        let find = |session| sessions.find(&headers(&sessions.cookie(session, false).unwrap()), false, now);
        assert!(find(&one).is_none() && find(&other).is_some());
    }

    #[test]
    fn a_session_of_a_token_holds_its_claims() {
        let (sessions, now) = (ConsoleSessions::new(&SessionKeys::random(), None), Timestamp::now());
        let session = |groups: usize| {
            let claims = serde_json::json!({ "sub": "ann", "exp": 4e9, "groups": vec!["a-group"; groups] });
            let token = serde_json::json!({ "issuer": "https://id.test", "claims": claims });
            ConsoleSession::start(SessionCredential::Token(serde_json::from_value(token).unwrap()), now)
        };
        let (small, large) = (session(3), session(400));
        let cookie = sessions.cookie(&small, false).unwrap();
        assert_eq!(sessions.find(&headers(&cookie), false, now), Some(small));
        assert_eq!(sessions.cookie(&large, false), None, "a browser would drop it");
        // A login that has begun is no session, and no session is a login.
        let begun = sessions.login_cookie(&serde_json::json!({ "state": "s" }), false);
        assert!(begun.contains("SameSite=Lax"));
        let read = |cookie: &str| sessions.login::<serde_json::Value>(&headers(cookie), false);
        assert_eq!(read(&begun).unwrap()["state"], "s");
        assert!(read(&cookie.replacen("toolgate_session", "toolgate_oidc", 1)).is_none());
        let as_session = begun.replacen("toolgate_oidc", "toolgate_session", 1);
        assert!(sessions.find(&headers(&as_session), false, now).is_none());
    }

    #[test]
    fn a_token_belongs_to_one_session() {
        let now = Timestamp::now();
        let (one, other) = (start("key", now), start("key", now));
        assert!(one.has_token(&one.token()));
        assert!(!one.has_token(&other.token()) && !one.has_token(""));
    }

    #[test]
    fn a_notice_is_no_session() {
        let sessions = ConsoleSessions::new(&SessionKeys::random(), None);
        let notice = Notice { failed: true, text: "no".to_owned(), hint: None };
        let cookie = sessions.notice_cookie(&notice, false);
        assert_eq!(sessions.notice(&headers(&cookie), false), Some(notice));
        let as_session = cookie.replacen("toolgate_notice", "toolgate_session", 1);
        assert!(sessions.find(&headers(&as_session), false, Timestamp::now()).is_none());
    }
}
