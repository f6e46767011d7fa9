//! Verification of JSON Web Tokens.
//!
//! Invariant: a token only selects among values that the configuration allows. Its algorithm is one of the issuer's,
//! its key is one the issuer publishes, its audience is this gateway, and its validity period includes now.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tokio::time::Instant;
use toolgate_types::caller::PermissionPattern;
use toolgate_types::issuer::{SigningAlgorithm, TokenIssuer};
use toolgate_types::{CallerId, GroupName, KeyHash};

use super::jwks::{JwksError, KeySet, VerificationKey};
use super::oidc::LoginProvider;

/// Maximum length of a token.
const MAX_TOKEN_BYTES: usize = 8 << 10;
/// Maximum time a stream stays open without a new token.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Keys tried for a token without a key id.
const MAX_KEYS_TRIED: usize = 8;
/// Values of a groups claim.
const MAX_GROUP_VALUES: usize = 500;
/// Bytes of the name of a person that are recorded.
const MAX_PERSON_BYTES: usize = 256;

/// Caller of a verified token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TokenIdentity {
    pub(super) id: CallerId,
    pub(super) permissions: Vec<PermissionPattern>,
    /// Groups that the configuration maps from its claims.
    pub(super) groups: Vec<GroupName>,
    pub(super) person: Option<Arc<str>>,
    /// Issuer of the token, as it was trusted.
    pub(super) issuer: Arc<TokenIssuer>,
    /// Remaining validity of the token.
    pub(super) valid_for: Duration,
}

/// Error of a rejected token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenError {
    /// The token is invalid, with the reason.
    Invalid(&'static str),
    /// The token could not be verified, because the issuer's keys are unavailable.
    KeysUnavailable,
}

/// Verifies tokens of the configured issuers.
pub(super) struct TokenVerifier(Vec<TrustedIssuer>);

struct TrustedIssuer {
    issuer: Arc<TokenIssuer>,
    keys: Arc<KeySet>,
    /// Login of people, if the configuration has one.
    login: Option<Arc<LoginProvider>>,
}

/// The relevant members of a token header. `jku`, `x5u` and `jwk` are ignored: keys come from the configuration only.
#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    cty: Option<Json>,
    crit: Option<Json>,
    zip: Option<Json>,
    enc: Option<Json>,
}

#[derive(Deserialize)]
struct UnverifiedClaims {
    iss: String,
}

/// Returns true if a string has the form of a JWT.
pub(super) fn looks_like_jwt(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() >= 2
}

impl TokenVerifier {
    /// Trusts these issuers. The keys of an issuer that was trusted before are kept.
    pub(super) fn new(issuers: &[TokenIssuer], before: Option<&Self>) -> Result<Self, JwksError> {
        let trusted = |issuer: &TokenIssuer| {
            let has_same_keys = |before: &&TrustedIssuer| {
                before.issuer.issuer == issuer.issuer && before.issuer.keys == issuer.keys
            };
            let known = before.and_then(|before| before.0.iter().find(has_same_keys));
            let keys = match known {
                Some(known) => Arc::clone(&known.keys),
                None => Arc::new(KeySet::new(&issuer.issuer, issuer.keys.clone())?),
            };
            let same = known.filter(|known| *known.issuer == *issuer).and_then(|known| known.login.clone());
            let login = match (same, &issuer.login) {
                (Some(same), _) => Some(same),
                (None, Some(login)) => Some(Arc::new(LoginProvider::new(&issuer.issuer, login.clone())?)),
                (None, None) => None,
            };
            Ok(TrustedIssuer { keys, login, issuer: Arc::new(issuer.clone()) })
        };
        issuers.iter().map(trusted).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn issuers(&self) -> impl Iterator<Item = &TokenIssuer> {
        self.0.iter().map(|trusted| &*trusted.issuer)
    }

    /// The issuers that people can log in with, and the labels of these logins.
    pub(super) fn login_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter_map(|trusted| trusted.login.as_deref())
            .map(|login| (login.issuer(), login.label()))
    }

    pub(super) fn login_provider(&self, issuer: &str) -> Option<&Arc<LoginProvider>> {
        self.0.iter().find(|trusted| trusted.issuer.issuer == issuer)?.login.as_ref()
    }

