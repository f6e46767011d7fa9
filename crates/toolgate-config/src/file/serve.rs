//! Keys of `serve`: TLS, client certificates, token issuers and rate limits.

use std::num::NonZeroU32;

use toolgate_types::caller::PermissionPattern;
use toolgate_types::{ConfigString, HumanDuration, KeyHash};

use crate::keys::{NamedMap, Spanned, choice, keys};

keys! {
    /// TLS of the gateway, as PEM files. Paths are relative to the project folder. Replaced files take effect on
    /// the next connection, without a restart; open connections continue.
    struct ServeTlsFile as "serve tls" {
        /// Certificate, with its intermediate certificates.
        cert: ConfigString; required,
        /// Private key of `cert`. It may be in the same file.
        key: ConfigString; required,
        /// Certificate authorities (CAs) trusted to issue client certificates.
        client_ca: ConfigString,
        /// With `required`, connections without a certificate issued by `client_ca` are refused; with `optional`,
        /// callers without one need an API key.
        client_certificate: ClientCertificateName = "required",
    }
}

choice! {
    /// Necessity of a client certificate.
    enum ClientCertificateName as "a client certificate mode" {
        /// Connections without a client certificate are refused.
        Required = "required",
        /// Callers without a client certificate need an API key.
        Optional = "optional",
    }
}

keys! {
    /// Conditions on a client certificate. All of them must match.
    struct CertificateFile as "certificate" {
        /// Subject alternative name: a host name, or a URI such as `spiffe://example.com/ci`.
        san: String,
        /// SHA-256 fingerprint, 64 hexadecimal digits with or without colons: `openssl x509 -noout
        /// -fingerprint -sha256 -in FILE`.
        sha256: CertificateFingerprint,
    }
}

keys! {
    /// A token issuer, such as an OpenID Connect provider. Its keys come from `jwks_file`, `jwks_uri`, or, if
    /// neither is set, from the JWKS URL in the issuer's metadata.
    struct JwtFile as "token issuer" {
        /// Exact value of `iss` in its tokens: an `https://` URL, or `http://` on this machine.
        issuer: ConfigString; required,
        /// Accepted audiences: `aud` of a token must contain one of these. Use a name of this gateway only.
        audience: Vec<Spanned<String>>; required,
        /// Accepted signature algorithms. Shared-secret algorithms (HMAC) and `none` are never accepted.
        algorithms: Vec<Spanned<AlgorithmName>> = "[RS256, PS256, ES256, ES384, EdDSA]",
        /// URL of the issuer's JWKS (JSON Web Key Set).
        jwks_uri: ConfigString,
        /// File with the issuer's JWKS. A replaced file takes effect within a second.
        jwks_file: ConfigString,
        /// Allowed clock skew.
        leeway: HumanDuration = "30s",
        /// Claim that identifies the caller.
        caller_claim: String = "sub",
        /// Prefix of the caller id, put before the claim. Default: the issuer's host and `:`.
        caller_prefix: String,
        /// Claim with the scopes, as a string or a list.
        scope_claim: String = "scope",
        /// Permissions granted by each scope. Scopes not listed here grant nothing. A caller listed in `callers`
        /// has the permissions given there, regardless of its scopes.
        scopes: NamedMap<Vec<Spanned<PermissionPattern>>>,
    }
}

choice! {
    /// Signature algorithm of a token.
    enum AlgorithmName as "an algorithm" {
        /// RSASSA-PKCS1-v1_5 with SHA-256.
        Rs256 = "RS256",
        /// RSASSA-PKCS1-v1_5 with SHA-384.
        Rs384 = "RS384",
        /// RSASSA-PKCS1-v1_5 with SHA-512.
        Rs512 = "RS512",
        /// RSASSA-PSS with SHA-256.
        Ps256 = "PS256",
        /// RSASSA-PSS with SHA-384.
        Ps384 = "PS384",
        /// RSASSA-PSS with SHA-512.
        Ps512 = "PS512",
        /// ECDSA with the curve P-256.
        Es256 = "ES256",
        /// ECDSA with the curve P-384.
        Es384 = "ES384",
        /// EdDSA with the curve Ed25519.
        EdDsa = "EdDSA",
    }
}

choice! {
    /// Origin of unauthenticated requests that are accepted.
    enum AnonymousName as "an `anonymous` mode" {
        /// This machine only, without a proxy in between.
        Loopback = "loopback",
        /// Any address.
        Everywhere = "everywhere",
    }
}

keys! {
    /// Limits on requests per window, of any kind. Requests over the limit get 429.
    struct ServeRateLimitFile as "serve rate_limit" {
        /// Maximum number of requests from one IP address, or one IPv6 /64 prefix.
        per_address: NonZeroU32,
        /// Maximum number of requests of one caller.
        per_caller: NonZeroU32,
        /// Length of the window.
        window: HumanDuration = "1m",
    }
}

/// SHA-256 fingerprint of a certificate, with or without colons.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CertificateFingerprint(pub(crate) KeyHash);

impl std::str::FromStr for CertificateFingerprint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "it has 64 hexadecimal digits, with colons or without";
        text.replace(':', "").parse().map(Self).map_err(|_| wrong)
    }
}
