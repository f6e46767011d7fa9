//! Tokens: who somebody is by the word of an issuer.
//!
//! Invariant: what a token says of itself chooses among what the configuration allows, and adds nothing: its algorithm
//! is one of the issuer's, its key one of those that the issuer shows, its audience is ours, and it is in its time.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode};
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use tokio::time::Instant;
use toolgate_types::CallerId;
use toolgate_types::caller::PermissionPattern;
use toolgate_types::issuer::{Algorithm, Issuer};

use super::jwks::{Key, KeySet, KeysError};

/// The longest token.
const LONGEST: usize = 8 << 10;
/// How long anybody stays without showing a token again.
const LONGEST_STAY: Duration = Duration::from_secs(24 * 3600);
/// Keys that a token without the id of one is tried with.
const MOST_TRIES: usize = 8;

/// What a token says, once it is believed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) id: CallerId,
    pub(super) permissions: Vec<PermissionPattern>,
    /// How long it is believed.
    pub(super) lasts: Duration,
}

/// Why a token is not believed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    /// It is wrong, for this reason.
    Wrong(&'static str),
    /// It cannot be told.
    NoKeys,
}

/// The issuers whose tokens count.
pub(super) struct Tokens(Vec<Trusted>);

struct Trusted {
    rules: Issuer,
    keys: KeySet,
}

/// The head of a token, as far as it counts. Where keys are to be found is said by nobody but the configuration.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    cty: Option<Json>,
    crit: Option<Json>,
    zip: Option<Json>,
    enc: Option<Json>,
}

#[derive(Deserialize)]
struct Unverified {
    iss: String,
}

/// Whether a text has the form of a token.
pub(super) fn looks_like_one(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() >= 2
}

impl Tokens {
    pub(super) fn new(issuers: &[Issuer]) -> Result<Self, KeysError> {
        let trusted = |rules: &Issuer| {
            Ok(Trusted { keys: KeySet::new(&rules.issuer, rules.keys.clone())?, rules: rules.clone() })
        };
        issuers.iter().map(trusted).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn issuers(&self) -> impl Iterator<Item = &Issuer> {
        self.0.iter().map(|trusted| &trusted.rules)
    }

    /// Who the token is about.
    pub(super) async fn verify(&self, token: &str, now: Instant) -> Result<Claimed, Rejected> {
        use Rejected::Wrong;
        if token.len() > LONGEST {
            return Err(Wrong("the token is too long"));
        }
        let mut parts = token.split('.');
        let (Some(head), Some(claims), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Wrong("the token is not one that is signed"));
        };
        let head: Head = part(head).ok_or(Wrong("the head of the token cannot be read"))?;
        let kind = head.typ.as_deref().map(|typ| typ.trim_start_matches("application/").to_ascii_lowercase());
        let plain = head.cty.is_none() && head.crit.is_none() && head.zip.is_none() && head.enc.is_none();
        if !plain || kind.is_some_and(|kind| kind != "jwt" && kind != "at+jwt") {
            return Err(Wrong("the token is of a kind that is not taken"));
        }
        let Unverified { iss } = part(claims).ok_or(Wrong("the token does not say who issued it"))?;
        let trusted = self.0.iter().find(|trusted| trusted.rules.issuer == iss);
        let Trusted { rules, keys } = trusted.ok_or(Wrong("the issuer of the token is not known"))?;
        let algorithm = rules.algorithms.iter().find(|algorithm| algorithm.name() == head.alg);
        let algorithm = *algorithm.ok_or(Wrong("the token is signed in a way that is not taken"))?;
        let known = keys.keys(now).await.ok_or(Rejected::NoKeys)?;
        let wanted = |key: &&Key| key.fits(algorithm) && (head.kid.is_none() || head.kid == key.id);
        let claims = if known.iter().any(|key| wanted(&key)) {
            checked(token, rules, algorithm, known.iter().filter(wanted))?
        } else {
            let newer = keys.newer(now).await;
            checked(token, rules, algorithm, newer.iter().filter(wanted))?
        };
        claimed(rules, &claims)
    }
}

/// A part of a token as JSON.
fn part<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