    /// Returns the caller of a session that began with a token. Permissions and groups are those that the configuration
    /// of now gives to its claims.
    pub(super) fn session_identity(&self, session: &TokenSession) -> Option<TokenIdentity> {
        let trusted = self.0.iter().find(|trusted| trusted.issuer.issuer == session.issuer)?;
        trusted.login.as_ref()?;
        let identity = identity_from_claims(&trusted.issuer, &session.claims).ok()?;
        (!identity.valid_for.is_zero()).then_some(identity)
    }

    /// Verifies the ID token of a login: it is for this client, and for the browser that began with this nonce.
    pub(super) async fn verify_id_token(
        &self,
        token: &str,
        provider: &LoginProvider,
        nonce: &str,
        now: Instant,
    ) -> Result<(), TokenError> {
        let (issuer, claims) = self.verified_claims(token, Some(provider.client_id()), now).await?;
        let text = |name: &str| claims.get(name).and_then(Json::as_str);
        if issuer.issuer != provider.issuer() {
            return Err(TokenError::Invalid("the ID token is of another issuer"));
        }
        let is_for_us = text("azp").is_none_or(|party| party == provider.client_id());
        if !is_for_us {
            return Err(TokenError::Invalid("the ID token is for another client"));
        }
        let same = |sent: &str| verify_slices_are_equal(sent.as_bytes(), nonce.as_bytes()).is_ok();
        if !text("nonce").is_some_and(same) {
            return Err(TokenError::Invalid("the ID token is for another login"));
        }
        Ok(())
    }

    /// Verifies the access token of a login, and returns the session that it begins.
    pub(super) async fn verify_for_session(
        &self,
        token: &str,
        issuer: &str,
        now: Instant,
    ) -> Result<(TokenIdentity, TokenSession), TokenError> {
        let (trusted, claims) = self.verified_claims(token, None, now).await?;
        if trusted.issuer != issuer {
            return Err(TokenError::Invalid("the access token is of another issuer"));
        }
        let identity = identity_from_claims(&trusted, &claims)?;
        Ok((identity, TokenSession { issuer: issuer.to_owned(), claims: session_claims(&trusted, &claims) }))
    }

    /// Verifies a token and returns its caller.
    pub(super) async fn verify(&self, token: &str, now: Instant) -> Result<TokenIdentity, TokenError> {
        let (issuer, claims) = self.verified_claims(token, None, now).await?;
        identity_from_claims(&issuer, &claims)
    }

    /// Returns the claims of a token with a valid signature, time and audience: one of the configuration, or the given.
    async fn verified_claims(
        &self,
        token: &str,
        audience: Option<&str>,
        now: Instant,
    ) -> Result<(Arc<TokenIssuer>, Map<String, Json>), TokenError> {
        use TokenError::Invalid;
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Invalid("the token is too long"));
        }
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(_), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Invalid("the token is not a signed JWT"));
        };
        let header: TokenHeader = decode_segment(header).ok_or(Invalid("the token header is malformed"))?;
        let token_type =
            header.typ.as_deref().map(|typ| typ.trim_start_matches("application/").to_ascii_lowercase());
        let plain =
            header.cty.is_none() && header.crit.is_none() && header.zip.is_none() && header.enc.is_none();
        if !plain || token_type.is_some_and(|token_type| token_type != "jwt" && token_type != "at+jwt") {
            return Err(Invalid("the token type is not supported"));
        }
        let UnverifiedClaims { iss } =
            decode_segment(claims).ok_or(Invalid("the token has no `iss` claim"))?;
        let trusted = self.0.iter().find(|trusted| trusted.issuer.issuer == iss);
        let TrustedIssuer { issuer, keys, .. } = trusted.ok_or(Invalid("the token issuer is unknown"))?;
        let algorithm = issuer.algorithms.iter().find(|algorithm| algorithm.name() == header.alg);
        let algorithm = *algorithm.ok_or(Invalid("the token algorithm is not allowed"))?;
        let cached = keys.keys(now).await.ok_or(TokenError::KeysUnavailable)?;
        let usable = |key: &&VerificationKey| {
            key.supports(algorithm) && (header.kid.is_none() || header.kid == key.id)
        };
        let claims = if cached.iter().any(|key| usable(&key)) {
            verify_claims(token, issuer, audience, algorithm, cached.iter().filter(usable))?
        } else {
            let refreshed = keys.refresh(now).await;
            verify_claims(token, issuer, audience, algorithm, refreshed.iter().filter(usable))?
        };
        Ok((Arc::clone(issuer), claims))
    }
}

