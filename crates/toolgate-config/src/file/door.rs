//! What `serve` holds, and by what its callers are known.

use toolgate_types::{KeyHash, Text};

use crate::keys::{choice, keys};

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
