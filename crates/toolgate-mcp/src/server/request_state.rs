//! `requestState` of upstream servers (newest revision): signed for the client, verified and unwrapped when it returns.
//!
//! An upstream server knows the gateway and not its callers, so it cannot tell the caller that a state belongs to.
//! Invariant: a state returns to its server only from the caller it was given to, with the same request, within ten
//! minutes, and once.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::hmac;
use super::session::{random_bytes, random_id};
use crate::RawJson;
use crate::message::{RpcError, quoted};

const STATE_TTL: Duration = Duration::from_secs(600);
/// Used states that are remembered; beyond it the oldest is forgotten.
const MAX_USED: usize = 65_536;
/// Prefix of a signed state.
const PREFIX: &str = "tg2.";
const MEMBER: &str = "requestState";

/// Signs and verifies request states.
pub(super) struct StateSigner {
    key: hmac::Key,
    start: Instant,
    used: Mutex<UsedStates>,
}

/// Ids of states that were used, against replay.
#[derive(Default)]
struct UsedStates {
    ids: HashSet<Box<str>>,
    order: VecDeque<(u64, Box<str>)>,
}

/// Caller and request that a state is bound to.
#[derive(Clone, Copy)]
pub(super) struct StateScope<'a> {
    pub(super) caller: &'a str,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a RawJson>,
}

#[derive(Serialize, Deserialize)]
struct SignedState<'a> {
    #[serde(rename = "n")]
    id: Box<str>,
    #[serde(rename = "g")]
    caller: Box<str>,
    /// Method and target of the request.
    #[serde(rename = "r")]
    request: Box<str>,
    /// Expiry in seconds since the signer was created.
    #[serde(rename = "e")]
    expires_at: u64,
    /// State of the server, unchanged.
    #[serde(rename = "s", borrow)]
    state: &'a serde_json::value::RawValue,
}

/// Identifies a request by method and target.
pub(super) fn request_key(method: &str, params: Option<&RawJson>) -> Box<str> {
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return method.into(),
    };
    let members = params.map(RawJson::members).unwrap_or_default();
    let value = members.iter().find(|(name, _)| name == member);
    let value = value.and_then(|(_, value)| serde_json::from_str::<String>(value).ok());
    format!("{method} {}", value.unwrap_or_default()).into()
}

impl StateSigner {
    /// Creates a signer with a random key: states of another process are invalid.
    pub(super) fn new() -> Self {
        let key = hmac::Key::new(&random_bytes::<32>());
        Self { key, start: Instant::now(), used: Mutex::default() }
    }

    /// Signs the state in an `input_required` result; other results are returned unchanged.
    pub(super) fn sign(&self, scope: StateScope<'_>, result: RawJson) -> RawJson {
        let members = result.members();
        let is_question =
            members.iter().any(|(name, value)| name == "resultType" && *value == "\"input_required\"");
        let Some(&(_, state)) = members.iter().find(|(name, _)| name == MEMBER).filter(|_| is_question)
        else {
            return result;
        };
        // A state of a suspended request is already bound to its caller.
        if state.starts_with("\"tg1.") {
            return result;
        }
        let sealed = SignedState {
            id: random_id().into(),
            caller: scope.caller.into(),
            request: request_key(scope.method, scope.params),
            expires_at: self.start.elapsed().saturating_add(STATE_TTL).as_secs(),
            state: serde_json::from_str(state).expect("a member of valid JSON is valid JSON"),
        };
        let content = BASE64.encode(serde_json::to_vec(&sealed).unwrap_or_default());
        let signature = BASE64.encode(hmac::sign(&self.key, content.as_bytes()));
        with_request_state(&result, &quoted(&format!("{PREFIX}{content}.{signature}")))
    }

    /// Replaces a signed state in the params by the server's own.
    pub(super) fn verify(&self, scope: StateScope<'_>) -> Result<Option<RawJson>, RpcError> {
        let Some(params) = scope.params else { return Ok(None) };
        // A member name may be written with escapes.
        if !params.as_str().contains(MEMBER) && !params.as_str().contains("\\u") {
            return Ok(Some(params.clone()));
        }
        let members = params.members();
        let Some((_, sealed)) = members.iter().find(|(name, _)| name == MEMBER) else {
            return Ok(Some(params.clone()));
        };
        let invalid = || RpcError::new(RpcError::INVALID_PARAMS, "invalid or expired `requestState`");
        let sealed: String = serde_json::from_str(sealed).map_err(|_| invalid())?;
        let (content, signature) =
            sealed.strip_prefix(PREFIX).and_then(|it| it.split_once('.')).ok_or_else(invalid)?;
        let signature = BASE64.decode(signature).map_err(|_| invalid())?;
        hmac::verify(&self.key, content.as_bytes(), &signature).map_err(|_| invalid())?;
        let content = BASE64.decode(content).map_err(|_| invalid())?;
        let sealed: SignedState<'_> = serde_json::from_slice(&content).map_err(|_| invalid())?;
        let now = self.start.elapsed().as_secs();
        let fits =
            &*sealed.caller == scope.caller && sealed.request == request_key(scope.method, Some(params));
        if !fits || sealed.expires_at <= now || !self.mark_used(sealed.id, sealed.expires_at, now) {
            return Err(invalid());
        }
        Ok(Some(with_request_state(params, sealed.state.get())))
    }

