//! States that servers of the newest revision give out with their questions: sealed on the way to the client, opened
//! on the way back.
//!
//! A server behind us knows us and not our guests, so it cannot tell whose a state is. Invariant: a state goes back to
//! its server from the guest it was given to, with the request it was given for, within ten minutes and once.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use memchr::memmem;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::session::unguessable;
use crate::Raw;
use crate::message::{RpcError, quoted};

/// How long a state is good.
const LASTS: Duration = Duration::from_secs(600);
/// States that were used and are remembered; beyond it the oldest is forgotten.
const MOST_USED: usize = 65_536;
/// How a sealed state begins.
const PREFIX: &str = "tg2.";
const MEMBER: &str = "requestState";

/// Seals states, and opens its own.
pub(super) struct States {
    key: hmac::Key,
    start: Instant,
    used: Mutex<Used>,
}

/// States that came back.
#[derive(Default)]
struct Used {
    numbers: HashSet<Box<str>>,
    order: VecDeque<(u64, Box<str>)>,
}

/// What a state is good for.
#[derive(Clone, Copy)]
pub(super) struct For<'a> {
    pub(super) guest: &'a str,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a Raw>,
}

#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    /// What tells it from others.
    #[serde(rename = "n")]
    number: Box<str>,
    #[serde(rename = "g")]
    guest: Box<str>,
    /// The request: its method and what it names.
    #[serde(rename = "r")]
    request: Box<str>,
    /// The second in which it ends.
    #[serde(rename = "e")]
    ends: u64,
    /// What the server said, as it said it.
    #[serde(rename = "s", borrow)]
    state: &'a serde_json::value::RawValue,
}

/// A request by its method and what it names.
pub(super) fn named(method: &str, params: Option<&Raw>) -> Box<str> {
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return method.into(),
    };
    let members = params.map(Raw::members).unwrap_or_default();
    let value = members.iter().find(|(name, _)| name == member);
    let value = value.and_then(|(_, value)| serde_json::from_str::<String>(value).ok());
    format!("{method} {}", value.unwrap_or_default()).into()
}

impl States {
    /// With a new key: states of another process are not known here.
    pub(super) fn new() -> Self {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).expect("the system has randomness");
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), start: Instant::now(), used: Mutex::default() }
    }

    /// A result whose state, where it is a question with one, is sealed.
    pub(super) fn seal(&self, whose: For<'_>, result: Raw) -> Raw {
        if memmem::find(result.get().as_bytes(), MEMBER.as_bytes()).is_none() {
            return result;
        }
        let members = result.members();
        let is_question =
            members.iter().any(|(name, value)| name == "resultType" && *value == "\"input_required\"");
        let Some(&(_, state)) = members.iter().find(|(name, _)| name == MEMBER).filter(|_| is_question)
        else {
            return result;
        };
        // One of ours is bound already.
        if state.starts_with("\"tg1.") {
            return result;
        }
        let sealed = Sealed {
            number: unguessable().into(),
            guest: whose.guest.into(),
            request: named(whose.method, whose.params),
            ends: self.start.elapsed().saturating_add(LASTS).as_secs(),
            state: serde_json::from_str(state).expect("it is a part of JSON"),
        };
        let said = BASE64.encode(serde_json::to_vec(&sealed).unwrap_or_default());
        let mark = BASE64.encode(hmac::sign(&self.key, said.as_bytes()));
        replaced(&result, &quoted(&format!("{PREFIX}{said}.{mark}")))
    }

    /// Parameters whose state, where they have one, is what the server said.
    pub(super) fn open(&self, whose: For<'_>) -> Result<Option<Raw>, RpcError> {
        let Some(params) = whose.params else { return Ok(None) };
        // A name may be written with escapes.
        if !params.get().contains(MEMBER) && !params.get().contains("\\u") {
            return Ok(Some(params.clone()));
        }
        let members = params.members();
        let Some((_, sealed)) = members.iter().find(|(name, _)| name == MEMBER) else {
            return Ok(Some(params.clone()));
        };
        let bad =
            || RpcError::new(RpcError::INVALID_PARAMS, "the `requestState` is not one that is good here");
        let sealed: String = serde_json::from_str(sealed).map_err(|_| bad())?;
        let (said, mark) = sealed.strip_prefix(PREFIX).and_then(|it| it.split_once('.')).ok_or_else(bad)?;
        let mark = BASE64.decode(mark).map_err(|_| bad())?;
        hmac::verify(&self.key, said.as_bytes(), &mark).map_err(|_| bad())?;
        let said = BASE64.decode(said).map_err(|_| bad())?;
        let sealed: Sealed<'_> = serde_json::from_slice(&said).map_err(|_| bad())?;
        let now = self.start.elapsed().as_secs();
        let fits = &*sealed.guest == whose.guest && sealed.request == named(whose.method, Some(params));
        if !fits || sealed.ends <= now || !self.first(sealed.number, sealed.ends, now) {
            return Err(bad());
        }
        Ok(Some(replaced(params, sealed.state.get())))
    }

    /// Whether a state comes back for the first time.
    fn first(&self, number: Box<str>, ends: u64, now: u64) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while used.order.front().is_some_and(|(ends, _)| *ends <= now) || used.order.len() >= MOST_USED {
            let Some((_, gone)) = used.order.pop_front() else { break };
            used.numbers.remove(&gone);
        }
        if !used.numbers.insert(number.clone()) {
            return false;
        }
        used.order.push_back((ends, number));
        true
    }
}

