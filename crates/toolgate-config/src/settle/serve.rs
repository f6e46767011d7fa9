//! `serve`: how the door is kept.

mod jwt;

use std::num::NonZeroU32;
use std::path::PathBuf;

use toolgate_types::door::{AnonymousReach, ClientCertificate, DoorTls};
use toolgate_types::tool::RateLimit;
use toolgate_types::{HumanDuration, Text};

use crate::context::Context;
use crate::file::ServeFile;
use crate::file::door::{AnonymousName, ClientCertificateName, DoorRateFile, DoorTlsFile};
use crate::keys::At;
use crate::settle::server::check_url;
use crate::settle::{Draft, tls, value, values};

impl Draft {
    pub(crate) fn serve(&mut self, file: ServeFile, cx: &mut Context<'_>) {
        self.origins("serve", file.written());
        let rules = &mut self.serve;
        rules.listen = file.listen.map_or(rules.listen, |at| at.value);
        rules.hosts = values(file.hosts).unwrap_or_default();
        rules.max_body = file.max_body.map_or(rules.max_body, |at| at.value);
        rules.max_connections = file.max_connections.map_or(rules.max_connections, |at| at.value);
        rules.max_connections_per_address =
            file.max_connections_per_address.map_or(rules.max_connections_per_address, |at| at.value);
        rules.allow_networks = values(file.allow_networks).unwrap_or_default();
        rules.allow_commands = values(file.allow_commands);
        rules.tls = file.tls.and_then(|at| door_tls(at.value, cx));
        rules.anonymous = match file.anonymous {
            Some(At { value: AnonymousName::Everywhere, .. }) => AnonymousReach::Everywhere,
            Some(At { value: AnonymousName::Loopback, .. }) | None => AnonymousReach::Loopback,
        };
        rules.url = file.url.and_then(|at| {
            check_url(&at, &["https", "http"], cx)?;
            Some(at.value.expose().trim_end_matches('/').to_owned())
        });
        if let Some(DoorRateFile { per_address, per_caller, window, .. }) = value(file.rate_limit) {
            let window = window.map_or(HumanDuration::from_secs(60), |at| at.value);
            let limit = |most: At<NonZeroU32>| RateLimit { max_calls: most.value, window };
            (rules.requests_per_address, rules.requests_per_caller) =
                (per_address.map(limit), per_caller.map(limit));
        }
        for At { value: file, span, .. } in file.jwt.into_iter().flat_map(|at| at.value) {
            let Some(issuer) = jwt::issuer(file, cx) else { continue };
            if rules.jwt.iter().any(|other| other.issuer == issuer.issuer) {
                let message = format!("issuer `{}` is named twice", issuer.issuer);
                cx.error(span, message, "keep one of the two");
            }
            rules.jwt.push(issuer);
        }
    }
}

/// What is written, or `None` where it cannot work, which is told.
fn door_tls(file: DoorTlsFile, cx: &mut Context<'_>) -> Option<DoorTls> {
    let mut path = |key: &str, at: Option<At<Text>>| -> Option<PathBuf> { tls::path(key, &at?, cx) };
    let (cert, key) = (path("cert", file.cert), path("key", file.key));
    let authorities = file.client_ca.is_some();
    let client_ca = path("client_ca", file.client_ca);
    let client_certificate = match file.client_certificate {
        Some(At { key_span, .. }) if !authorities => {
            let hint = "add the `client_ca` whose certificates callers show";
            cx.error(key_span, "`client_certificate` without `client_ca` in serve tls", hint);
            return None;
        }
        Some(At { value: ClientCertificateName::Optional, .. }) => ClientCertificate::Optional,
        Some(At { value: ClientCertificateName::Required, .. }) => ClientCertificate::Required,
        None if authorities => ClientCertificate::Required,
        None => ClientCertificate::Optional,
    };
    Some(DoorTls { cert: cert?, key: key?, client_ca, client_certificate })
}
