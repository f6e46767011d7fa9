//! Where an API is: what the operator says, else the first of the document's `servers`.
//!
//! Invariant: a document that was fetched says nothing about other places than the one it came from, so that whoever
//! can change it cannot have credentials sent elsewhere.

use serde_json::Value;
use toolgate_types::ApiSpec;
use url::Url;

/// Why nobody knows where an API is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseError {
    /// Nothing says so.
    #[error("it does not say where its API is; `base_url` does")]
    Missing,
    /// What is said is no address.
    #[error(
        "its API is at `{0}`, which is not a whole address with `http` or `https`; `base_url` says where it is"
    )]
    Unusable(String),
    /// A fetched document names another place.
    #[error(
        "it came from {origin} and says that its API is at {base}; where that is right, `base_url` says so"
    )]
    Elsewhere {
        /// Where it came from.
        origin: String,
        /// Where it says its API is.
        base: String,
    },
    /// A variable has no value.
    #[error("the variable `{0}` of its address has no value that it may have; `variables` gives one")]
    Variable(String),
}

/// The address that every path is put behind.
pub(super) fn of(root: &Value, spec: &ApiSpec, origin: Option<&Url>) -> Result<Url, BaseError> {
    if let Some(base) = &spec.base_url {
        return usable(base.expose(), None).ok_or_else(|| BaseError::Unusable(base.shown().to_owned()));
    }
    let server = root.get("servers").and_then(|servers| servers.get(0));
    let written = match server {
        Some(server) => filled(server, spec)?,
        // What the specification says of a document without any.
        None if origin.is_some() => "/".to_owned(),
        None => return Err(BaseError::Missing),
    };
    let shown = || written.chars().take(200).collect::<String>();
    let base = usable(&written, origin).ok_or_else(|| BaseError::Unusable(shown()))?;
    match origin {
        Some(origin) if origin.origin() != base.origin() => Err(BaseError::Elsewhere {
            origin: origin.origin().ascii_serialization(),
            base: base.origin().ascii_serialization(),
        }),
        _ => Ok(base),
    }
}

/// The address of a server with its variables filled in.
fn filled(server: &Value, spec: &ApiSpec) -> Result<String, BaseError> {
    let mut rest = server.get("url").and_then(Value::as_str).ok_or(BaseError::Missing)?;
    let mut address = String::new();
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) =
            after.split_once('}').ok_or_else(|| BaseError::Unusable(rest.chars().take(200).collect()))?;
        let known = server.get("variables").and_then(|variables| variables.get(name));
        let default = known.and_then(|known| known.get("default")).and_then(Value::as_str);
        let value = spec.variables.get(name).map(String::as_str).or(default);
        let values = known.and_then(|known| known.get("enum")).and_then(Value::as_array);
        let may = |value: &&str| values.is_none_or(|values| values.iter().any(|one| one == value));
        let value = value.filter(may).ok_or_else(|| BaseError::Variable(name.chars().take(80).collect()))?;
        address.push_str(before);
        address.push_str(value);
        rest = behind;
    }
    Ok(address + rest)
}

fn usable(written: &str, origin: Option<&Url>) -> Option<Url> {
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
