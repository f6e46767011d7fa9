//! Resolves `serve`: the settings of the gateway.

mod jwt;

use std::num::NonZeroU32;
use std::path::PathBuf;

use toolgate_types::serve::{AnonymousAccess, ClientCertificate, ServeTls};
use toolgate_types::tool::RateLimit;
use toolgate_types::{ConfigString, HumanDuration};

use crate::context::Context;
use crate::file::ServeFile;
use crate::file::serve::{AnonymousName, ClientCertificateName, ServeRateLimitFile, ServeTlsFile};
use crate::keys::Spanned;
use crate::resolve::server::check_url;
use crate::resolve::{ConfigBuilder, into_value, into_values, tls};

impl ConfigBuilder {
    pub(crate) fn set_serve(&mut self, file: ServeFile, cx: &mut Context<'_>) {
        self.record_origins("serve", file.value_spans());
        let rules = &mut self.serve;
        rules.listen = file.listen.map_or(rules.listen, |at| at.value);
        rules.hosts = into_values(file.hosts).unwrap_or_default();
        rules.max_body = file.max_body.map_or(rules.max_body, |at| at.value);
        rules.max_connections = file.max_connections.map_or(rules.max_connections, |at| at.value);
        rules.max_connections_per_address =
            file.max_connections_per_address.map_or(rules.max_connections_per_address, |at| at.value);
        rules.allow_networks = into_values(file.allow_networks).unwrap_or_default();
        rules.allow_commands = into_values(file.allow_commands);
        rules.tls = file.tls.and_then(|at| resolve_serve_tls(at.value, cx));
        rules.anonymous = match file.anonymous {
            Some(Spanned { value: AnonymousName::Everywhere, .. }) => AnonymousAccess::Everywhere,
            Some(Spanned { value: AnonymousName::Loopback, .. }) | None => AnonymousAccess::Loopback,
        };
        rules.url = file.url.and_then(|at| {
            check_url(&at, &["https", "http"], cx)?;
            Some(at.value.expose().trim_end_matches('/').to_owned())
        });
        if let Some(ServeRateLimitFile { per_address, per_caller, window, .. }) = into_value(file.rate_limit)
        {
            let window = window.map_or(HumanDuration::from_secs(60), |at| at.value);
            let limit = |most: Spanned<NonZeroU32>| RateLimit { max_calls: most.value, window };
            (rules.requests_per_address, rules.requests_per_caller) =
                (per_address.map(limit), per_caller.map(limit));
        }
        for Spanned { value: file, span, .. } in file.jwt.into_iter().flat_map(|at| at.value) {
            let Some(issuer) = jwt::resolve_issuer(file, cx) else { continue };
            if rules.jwt.iter().any(|other| other.issuer == issuer.issuer) {
                let message = format!("issuer `{}` is named twice", issuer.issuer);
                cx.error(span, message, "keep one of the two");
            }
            rules.jwt.push(issuer);
        }
    }
}

/// Resolves the TLS settings. Reports a problem and returns `None` if they cannot work.
fn resolve_serve_tls(file: ServeTlsFile, cx: &mut Context<'_>) -> Option<ServeTls> {
    let mut path = |key: &str, at: Option<Spanned<ConfigString>>| -> Option<PathBuf> {
        tls::resolve_file(key, &at?, cx)
    };
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
