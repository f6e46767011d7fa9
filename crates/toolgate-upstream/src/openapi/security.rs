//! The credentials of an operation, by its security schemes.
//!
//! Invariant: a credential is sent only where its scheme says and is never shown; no argument can replace it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use toolgate_types::Secret;

use super::document::{DocumentFault, OperationContext};

/// The part of a request that carries a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CredentialLocation {
    Header,
    Query,
    Cookie,
}

/// The credentials sent with every request of an operation.
#[derive(Clone, Default)]
pub struct Credentials(pub(super) Vec<(CredentialLocation, String, Secret)>);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(location, name, _)| (location, name))).finish()
    }
}

impl Credentials {
    /// Returns true if there is such a credential. Header names are case-insensitive.
    pub(super) fn has(&self, location: CredentialLocation, name: &str) -> bool {
        let same = |other: &str| match location {
            CredentialLocation::Header => other.eq_ignore_ascii_case(name),
            CredentialLocation::Query | CredentialLocation::Cookie => other == name,
        };
        self.0.iter().any(|(taken, other, _)| *taken == location && same(other))
    }
}

/// Picks the first security requirement for which the configuration has all credentials.
pub(super) fn credentials(
    context: &OperationContext<'_>,
    operation_notes: &mut Vec<String>,
) -> Result<Credentials, DocumentFault> {
    let root = context.document.member("security");
    let alternatives = context.operation.get("security").or(root).and_then(Value::as_array);
    let Some(alternatives) = alternatives.filter(|alternatives| !alternatives.is_empty()) else {
        return Ok(Credentials::default());
    };
    let names = |alternative: &Value| -> Vec<String> {
        alternative.as_object().map(|schemes| schemes.keys().cloned().collect()).unwrap_or_default()
    };
    let alternatives: Vec<_> = alternatives.iter().map(names).collect();
    let has =
        |alternative: &&Vec<String>| alternative.iter().all(|name| context.spec.auth.contains_key(name));
    // Requirements with credentials come before the empty one: a configured key is meant to be used.
    let alternative = alternatives.iter().filter(has).max_by_key(|alternative| !alternative.is_empty());
    let Some(alternative) = alternative else {
        // Configured headers may satisfy the API.
        if context.spec.headers.is_empty() {
            let alternatives: Vec<_> = alternatives
                .iter()
                .map(|alternative| format!("`{}`", alternative.join("` with `")))
                .collect();
            operation_notes
                .push(format!("it requires {}, which `auth` does not provide", alternatives.join(" or ")));
        }
        return Ok(Credentials::default());
    };
    let first = |alternative: &Vec<String>| {
        alternative.iter().map(|name| credential(context, name)).collect::<Result<_, _>>()
    };
    first(alternative).map(Credentials)
}

fn credential(
    context: &OperationContext<'_>,
    name: &str,
) -> Result<(CredentialLocation, String, Secret), DocumentFault> {
    let fault = |why: &str| DocumentFault(format!("its security scheme `{name}` {why}"));
    let scheme =
        context.document.component("securitySchemes", name).ok_or_else(|| fault("is not in the document"))?;
    let scheme = context.document.resolve(scheme)?;
    let text = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
    let value = context.spec.auth.get(name).ok_or_else(|| fault("has no value"))?.expose();
    let header =
        |value: String| Ok((CredentialLocation::Header, "Authorization".to_owned(), Secret::new(value)));
    match (text("type"), text("scheme").to_ascii_lowercase().as_str()) {
        ("http", "bearer") | ("oauth2" | "openIdConnect", _) => header(format!("Bearer {value}")),
        ("http", "basic") => header(format!("Basic {}", STANDARD.encode(value))),
        ("apiKey", _) => {
            let location = match text("in") {
                "header" => CredentialLocation::Header,
                "query" => CredentialLocation::Query,
                "cookie" => CredentialLocation::Cookie,
                _ => return Err(fault("has an unknown location in `in`")),
            };
            match text("name") {
                "" => Err(fault("has no name for its key")),
                name => Ok((location, name.to_owned(), Secret::new(value))),
            }
        }
        _ => Err(fault("is not supported (supported: `bearer`, `basic`, `apiKey`, `oauth2`)")),
    }
}
