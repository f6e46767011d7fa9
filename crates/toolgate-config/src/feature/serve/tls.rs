//! `serve.tls`: certificate of the gateway and client certificates.

use std::path::PathBuf;

use toolgate_types::ConfigString;
use toolgate_types::serve::{ClientCertificate, ServeTls};

use crate::context::Context;
use crate::feature::checks::resolve_file;
use crate::keys::{Spanned, choice, keys};

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

/// Resolves the TLS settings. Reports a problem and returns `None` if they cannot work.
pub(super) fn resolve_serve_tls(file: ServeTlsFile, cx: &mut Context<'_>) -> Option<ServeTls> {
    let mut path =
        |key: &str, at: Option<Spanned<ConfigString>>| -> Option<PathBuf> { resolve_file(key, &at?, cx) };
    let (cert, key) = (path("cert", file.cert), path("key", file.key));
    let authorities = file.client_ca.is_some();
    let client_ca = path("client_ca", file.client_ca);
    let client_certificate = match file.client_certificate {
        Some(Spanned { key_span, .. }) if !authorities => {
            let hint = "add the `client_ca` that issues client certificates";
            cx.error(key_span, "`client_certificate` without `client_ca` in serve tls", hint);
            return None;
        }
        Some(Spanned { value: ClientCertificateName::Optional, .. }) => ClientCertificate::Optional,
        Some(Spanned { value: ClientCertificateName::Required, .. }) => ClientCertificate::Required,
        None if authorities => ClientCertificate::Required,
        None => ClientCertificate::Optional,
    };
    Some(ServeTls { cert: cert?, key: key?, client_ca, client_certificate })
}