/// An object with another state.
fn replaced(object: &Raw, state: &str) -> Raw {
    let mut out = String::with_capacity(object.get().len() + state.len());
    for (name, value) in object.members() {
        out.push(if out.is_empty() { '{' } else { ',' });
        out.push_str(&quoted(&name));
        out.push(':');
        out.push_str(if name == MEMBER { state } else { value });
    }
    out.push('}');
    Raw::trusted(out)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request<'a>(guest: &'static str, params: &'a Raw) -> For<'a> {
        For { guest, method: "tools/call", params: Some(params) }
    }

    /// The state that a question of the server has on its way to the client.
    fn sealed(states: &States, tool: &str) -> Value {
        let params = Raw::of(&json!({ "name": tool }));
        let result = json!({ "resultType": "input_required", "inputRequests": {}, "requestState": "secret" });
        let result: Value = states.seal(request("ann", &params), Raw::of(&result)).parse().unwrap();
        assert_ne!(result["requestState"], "secret");
        result["requestState"].clone()
    }

    /// What the server gets back.
    fn opened(states: &States, guest: &'static str, tool: &str, state: &Value) -> Result<Value, i64> {
        let params = Raw::of(&json!({ "name": tool, "requestState": state }));
        let opened = states.open(request(guest, &params)).map_err(|error| error.code)?;
        Ok(opened.unwrap().parse::<Value>().unwrap()["requestState"].clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_goes_back_once_from_who_got_it() {
        let states = States::new();
        let state = sealed(&states, "echo");
        let text = state.as_str().unwrap();
        for at in 0..text.len() {
            let mut bent = text.to_owned().into_bytes();
            bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
            let bent = String::from_utf8(bent).unwrap();
            assert_eq!(opened(&states, "ann", "echo", &json!(bent)), Err(-32602), "{at}");
        }
        assert_eq!(opened(&states, "bob", "echo", &state), Err(-32602), "another guest");
        assert_eq!(opened(&states, "ann", "other", &state), Err(-32602), "another tool");
        assert_eq!(opened(&States::new(), "ann", "echo", &state), Err(-32602), "another process");
        for bad in [json!("secret"), json!("tg2.x"), json!(7), Value::Null] {
            assert_eq!(opened(&states, "ann", "echo", &bad), Err(-32602), "{bad}");
        }
        assert_eq!(opened(&states, "ann", "echo", &state), Ok(json!("secret")));
        assert_eq!(opened(&states, "ann", "echo", &state), Err(-32602), "a second time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_lasts_ten_minutes() {
        let states = States::new();
        let (early, late) = (sealed(&states, "echo"), sealed(&states, "echo"));
        tokio::time::sleep(LASTS - Duration::from_secs(2)).await;
        assert!(opened(&states, "ann", "echo", &early).is_ok());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(opened(&states, "ann", "echo", &late), Err(-32602));
        assert!(opened(&states, "ann", "echo", &sealed(&states, "echo")).is_ok());
        assert_eq!(states.used.lock().unwrap().order.len(), 1, "what has ended is forgotten");
    }

    #[tokio::test]
    async fn a_name_with_escapes_is_the_same_name() {
        let states = States::new();
        let params = Raw::trusted(r#"{"name":"echo","request\u0053tate":"secret"}"#.to_owned());
        assert_eq!(states.open(request("ann", &params)).unwrap_err().code, -32602);
        let other = Raw::trusted(r#"{"name":"echo","arguments":{"requestState":"x\u0041"}}"#.to_owned());
        assert_eq!(states.open(request("ann", &other)).unwrap().unwrap().get(), other.get());
        let complete = Raw::of(&json!({ "resultType": "complete", "requestState": "x" }));
        assert_eq!(states.seal(request("ann", &other), complete.clone()).get(), complete.get());
    }
}
