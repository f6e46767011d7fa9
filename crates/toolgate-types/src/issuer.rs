//! Issuers of tokens: whose word counts at the door, and what it gives.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::HumanDuration;
use crate::caller::PermissionPattern;

/// An entry of `serve.jwt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Issuer {
    /// What its tokens have as `iss`, to the letter.
    pub issuer: String,
    /// For whom tokens must be; one of these must be in `aud`.
    pub audience: Vec<String>,
    /// How they may be signed.
    pub algorithms: Vec<Algorithm>,
    /// Where its keys are.
    pub keys: KeySource,
    /// How far its clock may be from ours.
    pub leeway: HumanDuration,
    /// The claim that says who the caller is.
    pub caller_claim: String,
    /// What is put before it, so that nobody gets the id of somebody else.
    pub caller_prefix: String,
    /// The claim that holds scopes.
    pub scope_claim: String,
    /// What a scope gives. One that is not here gives nothing.
    pub scopes: BTreeMap<String, Vec<PermissionPattern>>,
}

/// Where the keys of an issuer are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySource {
    /// In a file.
    File(PathBuf),
    /// At an address.
    Address(String),
    /// Where its own metadata says.
    Discovery,
}

/// How a token may be signed: with a key that only the issuer has. Secrets that both sides share are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "their names are those of RFC 7518")]
pub enum Algorithm {
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

impl Algorithm {
    /// Those that count where nothing is said.
    pub const USUAL: [Self; 5] = [Self::RS256, Self::PS256, Self::ES256, Self::ES384, Self::EdDSA];
    /// All of them.
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

    /// Its name in the head of a token.
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
