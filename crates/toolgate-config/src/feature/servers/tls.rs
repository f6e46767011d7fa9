//! `tls` of a server: trusted authorities and client certificate.

use toolgate_types::ConfigString;
use toolgate_types::server::{ClientIdentity, UpstreamTls};

use crate::context::Context;
use crate::feature::checks::resolve_file;
use crate::keys::{Spanned, keys};

keys! {
    /// Certificates of a private certificate authority (CA), as PEM files. Paths are relative to the project
    /// folder. Replaced files take effect on the next connection, without a restart.
    struct TlsFile as "tls" {
        /// Additional trusted CAs.
        ca: ConfigString,
        /// Client certificate, with its intermediate certificates, for servers that require one.
        cert: ConfigString,
        /// Private key of `cert`. It may be in the same file.
        key: ConfigString,
        /// Certificate revocation lists of the CAs in `ca`. A server is refused if its certificate is revoked, or
        /// if its CA has no current list here.
        crl: ConfigString,
    }
}

/// Resolves the TLS settings. Reports a problem and returns `None` if they cannot work.
pub(super) fn resolve_tls(
    Spanned { value: file, key_span, .. }: Spanned<TlsFile>,
    url: &ConfigString,
    cx: &mut Context<'_>,
) -> Option<UpstreamTls> {
    let problems_before = cx.problems.len();
    if ["http:", "ws:"].iter().any(|scheme| url.expose().starts_with(scheme)) {
        let message = format!("`tls` with a URL that does not use TLS{}", cx.location_suffix());
        cx.error(key_span, message, "make it `https://` or `wss://`, or remove `tls`");
    }
    let given = |key: &str| file.present_keys.contains(&key);
    let pairs = [("cert", &file.cert, "key"), ("key", &file.key, "cert"), ("crl", &file.crl, "ca")];
    for (key, at, needs) in pairs {
        if let Some(at) = at.as_ref().filter(|_| !given(needs)) {
            let message = format!("`{key}` without `{needs}`{}", cx.location_suffix());
            let hint = match key {
                "crl" => "add the `ca` that issued the list",
                _ => "a certificate and its key go together; they may be in one file",
            };
            cx.error(at.key_span, message, hint);
        }
    }
    let written = [("ca", file.ca), ("cert", file.cert), ("key", file.key), ("crl", file.crl)];
    let [ca, cert, key, crl] = written.map(|(key, at)| resolve_file(key, &at?, cx));
    let identity = cert.zip(key).map(|(cert, key)| ClientIdentity { cert, key });
    (cx.problems.len() == problems_before).then_some(UpstreamTls { ca, identity, crl })
}

#[cfg(test)]
mod tests {
    use crate::test_support::{loaded, messages};

    #[test]
    fn checks_tls() {
        let messages = |url: &str, keys: &str| {
            let text =
                format!("toolbox:\n  mcps:\n    - {{name: a, mode: strict, url: '{url}', tls: {{{keys}}}}}");
            let files = [("toolgate.yaml", text.as_str()), ("a.pem", ""), ("tls/b.pem", "")];
            messages(&loaded(&files, &[("DIR", "tls")])).replace("error toolgate.yaml:3:", "")
        };
        let secure = |keys: &str| messages("https://h", keys);
        for keys in ["", "ca: a.pem", "cert: a.pem, key: '${DIR}/b.pem'", "ca: a.pem, crl: tls/b.pem"] {
            assert_eq!(secure(keys), "", "{keys}");
            assert_eq!(messages("wss://h", keys), "", "{keys}");
        }
        let bad =
            ["cert: a.pem", "key: a.pem", "crl: a.pem", "ca: '${DIR}/gone.pem'", "ca: tls", "cer: a.pem"];
        let mut all: Vec<_> = bad.into_iter().map(secure).collect();
        all.push(messages("http://h", "ca: a.pem"));
        insta::assert_snapshot!(all.join("\n"), @"
        55 `cert` without `key` in MCP server `a` (a certificate and its key go together; they may be in one file)
        55 `key` without `cert` in MCP server `a` (a certificate and its key go together; they may be in one file)
        55 `crl` without `ca` in MCP server `a` (add the `ca` that issued the list)
        59 there is no file `${DIR}/gone.pem` for `ca` in MCP server `a` (create it, or correct the path; paths start at the project folder)
        59 there is no file `tls` for `ca` in MCP server `a` (create it, or correct the path; paths start at the project folder)
        55 unknown key `cer` in tls (did you mean `cert`?)
        48 `tls` with a URL that does not use TLS in MCP server `a` (make it `https://` or `wss://`, or remove `tls`)
        ");
    }
}
