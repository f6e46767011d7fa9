//! Entries of `serve.jwt` become issuers.

use std::net::IpAddr;

use toolgate_types::issuer::{Algorithm, Issuer, KeySource};
use toolgate_types::{HumanDuration, Text};
use url::Url;

use crate::context::Context;
use crate::file::door::{AlgorithmName, JwtFile};
use crate::keys::At;
use crate::settle::server::check_url;
use crate::settle::{tls, value, values};

/// What is written, or `None` where it cannot work, which is told.
pub(super) fn issuer(file: JwtFile, cx: &mut Context<'_>) -> Option<Issuer> {
    let told = cx.problems.len();
    let address = file.issuer.as_ref().and_then(|at| trustworthy(at, cx));
    if file.audience.as_ref().is_some_and(|at| at.value.is_empty()) {
        cx.error(
            file.span,
            "`audience` of a token issuer is empty",
            "name for whom its tokens are, such as this door's URL",
        );
    }
    let algorithms =
        values(file.algorithms).map(|names| names.into_iter().map(algorithm).collect::<Vec<_>>());
    if algorithms.as_ref().is_some_and(Vec::is_empty) {
        cx.error(file.span, "`algorithms` of a token issuer is empty", "name one, or leave the key out");
    }
    let keys = match (file.jwks_file, file.jwks_uri) {
        (Some(at), Some(_)) => {
            let hint = "keys come from one place; keep one of the two";
            cx.error(at.key_span, "`jwks_file` and `jwks_uri` of a token issuer", hint);
            return None;
        }
        (Some(at), None) => KeySource::File(tls::path("jwks_file", &at, cx)?),
        (None, Some(at)) => {
            trustworthy(&at, cx)?;
            KeySource::Address(at.value.expose().to_owned())
        }
        (None, None) => KeySource::Discovery,
    };
    let address = address.filter(|_| cx.problems.len() == told)?;
    let of_host = || format!("{}:", address.host_str().unwrap_or_default());
    let scopes = file.scopes.map(|at| at.value.0).unwrap_or_default();
    Some(Issuer {
        issuer: file.issuer?.value.expose().to_owned(),
        audience: values(file.audience)?,
        algorithms: algorithms.unwrap_or_else(|| Algorithm::USUAL.to_vec()),
        keys,
        leeway: file.leeway.map_or(HumanDuration::from_secs(30), |at| at.value),
        caller_claim: value(file.caller_claim).unwrap_or_else(|| "sub".to_owned()),
        caller_prefix: value(file.caller_prefix).unwrap_or_else(of_host),
        scope_claim: value(file.scope_claim).unwrap_or_else(|| "scope".to_owned()),
        scopes: scopes
            .into_iter()
            .map(|(scope, at)| (scope, at.value.into_iter().map(|it| it.value).collect()))
            .collect(),
    })
}

/// An address whose answers nobody between could have made up.
fn trustworthy(at: &At<Text>, cx: &mut Context<'_>) -> Option<Url> {
    check_url(at, &["https", "http"], cx)?;
    let url = Url::parse(at.value.expose()).ok()?;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if url.scheme() == "https" || here {
        return Some(url);
    }
    let message = format!("`{}` can be answered by anybody on the way{}", at.value.shown(), cx.whereabouts());
    cx.error(at.span, message, "make it `https://`; `http://` is for this machine alone");
    None
}

fn algorithm(name: AlgorithmName) -> Algorithm {
    match name {
        AlgorithmName::Rs256 => Algorithm::RS256,
        AlgorithmName::Rs384 => Algorithm::RS384,
        AlgorithmName::Rs512 => Algorithm::RS512,
        AlgorithmName::Ps256 => Algorithm::PS256,
        AlgorithmName::Ps384 => Algorithm::PS384,
        AlgorithmName::Ps512 => Algorithm::PS512,
        AlgorithmName::Es256 => Algorithm::ES256,
        AlgorithmName::Es384 => Algorithm::ES384,
        AlgorithmName::EdDsa => Algorithm::EdDSA,
    }
}
