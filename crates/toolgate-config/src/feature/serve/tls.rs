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

#[cfg(test)]
mod tests {
    use toolgate_types::KeyHash;

    use crate::test_support::{config, loaded, messages};

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn serve_tls() {
        let serve = |tls: &str, caller: &str| {
            let text =
                format!("serve: {{tls: {{{tls}}}}}\ncallers: [{{id: ci, certificate: {{{caller}}}}}]\n");
            let mut files = vec![("toolgate.yaml", text.as_str())];
            files.extend(["c.pem", "k.pem", "ca.pem"].map(|name| (name, "")));
            loaded(&files, &[])
        };
        let good =
            serve("cert: c.pem, key: k.pem, client_ca: ca.pem", &format!("san: ci.test, sha256: {HASH}"));
        assert_eq!(messages(&good), "");
        assert_eq!(config(&good)["serve"]["tls"]["client_certificate"], "required", "it is the default");
        assert_eq!(good.config.unwrap().caller_certificates[0].1.sha256, Some(KeyHash::of("abc")));
        let mistakes = [
            serve("cert: c.pem", "san: ci.test"),
            serve("cert: c.pem, key: gone.pem, client_ca: ca.pem", "san: ci.test"),
            serve("cert: c.pem, key: k.pem, client_certificate: optional", "san: ci.test"),
            serve("cert: c.pem, key: k.pem", "san: ci.test"),
            serve("cert: c.pem, key: k.pem, client_ca: ca.pem, client_certificate: maybe", ""),
            serve("cert: c.pem, key: k.pem, client_ca: ca.pem", "sha256: abc"),
        ];
        let mistakes: Vec<_> = mistakes.iter().map(messages).collect();
        insta::assert_snapshot!(mistakes.join("\n"), @"
        error toolgate.yaml:1:15 missing key `key` in serve tls (add `key`: a string)
        error toolgate.yaml:2:33 caller `ci` needs `client_ca` for its certificate (add `serve.tls` with `client_ca`, the authority that issued it)
        error toolgate.yaml:1:33 there is no file `gone.pem` for `key` (create it, or correct the path; paths start at the project folder)
        error toolgate.yaml:2:33 caller `ci` needs `client_ca` for its certificate (add `serve.tls` with `client_ca`, the authority that issued it)
        error toolgate.yaml:1:40 `client_certificate` without `client_ca` in serve tls (add the `client_ca` that issues client certificates)
        error toolgate.yaml:2:33 caller `ci` needs `client_ca` for its certificate (add `serve.tls` with `client_ca`, the authority that issued it)
        error toolgate.yaml:2:33 caller `ci` needs `client_ca` for its certificate (add `serve.tls` with `client_ca`, the authority that issued it)
        error toolgate.yaml:1:79 `maybe` is not a client certificate mode in serve tls (`required` or `optional` is expected)
        error toolgate.yaml:2:33 the certificate of caller `ci` has no conditions (add `san` or `sha256`)
        error toolgate.yaml:2:42 `abc` is not the SHA-256 of a certificate in certificate (it has 64 hexadecimal digits, with colons or without)
        ");
    }
}