    /// Marks a state as used; returns false if it was used before.
    fn mark_used(&self, id: Box<str>, expires_at: u64, now: u64) -> bool {
        let mut used = self.used.lock();
        while used.order.front().is_some_and(|(expires_at, _)| *expires_at <= now)
            || used.order.len() >= MAX_USED
        {
            let Some((_, oldest)) = used.order.pop_front() else { break };
            used.ids.remove(&oldest);
        }
        if !used.ids.insert(id.clone()) {
            return false;
        }
        used.order.push_back((expires_at, id));
        true
    }
}

/// Returns the object with its `requestState` replaced.
fn with_request_state(object: &RawJson, state: &str) -> RawJson {
    let mut out = String::with_capacity(object.as_str().len() + state.len());
    for (name, value) in object.members() {
        out.push(if out.is_empty() { '{' } else { ',' });
        out.push_str(&quoted(&name));
        out.push(':');
        out.push_str(if name == MEMBER { state } else { value });
    }
    out.push('}');
    RawJson::from_trusted(out)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request<'a>(caller: &'static str, params: &'a RawJson) -> StateScope<'a> {
        StateScope { caller, method: "tools/call", params: Some(params) }
    }

    /// State that the client receives for a question of the server.
    fn sealed(states: &StateSigner, tool: &str) -> Value {
        let params = RawJson::from_value(&json!({ "name": tool }));
        let result = json!({ "resultType": "input_required", "inputRequests": {}, "requestState": "secret" });
        let result: Value =
            states.sign(request("ann", &params), RawJson::from_value(&result)).parse().unwrap();
        assert_ne!(result["requestState"], "secret");
        result["requestState"].clone()
    }

    /// State that the server gets back.
    fn opened(states: &StateSigner, caller: &'static str, tool: &str, state: &Value) -> Result<Value, i64> {
        let params = RawJson::from_value(&json!({ "name": tool, "requestState": state }));
        let opened = states.verify(request(caller, &params)).map_err(|error| error.code)?;
        Ok(opened.unwrap().parse::<Value>().unwrap()["requestState"].clone())
    }

    #[tokio::test(start_paused = true)]
    async fn state_is_valid_once_and_only_for_its_caller() {
        let states = StateSigner::new();
        let state = sealed(&states, "echo");
        let text = state.as_str().unwrap();
        for at in 0..text.len() {
            let mut forged = text.to_owned().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert_eq!(opened(&states, "ann", "echo", &json!(forged)), Err(-32602), "{at}");
        }
        assert_eq!(opened(&states, "bob", "echo", &state), Err(-32602), "another caller");
        assert_eq!(opened(&states, "ann", "other", &state), Err(-32602), "another tool");
        assert_eq!(opened(&StateSigner::new(), "ann", "echo", &state), Err(-32602), "another process");
        for invalid in [json!("secret"), json!("tg2.x"), json!(7), Value::Null] {
            assert_eq!(opened(&states, "ann", "echo", &invalid), Err(-32602), "{invalid}");
        }
        assert_eq!(opened(&states, "ann", "echo", &state), Ok(json!("secret")));
        assert_eq!(opened(&states, "ann", "echo", &state), Err(-32602), "a second time");
    }

    #[tokio::test(start_paused = true)]
    async fn state_expires_after_ten_minutes() {
        let states = StateSigner::new();
        let (early, late) = (sealed(&states, "echo"), sealed(&states, "echo"));
        tokio::time::sleep(STATE_TTL - Duration::from_secs(2)).await;
        assert!(opened(&states, "ann", "echo", &early).is_ok());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(opened(&states, "ann", "echo", &late), Err(-32602));
        assert!(opened(&states, "ann", "echo", &sealed(&states, "echo")).is_ok());
        assert_eq!(states.used.lock().order.len(), 1, "expired states are removed");
    }

    #[tokio::test]
    async fn escaped_member_name_is_recognised() {
        let states = StateSigner::new();
        let params = RawJson::from_trusted(r#"{"name":"echo","request\u0053tate":"secret"}"#.to_owned());
        assert_eq!(states.verify(request("ann", &params)).unwrap_err().code, -32602);
        let other =
            RawJson::from_trusted(r#"{"name":"echo","arguments":{"requestState":"x\u0041"}}"#.to_owned());
        assert_eq!(states.verify(request("ann", &other)).unwrap().unwrap().as_str(), other.as_str());
        let complete = RawJson::from_value(&json!({ "resultType": "complete", "requestState": "x" }));
        assert_eq!(states.sign(request("ann", &other), complete.clone()).as_str(), complete.as_str());
    }
}
