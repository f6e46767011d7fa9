//! Issuers of JWTs that authenticate callers, and the permissions their scopes grant.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::caller::{GroupName, PermissionPattern};
use crate::{HumanDuration, Secret};

/// An entry of `serve.jwt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenIssuer {
    /// Exact value of the claim `iss`.
    pub issuer: String,
    /// Accepted audiences. The claim `aud` must contain one of them.
    pub audience: Vec<String>,
    /// Accepted signature algorithms.
    pub algorithms: Vec<SigningAlgorithm>,
    /// Source of the issuer's public keys.
    pub keys: KeySource,
    /// Tolerated clock skew.
    pub leeway: HumanDuration,
    /// Claim that holds the caller ID.
    pub caller_claim: String,
    /// Prefix of the caller ID, so that a token cannot claim the ID of a caller from another source.
    pub caller_prefix: String,
    /// Claim that holds the scopes.
    pub scope_claim: String,
    /// Permissions granted per scope. Scopes that are not listed grant nothing.
    pub scopes: BTreeMap<String, Vec<PermissionPattern>>,
    /// Claim that holds the groups. Without it, tokens name no groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups_claim: Option<String>,
    /// Group of each value of that claim. Values that are not listed name no group.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, GroupName>,
    /// Claim that names the person, for the execution log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person_claim: Option<String>,
    /// Login of people to the console. Without it, the console offers none at this issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<IssuerLogin>,
}

/// Login of people in a browser: the gateway is a client of the issuer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IssuerLogin {
    /// Label of the login.
    pub label: String,
    pub client_id: String,
    /// Secret of the client. A public client has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Secret>,
    /// Scopes that a login asks for, besides `openid`.
    pub scopes: Vec<String>,
}

impl Eq for IssuerLogin {}

/// Source of an issuer's public keys (JWKS).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// JWKS file.
    File(PathBuf),
    /// JWKS URL.
    #[serde(rename = "address")]
    Url(String),
    /// `jwks_uri` of the issuer's own metadata.
    Discovery,
}

/// Signature algorithm of a token, named as in RFC 7518. Only asymmetric ones: with a shared secret (HMAC), anyone
/// who can verify tokens could forge them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum SigningAlgorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

impl SigningAlgorithm {
    /// Algorithms accepted by default.
    pub const DEFAULT: [Self; 5] = [Self::RS256, Self::PS256, Self::ES256, Self::ES384, Self::EdDSA];
    pub const ALL: [Self; 9] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::EdDSA,
    ];

    /// Value of `alg` in the token header.
    pub fn name(self) -> &'static str {
        match self {
            Self::RS256 => "RS256",
            Self::RS384 => "RS384",
            Self::RS512 => "RS512",
            Self::PS256 => "PS256",
            Self::PS384 => "PS384",
            Self::PS512 => "PS512",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::EdDSA => "EdDSA",
        }
    }
}
