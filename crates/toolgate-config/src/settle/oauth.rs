//! `oauth` of a server becomes how it is logged in to.

use std::num::NonZeroU16;

use toolgate_types::Text;
use toolgate_types::oauth::{Grant, Oauth};
use url::Url;

use crate::context::Context;
use crate::file::{GrantName, OauthFile};
use crate::keys::At;
use crate::settle::{value, values};

/// What is written, or `None` where it cannot work, which is told.
pub(super) fn oauth(At { value: file, key_span, .. }: At<OauthFile>, cx: &mut Context<'_>) -> Option<Oauth> {
    let given = |key: &str| file.given.contains(&key);
    if let Some(secret) = file.client_secret.as_ref().filter(|_| !given("client_id")) {
        let message = format!("`client_secret` without `client_id`{}", cx.whereabouts());
        cx.error(secret.key_span, message, "add the `client_id` that the secret belongs to");
        return None;
    }
    let grant = match file.grant.as_ref().map(|at| at.value) {
        Some(GrantName::ClientCredentials) => Grant::ClientCredentials,
        Some(GrantName::AuthorizationCode) | None => Grant::AuthorizationCode,
    };
    let proof = given("client_secret") || given("private_key");
    if grant == Grant::ClientCredentials && !(given("client_id") && proof) {
        let message = format!("`grant: client_credentials` without credentials{}", cx.whereabouts());
        cx.error(key_span, message, "add `client_id`, and `client_secret` or `private_key`");
        return None;
    }
    if let Some(document) = &file.client_metadata_url
        && !Url::parse(document.value.expose()).is_ok_and(|url| url.scheme() == "https" && url.path() != "/")
    {
        let message = format!("`{}` cannot name a client{}", document.value.shown(), cx.whereabouts());
        cx.error(document.span, message, "it is an `https://` address with a path");
        return None;
    }
    let mut hidden = |name: &str, text: Option<At<Text>>| {
        text.map(|at| {
            cx.keep_secret(name, at.value.expose());
            Text::hidden(at.value.expose())
        })
    };
    Some(Oauth {
        grant,
        client_secret: hidden("client_secret", file.client_secret),
        private_key: hidden("private_key", file.private_key),
        client_id: value(file.client_id),
        client_metadata_url: value(file.client_metadata_url),
        scopes: values(file.scopes).unwrap_or_default(),
        redirect_port: value(file.redirect_port).map(NonZeroU16::get),
    })
}