/// Decodes one segment of a token as JSON.
fn decode_segment<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

/// Returns the claims if one of the keys made the signature, and all registered claims are valid.
fn verify_claims<'k>(
    token: &str,
    issuer: &TokenIssuer,
    audience: Option<&str>,
    algorithm: SigningAlgorithm,
    keys: impl Iterator<Item = &'k VerificationKey>,
) -> Result<Map<String, Json>, TokenError> {
    let named =
        algorithm.name().parse().map_err(|_| TokenError::Invalid("the token algorithm is unknown"))?;
    let mut validation = Validation::new(named);
    validation.leeway = issuer.leeway.get().as_secs();
    validation.validate_nbf = true;
    match audience {
        Some(audience) => validation.set_audience(&[audience]),
        None => validation.set_audience(&issuer.audience),
    }
    validation.set_issuer(&[&issuer.issuer]);
    validation.required_spec_claims = HashSet::from(["exp", "iss", "aud"].map(ToOwned::to_owned));
    let mut rejection = TokenError::Invalid("the token is signed with an unknown key");
    for key in keys.take(MAX_KEYS_TRIED) {
        match decode::<Map<String, Json>>(token, &key.decoding, &validation) {
            Ok(data) => return Ok(data.claims),
            Err(error) => {
                rejection = TokenError::Invalid(match error.kind() {
                    ErrorKind::ExpiredSignature => "the token has expired",
                    ErrorKind::ImmatureSignature => "the token is not valid yet",
                    ErrorKind::InvalidAudience => "the token is for another audience",
                    ErrorKind::MissingRequiredClaim(_) => "the token lacks `exp`, `iss` or `aud`",
                    ErrorKind::InvalidSignature => "the token signature is invalid",
                    _ => "the token is not valid",
                });
                if !matches!(error.kind(), ErrorKind::InvalidSignature) {
                    break;
                }
            }
        }
    }
    Err(rejection)
}

/// A session of a person that logged in with a token: its issuer, and the claims that make the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenSession {
    issuer: String,
    claims: Map<String, Json>,
}

impl TokenSession {
    /// Hash that all sessions of one caller of one issuer share.
    pub(crate) fn hash(&self) -> KeyHash {
        let claims: Vec<_> = self.claims.iter().filter(|(name, _)| *name != "exp").collect();
        KeyHash::of(&format!("{} {}", self.issuer, serde_json::json!(claims)))
    }
}

