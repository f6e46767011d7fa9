//! Sessions of the console: a login with a key becomes a sealed cookie.
//!
//! The cookie holds the hash of the key, so a session ends with its key, and has the permissions that the key has now. Invariant:
//! only the console reads the cookie; REST and MCP accept none. A session has one token that every form sends back.

use std::collections::HashMap;
use std::net::IpAddr;

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{self, HeaderMap};
use jiff::Timestamp;
use parking_lot::Mutex;
use toolgate_mcp::server::SessionKeys;
use toolgate_store::credentials::SealingKey;
use toolgate_types::KeyHash;

use super::form::Notice;
use crate::auth::HttpError;

/// Lifetime of a session, in seconds.
pub(crate) const LIFETIME: i64 = 12 * 60 * 60;
/// Lifetime of a message for the next page, in seconds.
const NOTICE_LIFETIME: i64 = 60;
/// Sessions that were logged out before their end.
const MAX_ENDED: usize = 10_000;
/// Longest cookie that is opened.
const MAX_COOKIE: usize = 4_096;
/// Separates the keys of the console from those of MCP sessions.
const PURPOSE: &[u8] = b"toolgate console cookie";
/// Purposes of sealed texts.
const SESSION: &str = "session";
const NOTICE: &str = "notice";

const HASH_BYTES: usize = 32;
const ID_BYTES: usize = 16;

/// A session, as the cookie holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsoleSession {
    pub(crate) key: KeyHash,
    /// Random. Also the token of forms, because pages of other origins cannot read it.
    id: [u8; ID_BYTES],
    /// Unix time of its end.
    pub(crate) end: i64,
}

impl ConsoleSession {
    pub(crate) fn start(key: KeyHash, now: Timestamp) -> Self {
        let mut id = [0; ID_BYTES];
        getrandom(&mut id);
        Self { key, id, end: now.as_second() + LIFETIME }
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
        [self.key.as_bytes().as_slice(), &self.id, &self.end.to_be_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (key, rest) = bytes.split_first_chunk::<HASH_BYTES>()?;
        let (id, end) = rest.split_first_chunk::<ID_BYTES>()?;
        let end = i64::from_be_bytes(end.try_into().ok()?);
        Some(Self { key: KeyHash::from_bytes(*key), id: *id, end })
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
    /// Keys whose sessions up to this end are over: logouts that found no room above. At most one entry for each key.
    ended_keys: Mutex<HashMap<[u8; HASH_BYTES], i64>>,
}

impl ConsoleSessions {
    pub(crate) fn new(keys: &SessionKeys) -> Self {
        Self {
            keys: ArcSwap::from_pointee(sealing_keys(keys)),
            ended: Mutex::default(),
            ended_keys: Mutex::default(),
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

    /// Returns the cookie of a session.
    pub(crate) fn cookie(&self, session: &ConsoleSession, secure: bool) -> String {
        let value = self.seal(SESSION, &session.to_bytes());
        format!("{}={value}; {}; Max-Age={LIFETIME}", name(SESSION, secure), attributes(secure))
    }

    /// Finds the session of a request. `None` without a cookie, and after its end.
    pub(crate) fn find(&self, headers: &HeaderMap, secure: bool, now: Timestamp) -> Option<ConsoleSession> {
        let sealed = cookie(headers, &name(SESSION, secure))?;
        let session = ConsoleSession::from_bytes(&self.open(SESSION, sealed)?)?;
        let is_over = session.end <= now.as_second()
            || self.ended.lock().contains_key(&session.id)
            || self.ended_keys.lock().get(session.key.as_bytes()).is_some_and(|end| session.end <= *end);
        (!is_over).then_some(session)
    }

    /// Ends a session before its time. Other copies of its cookie are invalid, too.
    pub(crate) fn end(&self, session: &ConsoleSession, now: Timestamp) {
        let mut ended = self.ended.lock();
        if ended.len() >= MAX_ENDED {
            ended.retain(|_, end| *end > now.as_second());
        }
        if ended.len() < MAX_ENDED {
            ended.insert(session.id, session.end);
        } else {
            // Thousands of logouts by one caller must not keep the cookies of another one valid.
            self.ended_keys.lock().insert(*session.key.as_bytes(), session.end);
        }
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

/// Returns the header values that remove the cookies of a session.
pub(crate) fn removed_session(secure: bool) -> String {
    format!("{}=; {}; Max-Age=0", name(SESSION, secure), attributes(secure))
}

pub(crate) fn removed_notice(secure: bool) -> String {
    format!("{}=; {}; Max-Age=0", name(NOTICE, secure), attributes(secure))
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

    fn headers(cookie: &str) -> HeaderMap {
        let pair = cookie.split(';').next().unwrap_or_default();
        [(header::COOKIE, format!("other=1; {pair}").parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_session_lives_until_its_end() {
        let (keys, now) = (SessionKeys::random(), Timestamp::now());
        let sessions = ConsoleSessions::new(&keys);
        let session = ConsoleSession::start(KeyHash::of("key"), now);
        for secure in [false, true] {
            let cookie = sessions.cookie(&session, secure);
            assert_eq!(cookie.starts_with("__Host-"), secure);
            assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
            assert_eq!(sessions.find(&headers(&cookie), secure, now), Some(session.clone()));
            assert_eq!(sessions.find(&headers(&cookie), !secure, now), None, "the name says how it was set");
            let later = Timestamp::from_second(session.end).unwrap();
            assert_eq!(sessions.find(&headers(&cookie), secure, later), None);
        }
        let cookie = sessions.cookie(&session, false);
        sessions.set_keys(&keys.rotated());
        assert!(sessions.find(&headers(&cookie), false, now).is_some(), "the key before still opens it");
        sessions.end(&session, now);
        assert!(sessions.find(&headers(&cookie), false, now).is_none(), "after the logout");
        sessions.set_keys(&SessionKeys::random());
        assert!(sessions.open(SESSION, cookie.split(['=', ';']).nth(1).unwrap()).is_none(), "another key");
    }

    #[test]
    fn a_logout_counts_after_many_others() {
        let (sessions, now) = (ConsoleSessions::new(&SessionKeys::random()), Timestamp::now());
        for _ in 0..MAX_ENDED {
            sessions.end(&ConsoleSession::start(KeyHash::of("busy"), now), now);
        }
        let (one, other) = (
            ConsoleSession::start(KeyHash::of("key"), now),
            ConsoleSession::start(KeyHash::of("other"), now),
        );
        sessions.end(&one, now);
        let find = |session| sessions.find(&headers(&sessions.cookie(session, false)), false, now);
        assert!(find(&one).is_none() && find(&other).is_some());
    }

    #[test]
    fn a_token_belongs_to_one_session() {
        let now = Timestamp::now();
        let (one, other) =
            (ConsoleSession::start(KeyHash::of("key"), now), ConsoleSession::start(KeyHash::of("key"), now));
        assert!(one.has_token(&one.token()));
        assert!(!one.has_token(&other.token()) && !one.has_token(""));
    }

    #[test]
    fn a_notice_is_no_session() {
        let sessions = ConsoleSessions::new(&SessionKeys::random());
        let notice = Notice { failed: true, text: "no".to_owned(), hint: None };
        let cookie = sessions.notice_cookie(&notice, false);
        assert_eq!(sessions.notice(&headers(&cookie), false), Some(notice));
        let as_session = cookie.replacen("toolgate_notice", "toolgate_session", 1);
        assert!(sessions.find(&headers(&as_session), false, Timestamp::now()).is_none());
    }
}