/// The claims, if one of the keys made the signature and all of them are as they should be.
fn checked<'k>(
    token: &str,
    rules: &Issuer,
    algorithm: Algorithm,
    keys: impl Iterator<Item = &'k Key>,
) -> Result<Map<String, Json>, Rejected> {
    let named = algorithm.name().parse().map_err(|_| Rejected::Wrong("the algorithm is not known"))?;
    let mut validation = Validation::new(named);
    validation.leeway = rules.leeway.get().as_secs();
    validation.validate_nbf = true;
    validation.set_audience(&rules.audience);
    validation.set_issuer(&[&rules.issuer]);
    validation.required_spec_claims = HashSet::from(["exp", "iss", "aud"].map(ToOwned::to_owned));
    let mut wrong = Rejected::Wrong("the key that signed the token is not one of its issuer");
    for key in keys.take(MOST_TRIES) {
        match decode::<Map<String, Json>>(token, &key.decoding, &validation) {
            Ok(data) => return Ok(data.claims),
            Err(error) => {
                wrong = Rejected::Wrong(match error.kind() {
                    ErrorKind::ExpiredSignature => "the token has expired",
                    ErrorKind::ImmatureSignature => "the token is not valid yet",
                    ErrorKind::InvalidAudience => "the token is for somebody else",
                    ErrorKind::MissingRequiredClaim(_) => "the token lacks `exp`, `iss` or `aud`",
                    ErrorKind::InvalidSignature => "the signature of the token is wrong",
                    _ => "the token is not valid",
                });
                if !matches!(error.kind(), ErrorKind::InvalidSignature) {
                    break;
                }
            }
        }
    }
    Err(wrong)
}

/// Who it is, and what its scopes give.
fn claimed(rules: &Issuer, claims: &Map<String, Json>) -> Result<Claimed, Rejected> {
    let Some(Json::String(who)) = claims.get(&rules.caller_claim).filter(|who| **who != "") else {
        return Err(Rejected::Wrong("the token does not say who it is about"));
    };
    let id = format!("{}{}", rules.caller_prefix, escaped(who));
    let id = id.parse().map_err(|_| Rejected::Wrong("the token is about somebody whose name is too long"))?;
    let scopes: Vec<&str> = match claims.get(&rules.scope_claim) {
        Some(Json::String(scopes)) => scopes.split(' ').collect(),
        Some(Json::Array(scopes)) => scopes.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    };
    let given = scopes.iter().filter_map(|scope| rules.scopes.get(*scope)).flatten();
    let mut permissions: Vec<PermissionPattern> = Vec::new();
    for permission in given {
        if !permissions.contains(permission) {
            permissions.push(permission.clone());
        }
    }
    let expires = claims.get("exp").and_then(Json::as_f64).unwrap_or_default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let left = expires + rules.leeway.get().as_secs_f64() - now.as_secs_f64();
    let lasts = Duration::from_secs_f64(left.clamp(0.0, LONGEST_STAY.as_secs_f64()));
    Ok(Claimed { id, permissions, lasts })
}

/// A name as a part of an id. What an id cannot hold, and `/`, is `/` and two digits: two names never become one.
fn escaped(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'@' | b':' => {
            char::from(byte).to_string()
        }
        other => format!("/{other:02X}"),
    };
    name.bytes().map(byte).collect()
}

#[test]
fn two_names_never_become_one_id() {
    assert_eq!(escaped("ann@example.com"), "ann@example.com");
    assert_eq!((escaped("auth0|7"), escaped("auth0/7C7")), ("auth0/7C7".into(), "auth0/2F7C7".into()));
    assert_eq!(escaped("ä"), "/C3/A4");
}

#[test]
fn scopes_give_what_is_mapped_and_nothing_else() {
    let pattern = |text: &str| text.parse::<PermissionPattern>().unwrap();
    let scopes = [("mail", vec![pattern("mail:read")]), ("all", vec![pattern("mail:read"), pattern("s:*")])];
    let rules = |claim: &str| Issuer {
        issuer: "https://id.test".to_owned(),
        audience: Vec::new(),
        algorithms: Vec::new(),
        keys: toolgate_types::issuer::KeySource::Discovery,
        leeway: toolgate_types::HumanDuration::from_secs(1),
        caller_claim: "sub".to_owned(),
        caller_prefix: "id:".to_owned(),
        scope_claim: claim.to_owned(),
        scopes: scopes.iter().map(|(scope, gives)| ((*scope).to_owned(), gives.clone())).collect(),
    };
    let claims = serde_json::json!({ "sub": "ann", "scope": "mail all *:*", "scp": ["mail"], "n": 7 });
    let claims = claims.as_object().unwrap();
    let given = |claim: &str| claimed(&rules(claim), claims).unwrap().permissions;
    assert_eq!(given("scope"), [pattern("mail:read"), pattern("s:*")]);
    assert_eq!((given("scp"), given("n"), given("none")), (vec![pattern("mail:read")], vec![], vec![]));
    assert_eq!(claimed(&rules("scope"), claims).unwrap().id.as_str(), "id:ann");
    let nobody = Issuer { caller_claim: "n".to_owned(), ..rules("scope") };
    assert!(claimed(&nobody, claims).is_err(), "a number is nobody's name");
}
