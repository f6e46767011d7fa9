//! The base URL of an API: `base_url` in the configuration, else the first of the document's `servers`.
//!
//! Invariant: a fetched document can only name the origin it was fetched from, so that changing it cannot redirect
//! credentials to another host.

use serde_json::Value;
use toolgate_types::ApiSpec;
use url::Url;

/// An API without a usable base URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// Neither the document nor the configuration has one.
    #[error("it has no base URL; set `base_url`")]
    Missing,
    /// The base URL is not an absolute HTTP URL.
    #[error("its base URL `{0}` is not an absolute `http` or `https` URL; set `base_url`")]
    Unusable(String),
    /// A fetched document names another origin.
    #[error(
        "it was fetched from {origin}, but its base URL is at {base}; set `base_url` if that is intended"
    )]
    Elsewhere {
        /// The origin of the document.
        origin: String,
        /// The origin of its base URL.
        base: String,
    },
    /// A variable has no allowed value.
    #[error("the variable `{0}` of its base URL has no allowed value; set it in `variables`")]
    Variable(String),
}

/// The URL that all paths are appended to.
pub(super) fn resolve(root: &Value, spec: &ApiSpec, origin: Option<&Url>) -> Result<Url, BaseUrlError> {
    if let Some(base) = &spec.base_url {
        return parse_base(base.expose(), None)
            .ok_or_else(|| BaseUrlError::Unusable(base.redacted().to_owned()));
    }
    let server = root.get("servers").and_then(|servers| servers.get(0));
    let written = match server {
        Some(server) => fill_variables(server, spec)?,
        // The default in the OpenAPI specification for a document without `servers`.
        None if origin.is_some() => "/".to_owned(),
        None => return Err(BaseUrlError::Missing),
    };
    let shown = || written.chars().take(200).collect::<String>();
    let base = parse_base(&written, origin).ok_or_else(|| BaseUrlError::Unusable(shown()))?;
    match origin {
        Some(origin) if origin.origin() != base.origin() => Err(BaseUrlError::Elsewhere {
            origin: origin.origin().ascii_serialization(),
            base: base.origin().ascii_serialization(),
        }),
        _ => Ok(base),
    }
}

/// The URL of a server, with its variables filled in.
fn fill_variables(server: &Value, spec: &ApiSpec) -> Result<String, BaseUrlError> {
    let mut rest = server.get("url").and_then(Value::as_str).ok_or(BaseUrlError::Missing)?;
    let mut address = String::new();
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) =
            after.split_once('}').ok_or_else(|| BaseUrlError::Unusable(rest.chars().take(200).collect()))?;
        let variable = server.get("variables").and_then(|variables| variables.get(name));
        let default = variable.and_then(|variable| variable.get("default")).and_then(Value::as_str);
        let value = spec.variables.get(name).map(String::as_str).or(default);
        let values = variable.and_then(|variable| variable.get("enum")).and_then(Value::as_array);
        let is_allowed = |value: &&str| values.is_none_or(|values| values.iter().any(|one| one == value));
        let value = value
            .filter(is_allowed)
            .ok_or_else(|| BaseUrlError::Variable(name.chars().take(80).collect()))?;
        address.push_str(before);
        address.push_str(value);
        rest = behind;
    }
    Ok(address + rest)
}

fn parse_base(written: &str, origin: Option<&Url>) -> Option<Url> {
    let base = match origin {
        Some(origin) => origin.join(written).ok()?,
        None => Url::parse(written).ok()?,
    };
    let plain = base.username().is_empty()
        && base.password().is_none()
        && base.query().is_none()
        && base.fragment().is_none();
    (plain && matches!(base.scheme(), "http" | "https") && base.has_host()).then_some(base)
}