/// The claims that make a caller, without the values that the configuration gives no meaning to.
fn session_claims(issuer: &TokenIssuer, claims: &Map<String, Json>) -> Map<String, Json> {
    let known = |claim: &str, is_known: &dyn Fn(&str) -> bool| {
        let values: Vec<&str> = match claims.get(claim)? {
            Json::String(text) if claim == issuer.scope_claim => text.split(' ').collect(),
            Json::String(text) => vec![text],
            Json::Array(values) => values.iter().filter_map(Json::as_str).collect(),
            _ => Vec::new(),
        };
        Some(values.into_iter().filter(|value| is_known(value)).map(Json::from).collect())
    };
    let mut kept = Map::new();
    let whole = [Some(&issuer.caller_claim), issuer.person_claim.as_ref()];
    for name in whole.into_iter().flatten().map(String::as_str).chain(["exp"]) {
        kept.extend(claims.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    let scopes = known(&issuer.scope_claim, &|scope| issuer.scopes.contains_key(scope));
    kept.extend(scopes.map(|scopes| (issuer.scope_claim.clone(), scopes)));
    if let Some(claim) = &issuer.groups_claim {
        let groups = known(claim, &|group| issuer.groups.contains_key(group));
        kept.extend(groups.map(|groups| (claim.clone(), groups)));
    }
    kept
}

/// Maps claims to a caller id and to the permissions of its scopes.
fn identity_from_claims(
    issuer: &Arc<TokenIssuer>,
    claims: &Map<String, Json>,
) -> Result<TokenIdentity, TokenError> {
    let Some(Json::String(subject)) = claims.get(&issuer.caller_claim).filter(|subject| **subject != "")
    else {
        return Err(TokenError::Invalid("the token has no caller claim"));
    };
    let id = format!("{}{}", issuer.caller_prefix, escape_id(subject));
    let id = id.parse().map_err(|_| TokenError::Invalid("the caller claim of the token is too long"))?;
    let scopes: Vec<&str> = match claims.get(&issuer.scope_claim) {
        Some(Json::String(scopes)) => scopes.split(' ').collect(),
        Some(Json::Array(scopes)) => scopes.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    };
    let granted = scopes.iter().filter_map(|scope| issuer.scopes.get(*scope)).flatten();
    let mut permissions: Vec<PermissionPattern> = Vec::new();
    for permission in granted {
        if !permissions.contains(permission) {
            permissions.push(permission.clone());
        }
    }
    let groups = groups_from_claims(issuer, claims)?;
    let person = issuer.person_claim.as_ref().and_then(|claim| claims.get(claim)?.as_str());
    let person = person.filter(|person| !person.is_empty());
    let person = person.map(|person| person[..person.floor_char_boundary(MAX_PERSON_BYTES)].into());
    let expires = claims.get("exp").and_then(Json::as_f64).unwrap_or_default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let remaining = expires + issuer.leeway.get().as_secs_f64() - now.as_secs_f64();
    let valid_for = Duration::from_secs_f64(remaining.clamp(0.0, MAX_LIFETIME.as_secs_f64()));
    Ok(TokenIdentity { id, permissions, groups, person, issuer: Arc::clone(issuer), valid_for })
}

/// Maps the groups claim to groups. A claim that cannot be read in full rejects the token: a rule may forbid something
/// to the members of a group.
fn groups_from_claims(
    issuer: &TokenIssuer,
    claims: &Map<String, Json>,
) -> Result<Vec<GroupName>, TokenError> {
    let Some(claim) = issuer.groups_claim.as_ref().and_then(|claim| claims.get(claim)) else {
        return Ok(Vec::new());
    };
    let unusable = TokenError::Invalid("the groups claim of the token is not a string or a list of strings");
    let values: Vec<&str> = match claim {
        Json::Null => Vec::new(),
        Json::String(value) => vec![value],
        Json::Array(values) if values.len() > MAX_GROUP_VALUES => {
            return Err(TokenError::Invalid("the groups claim of the token has too many values"));
        }
        Json::Array(values) => values.iter().map(Json::as_str).collect::<Option<_>>().ok_or(unusable)?,
        _ => return Err(unusable),
    };
    let mut groups: Vec<_> = values.iter().filter_map(|value| issuer.groups.get(*value)).cloned().collect();
    groups.sort();
    groups.dedup();
    Ok(groups)
}

/// Escapes a subject for use in a caller id. Bytes outside the id alphabet, and `/`, become `/` and two hex digits, so
/// that different subjects never get the same id.
fn escape_id(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'@' | b':' => {
            char::from(byte).to_string()
        }
        other => format!("/{other:02X}"),
    };
    name.bytes().map(byte).collect()
}

#[test]
fn escaped_ids_stay_distinct() {
    assert_eq!(escape_id("ann@example.com"), "ann@example.com");
    assert_eq!((escape_id("auth0|7"), escape_id("auth0/7C7")), ("auth0/7C7".into(), "auth0/2F7C7".into()));
    assert_eq!(escape_id("ä"), "/C3/A4");
}

#[test]
fn tokens_name_only_groups_of_the_mapping() {
    let group = |value: &str, name: &str| (value.to_owned(), name.parse::<GroupName>().unwrap());
    let issuer = TokenIssuer {
        issuer: "https://id.test".to_owned(),
        audience: Vec::new(),
        algorithms: Vec::new(),
        keys: toolgate_types::issuer::KeySource::Discovery,
        leeway: toolgate_types::HumanDuration::from_secs(1),
        caller_claim: "sub".to_owned(),
        caller_prefix: "id:".to_owned(),
        scope_claim: "scope".to_owned(),
        scopes: Default::default(),
        groups_claim: Some("roles".to_owned()),
        groups: [group("platform", "ops"), group("7f3c", "dev"), group("sre", "ops")].into(),
        person_claim: Some("email".to_owned()),
        login: None,
    };
    let identity = |roles: Json| {
        let claims = serde_json::json!({ "sub": "ann", "email": "ann@example.com", "roles": roles });
        identity_from_claims(&Arc::new(issuer.clone()), claims.as_object().unwrap())
    };
    // A session keeps the claims that make the caller, and no others.
    let claims = serde_json::json!({
        "sub": "ann", "email": "ann@example.com", "roles": ["platform", "other"], "scope": "a b", "exp": 4e9, "picture": "x" });
    let kept = session_claims(&issuer, claims.as_object().unwrap());
    assert_eq!(
        Json::Object(kept.clone()),
        serde_json::json!({ "sub": "ann", "email": "ann@example.com", "exp": 4e9, "scope": [], "roles": ["platform"] })
    );
    let (whole, session) =
        (claims.as_object().unwrap(), identity_from_claims(&Arc::new(issuer.clone()), &kept).unwrap());
    let identity_of = |claims| identity_from_claims(&Arc::new(issuer.clone()), claims).unwrap();
    assert_eq!((&session.id, &session.groups), (&identity_of(whole).id, &identity_of(whole).groups));
    let names = |roles: Json| {
        let groups = identity(roles).unwrap().groups;
        groups.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // The name of a group is not a value of the claim.
    assert_eq!(names(serde_json::json!(["platform", "ops", "owner", "sre", "*"])), ["ops"]);
    assert_eq!(names(serde_json::json!("7f3c")), ["dev"]);
    assert_eq!(names(serde_json::json!("7f3c platform")), [""; 0]);
    assert_eq!(names(Json::Null), [""; 0]);
    assert_eq!(identity(Json::Null).unwrap().person.as_deref(), Some("ann@example.com"));
    for bad in [serde_json::json!(7), serde_json::json!({ "platform": true }), serde_json::json!(["sre", 7])]
    {
        assert!(identity(bad.clone()).is_err(), "{bad}");
    }
    assert!(identity(serde_json::json!(vec!["x"; MAX_GROUP_VALUES])).is_ok());
    assert!(identity(serde_json::json!(vec!["x"; MAX_GROUP_VALUES + 1])).is_err());
}

#[test]
fn scopes_grant_only_what_is_mapped() {
    let pattern = |text: &str| text.parse::<PermissionPattern>().unwrap();
    let scopes = [("mail", vec![pattern("mail:read")]), ("all", vec![pattern("mail:read"), pattern("s:*")])];
    let issuer = |claim: &str| TokenIssuer {
        issuer: "https://id.test".to_owned(),
        audience: Vec::new(),
        algorithms: Vec::new(),
        keys: toolgate_types::issuer::KeySource::Discovery,
        leeway: toolgate_types::HumanDuration::from_secs(1),
        caller_claim: "sub".to_owned(),
        caller_prefix: "id:".to_owned(),
        scope_claim: claim.to_owned(),
        scopes: scopes.iter().map(|(scope, gives)| ((*scope).to_owned(), gives.clone())).collect(),
        groups_claim: None,
        groups: Default::default(),
        person_claim: None,
        login: None,
    };
    let claims = serde_json::json!({ "sub": "ann", "scope": "mail all *:*", "scp": ["mail"], "n": 7 });
    let claims = claims.as_object().unwrap();
    let granted = |claim: &str| identity_from_claims(&Arc::new(issuer(claim)), claims).unwrap().permissions;
    assert_eq!(granted("scope"), [pattern("mail:read"), pattern("s:*")]);
    assert_eq!((granted("scp"), granted("n"), granted("none")), (vec![pattern("mail:read")], vec![], vec![]));
    assert_eq!(identity_from_claims(&Arc::new(issuer("scope")), claims).unwrap().id.as_str(), "id:ann");
    let numeric_claim = TokenIssuer { caller_claim: "n".to_owned(), ..issuer("scope") };
    assert!(
        identity_from_claims(&Arc::new(numeric_claim), claims).is_err(),
        "a number is not a caller claim"
    );
}
