//! As whom an operation is called: the credentials that its security schemes name.
//!
//! Invariant: a credential is put where its scheme says and is shown nowhere; no argument can take its place.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use toolgate_types::Secret;

use super::document::{Fault, Place};

/// Where a credential goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    Header,
    Query,
    Cookie,
}

/// What goes with every request of an operation.
#[derive(Clone, Default)]
pub struct Credentials(pub(super) Vec<(Spot, String, Secret)>);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(spot, name, _)| (spot, name))).finish()
    }
}

impl Credentials {
    /// Whether a credential stands there; names of headers are the same in capitals.
    pub(super) fn has(&self, spot: Spot, name: &str) -> bool {
        let same = |other: &str| match spot {
            Spot::Header => other.eq_ignore_ascii_case(name),
            Spot::Query | Spot::Cookie => other == name,
        };
        self.0.iter().any(|(taken, other, _)| *taken == spot && same(other))
    }
}

/// The first way in that the operator has all credentials for.
pub(super) fn credentials(place: &Place<'_>, told: &mut Vec<String>) -> Result<Credentials, Fault> {
    let root = place.document.member("security");
    let ways = place.operation.get("security").or(root).and_then(Value::as_array);
    let Some(ways) = ways.filter(|ways| !ways.is_empty()) else { return Ok(Credentials::default()) };
    let names = |way: &Value| -> Vec<String> {
        way.as_object().map(|schemes| schemes.keys().cloned().collect()).unwrap_or_default()
    };
    let ways: Vec<_> = ways.iter().map(names).collect();
    let has = |way: &&Vec<String>| way.iter().all(|name| place.spec.auth.contains_key(name));
    // One with credentials before one without: who has a key means to use it.
    let way = ways.iter().filter(has).max_by_key(|way| !way.is_empty());
    let Some(way) = way else {
        // Headers of one's own may be what it takes.
        if place.spec.headers.is_empty() {
            let ways: Vec<_> = ways.iter().map(|way| format!("`{}`", way.join("` with `"))).collect();
            told.push(format!("it wants {}, which `auth` does not give", ways.join(" or ")));
        }
        return Ok(Credentials::default());
    };
    let first = |way: &Vec<String>| way.iter().map(|name| credential(place, name)).collect::<Result<_, _>>();
    first(way).map(Credentials)
}

fn credential(place: &Place<'_>, name: &str) -> Result<(Spot, String, Secret), Fault> {
    let bad = |why: &str| Fault(format!("its security scheme `{name}` {why}"));
    let scheme =
        place.document.component("securitySchemes", name).ok_or_else(|| bad("is not in the document"))?;
    let scheme = place.document.follow(scheme)?;
    let text = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
    let value = place.spec.auth.get(name).ok_or_else(|| bad("has no value"))?.expose();
    let header = |value: String| Ok((Spot::Header, "Authorization".to_owned(), Secret::new(value)));
    match (text("type"), text("scheme").to_ascii_lowercase().as_str()) {
        ("http", "bearer") | ("oauth2" | "openIdConnect", _) => header(format!("Bearer {value}")),
        ("http", "basic") => header(format!("Basic {}", STANDARD.encode(value))),
        ("apiKey", _) => {
            let spot = match text("in") {
                "header" => Spot::Header,
                "query" => Spot::Query,
                "cookie" => Spot::Cookie,
                _ => return Err(bad("does not say where its key goes")),
            };
            match text("name") {
                "" => Err(bad("has no name for its key")),
                name => Ok((spot, name.to_owned(), Secret::new(value))),
            }
        }
        _ => Err(bad("is of a kind that is not understood: `bearer`, `basic`, `apiKey` and `oauth2` are")),
    }
}
