//! An HTTP API described by an OpenAPI document: location of the document, the operations to expose, credentials.
//!
//! Each operation becomes a tool. Invariant: an `ApiSpec` holds every decision of the operator; the document cannot
//! decide where credentials are sent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::network::Network;
use crate::{ConfigString, HumanDuration, ServerName, wildcard};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApiSpec {
    /// Name in the configuration; prefix of its tools' names.
    pub name: ServerName,
    /// The OpenAPI document.
    pub document: ApiDocument,
    /// Base URL, overriding `servers` of the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<ConfigString>,
    /// Values of the server variables in the document's URL.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// Operations that become tools. Empty: all of them.
    #[serde(skip_serializing_if = "OperationFilter::is_empty")]
    pub include: OperationFilter,
    /// Operations that do not become tools, even if included.
    #[serde(skip_serializing_if = "OperationFilter::is_empty")]
    pub exclude: OperationFilter,
    /// Credentials by name of the document's `securitySchemes`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub auth: BTreeMap<String, ConfigString>,
    /// Headers of every request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, ConfigString>,
    /// Deadline of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<HumanDuration>,
    /// Additional prefix of every tool's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Non-public networks allowed for the API.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_networks: Vec<Network>,
    /// Reject results that do not match the schema of their operation, instead of only warning.
    #[serde(rename = "output_validation", serialize_with = "output_validation")]
    pub strict_output: bool,
    /// Cache folder for a downloaded document.
    #[serde(skip)]
    pub cache: PathBuf,
}

/// Serializes the flag as the configuration spells it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn output_validation<S: Serializer>(strict: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *strict { "strict" } else { "warn" })
}

/// Location of an OpenAPI document.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiDocument {
    /// A file of the project.
    File {
        /// Path as written in the configuration.
        path: String,
        /// Content, converted to JSON.
        json: Arc<str>,
    },
    /// A URL, fetched when Toolgate starts.
    Url(ConfigString),
}

impl ApiDocument {
    /// Path or redacted URL, for messages.
    pub fn location(&self) -> &str {
        match self {
            Self::File { path, .. } => path,
            Self::Url(url) => url.redacted(),
        }
    }
}

impl Serialize for ApiDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.location())
    }
}

/// Filter of operations in a document. In every pattern `*` matches any characters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OperationFilter {
    /// Patterns of `operationId`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<String>,
    /// Patterns of tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// HTTP methods in upper case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Patterns of paths, as the document writes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Properties of an operation that a filter matches.
#[derive(Debug, Clone, Copy)]
pub struct ApiOperation<'a> {
    pub operation: &'a str,
    pub tags: &'a [&'a str],
    /// HTTP method in upper case.
    pub method: &'a str,
    pub path: &'a str,
}

impl OperationFilter {
    /// True if no pattern is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the operation matches every kind of pattern that is given.
    pub fn matches_all(&self, operation: ApiOperation<'_>) -> bool {
        self.match_kinds(operation).into_iter().all(|matches| matches.unwrap_or(true))
    }

    /// Returns true if the operation matches any pattern.
    pub fn matches_any(&self, operation: ApiOperation<'_>) -> bool {
        self.match_kinds(operation).into_iter().any(|matches| matches.unwrap_or(false))
    }

    /// Returns for each kind of pattern whether one of them matches; `None` if that kind has no patterns.
    fn match_kinds(&self, operation: ApiOperation<'_>) -> [Option<bool>; 4] {
        let any = |patterns: &[String], matches: &dyn Fn(&str) -> bool| {
            (!patterns.is_empty()).then(|| patterns.iter().any(|pattern| matches(pattern)))
        };
        [
            any(&self.operations, &|pattern| wildcard::matches(pattern, operation.operation)),
            any(&self.tags, &|pattern| operation.tags.iter().any(|tag| wildcard::matches(pattern, tag))),
            any(&self.methods, &|pattern| wildcard::matches(pattern, operation.method)),
            any(&self.paths, &|pattern| wildcard::matches(pattern, operation.path)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_by_all_or_any_kind() {
        let pet = ApiOperation { operation: "getPet", tags: &["pets"], method: "GET", path: "/pets/{id}" };
        let filter = |tags: &[&str], methods: &[&str]| OperationFilter {
            tags: tags.iter().map(ToString::to_string).collect(),
            methods: methods.iter().map(ToString::to_string).collect(),
            ..OperationFilter::default()
        };
        assert!(filter(&[], &[]).matches_all(pet) && !filter(&[], &[]).matches_any(pet));
        assert!(filter(&["pets"], &["GET"]).matches_all(pet));
        assert!(!filter(&["pets"], &["POST"]).matches_all(pet));
        assert!(filter(&["pets"], &["POST"]).matches_any(pet));
        assert!(!filter(&["x"], &["POST"]).matches_any(pet));
    }
}
