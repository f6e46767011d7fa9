//! What `serve` holds, and by what its callers are known.

use std::num::NonZeroU32;

use toolgate_types::caller::PermissionPattern;
use toolgate_types::{HumanDuration, KeyHash, Text};

use crate::keys::{At, Named, choice, keys};

keys! {
    /// TLS of the door, as files in PEM. Paths start at the project folder. A file that is replaced is used
    /// from the next connection on, without a restart; connections that are open go on.
    struct DoorTlsFile as "serve tls" {
        /// The certificate, with those between it and its authority.
        cert: Text; required,
        /// The private key of `cert`; it may be in the same file.
        key: Text; required,
        /// The authorities whose certificates callers may show.
        client_ca: Text,
        /// Whether callers must show a certificate of `client_ca`.
        client_certificate: ClientCertificateName = "required",
    }
}

choice! {
    /// Whether callers must show a certificate.
    enum ClientCertificateName as "whether a certificate is needed" {
        /// No connection without one.
        Required = "required",
        /// Whoever shows none needs a key.
        Optional = "optional",
    }
}

keys! {
    /// A certificate, by what is in it. All that is said must fit.
    struct CertificateFile as "certificate" {
        /// A name in it: that of a host, or a URI such as `spiffe://example.com/ci`.
        san: String,
        /// The SHA-256 of the whole, as 64 hexadecimal digits, with colons or without: `openssl x509 -noout
        /// -fingerprint -sha256 -in FILE`.
        sha256: Fingerprint,
    }
}

keys! {
    /// An issuer of tokens, such as an OpenID Connect provider. Its keys come from `jwks_file`, from `jwks_uri`,
    /// or, without either, from where its own metadata says that they are.
    struct JwtFile as "token issuer" {
        /// What its tokens have as `iss`, to the letter: an `https://` address, or `http://` on this machine.
        issuer: Text; required,
        /// For whom a token must be: its `aud` must hold one of these. It is the name of this door alone.
        audience: Vec<At<String>>; required,
        /// How tokens may be signed. Secrets that both sides share, and `none`, are never taken.
        algorithms: Vec<At<AlgorithmName>> = "[RS256, PS256, ES256, ES384, EdDSA]",
        /// Where its keys are, as a JWK set.
        jwks_uri: Text,
        /// A file with its keys, as a JWK set. One that is replaced counts a second later.
        jwks_file: Text,
        /// How far its clock may be from ours.
        leeway: HumanDuration = "30s",
        /// The claim that says who the caller is.
        caller_claim: String = "sub",
        /// What is put before it to make the caller's id. Without this key it is the host of the issuer and `:`.
        caller_prefix: String,
        /// The claim that holds scopes, as a text or a list.
        scope_claim: String = "scope",
        /// What a scope gives, as permissions. A scope that is not here gives nothing, and a caller that
        /// `callers` names has what it is given there, whatever its scopes are.
        scopes: Named<Vec<At<PermissionPattern>>>,
    }
}

choice! {
    /// How a token is signed.
    enum AlgorithmName as "an algorithm" {
        /// RSA.
        Rs256 = "RS256",
        /// RSA.
        Rs384 = "RS384",
        /// RSA.
        Rs512 = "RS512",
        /// RSA.
        Ps256 = "PS256",
        /// RSA.
        Ps384 = "PS384",
        /// RSA.
        Ps512 = "PS512",
        /// The curve P-256.
        Es256 = "ES256",
        /// The curve P-384.
        Es384 = "ES384",
        /// The curve Ed25519.
        EdDsa = "EdDSA",
    }
}

choice! {
    /// From where one may come without saying who one is.
    enum AnonymousName as "where `anonymous` may come from" {
        /// This machine, and not through a proxy.
        Loopback = "loopback",
        /// Anywhere.
        Everywhere = "everywhere",
    }
}

keys! {
    /// How many requests there may be in a window, whatever they ask for. Who is over it is answered with 429.
    struct DoorRateFile as "serve rate_limit" {
        /// From one address, or one network of IPv6 (/64).
        per_address: NonZeroU32,
        /// By one caller.
        per_caller: NonZeroU32,
        /// The length of the window.
        window: HumanDuration = "1m",
    }
}

/// The SHA-256 of a certificate, as people have it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fingerprint(pub(crate) KeyHash);

impl std::str::FromStr for Fingerprint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "it has 64 hexadecimal digits, with colons or without";
        text.replace(':', "").parse().map(Self).map_err(|_| wrong)
    }
}
