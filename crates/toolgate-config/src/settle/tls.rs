//! `tls` of a server becomes whom it is trusted by, and who we are.

use std::path::PathBuf;

use toolgate_types::Text;
use toolgate_types::server::{Identity, Tls};

use crate::context::Context;
use crate::file::TlsFile;
use crate::keys::At;

/// What is written, or `None` where it cannot work, which is told.
pub(super) fn tls(
    At { value: file, key_span, .. }: At<TlsFile>,
    url: &Text,
    cx: &mut Context<'_>,
) -> Option<Tls> {
    let told = cx.problems.len();
    if ["http:", "ws:"].iter().any(|scheme| url.expose().starts_with(scheme)) {
        let message = format!("`tls` with an address that has none{}", cx.whereabouts());
        cx.error(key_span, message, "make it `https://` or `wss://`, or remove `tls`");
    }
    let given = |key: &str| file.given.contains(&key);
    let pairs = [("cert", &file.cert, "key"), ("key", &file.key, "cert"), ("crl", &file.crl, "ca")];
    for (key, at, needs) in pairs {
        if let Some(at) = at.as_ref().filter(|_| !given(needs)) {
            let message = format!("`{key}` without `{needs}`{}", cx.whereabouts());
            let hint = match key {
                "crl" => "add the `ca` that the list is of",
                _ => "a certificate and its key go together; they may be in one file",
            };
            cx.error(at.key_span, message, hint);
        }
    }
    let written = [("ca", file.ca), ("cert", file.cert), ("key", file.key), ("crl", file.crl)];
    let [ca, cert, key, crl] = written.map(|(key, at)| path(key, &at?, cx));
    let identity = cert.zip(key).map(|(cert, key)| Identity { cert, key });
    (cx.problems.len() == told).then_some(Tls { ca, identity, crl })
}

/// The path from the project folder; a file that is not there is told.
pub(super) fn path(key: &str, at: &At<Text>, cx: &mut Context<'_>) -> Option<PathBuf> {
    let path = cx.project.join(at.value.expose());
    if path.is_file() || cx.waits(&at.value) {
        return Some(path);
    }
    let message = format!("there is no file `{}` for `{key}`{}", at.value.shown(), cx.whereabouts());
    cx.error(at.span, message, "create it, or correct the path; paths start at the project folder");
    None
}
