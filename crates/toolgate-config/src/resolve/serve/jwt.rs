//! Resolves entries of `serve.jwt`.

use std::net::IpAddr;

use toolgate_types::issuer::{KeySource, SigningAlgorithm, TokenIssuer};
use toolgate_types::{ConfigString, HumanDuration};
use url::Url;

use crate::context::Context;
use crate::file::serve::{AlgorithmName, JwtFile};
use crate::keys::Spanned;
use crate::resolve::server::check_url;
use crate::resolve::{into_value, into_values, tls};

/// Resolves a token issuer. Reports a problem and returns `None` if it cannot work.
pub(super) fn resolve_issuer(file: JwtFile, cx: &mut Context<'_>) -> Option<TokenIssuer> {
    let problems_before = cx.problems.len();
    let address = file.issuer.as_ref().and_then(|at| check_secure_url(at, cx));
    if file.audience.as_ref().is_some_and(|at| at.value.is_empty()) {
        cx.error(
            file.span,
            "`audience` of a token issuer is empty",
            "name the audience of its tokens, such as the URL of this gateway",
        );
    }
    let algorithms =
        into_values(file.algorithms).map(|names| names.into_iter().map(to_algorithm).collect::<Vec<_>>());
    if algorithms.as_ref().is_some_and(Vec::is_empty) {
        cx.error(file.span, "`algorithms` of a token issuer is empty", "name one, or leave the key out");
    }
    let keys = match (file.jwks_file, file.jwks_uri) {
        (Some(at), Some(_)) => {
            let hint = "keys come from one place; keep one of the two";
            cx.error(at.key_span, "`jwks_file` and `jwks_uri` of a token issuer", hint);
            return None;
        }
        (Some(at), None) => KeySource::File(tls::resolve_file("jwks_file", &at, cx)?),
        (None, Some(at)) => {
            check_secure_url(&at, cx)?;
            KeySource::Url(at.value.expose().to_owned())
        }
        (None, None) => KeySource::Discovery,
    };
    let address = address.filter(|_| cx.problems.len() == problems_before)?;
    let of_host = || format!("{}:", address.host_str().unwrap_or_default());
    let scopes = file.scopes.map(|at| at.value.0).unwrap_or_default();
    Some(TokenIssuer {
        issuer: file.issuer?.value.expose().to_owned(),
        audience: into_values(file.audience)?,
        algorithms: algorithms.unwrap_or_else(|| SigningAlgorithm::DEFAULT.to_vec()),
        keys,
        leeway: file.leeway.map_or(HumanDuration::from_secs(30), |at| at.value),
        caller_claim: into_value(file.caller_claim).unwrap_or_else(|| "sub".to_owned()),
        caller_prefix: into_value(file.caller_prefix).unwrap_or_else(of_host),
        scope_claim: into_value(file.scope_claim).unwrap_or_else(|| "scope".to_owned()),
        scopes: scopes
            .into_iter()
            .map(|(scope, at)| (scope, at.value.into_iter().map(|it| it.value).collect()))
            .collect(),
    })
}

/// Requires `https`, or `http` on this machine, so that responses cannot be forged in transit.
fn check_secure_url(at: &Spanned<ConfigString>, cx: &mut Context<'_>) -> Option<Url> {
    check_url(at, &["https", "http"], cx)?;
    let url = Url::parse(at.value.expose()).ok()?;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if url.scheme() == "https" || here {
        return Some(url);
    }
    let message = format!("`{}` is not a secure URL{}", at.value.redacted(), cx.location_suffix());
    cx.error(at.span, message, "use `https://`; `http://` is only allowed for this machine");
    None
}

fn to_algorithm(name: AlgorithmName) -> SigningAlgorithm {
    match name {
        AlgorithmName::Rs256 => SigningAlgorithm::RS256,
        AlgorithmName::Rs384 => SigningAlgorithm::RS384,
        AlgorithmName::Rs512 => SigningAlgorithm::RS512,
        AlgorithmName::Ps256 => SigningAlgorithm::PS256,
        AlgorithmName::Ps384 => SigningAlgorithm::PS384,
        AlgorithmName::Ps512 => SigningAlgorithm::PS512,
        AlgorithmName::Es256 => SigningAlgorithm::ES256,
        AlgorithmName::Es384 => SigningAlgorithm::ES384,
        AlgorithmName::EdDsa => SigningAlgorithm::EdDSA,
    }
}
